"""A drafter's word as distance from its usual word."""

import random

import pytest

from mtp.policies.planned.calibration import sigmoid
from mtp.policies.planned.centred import Centred


def taught(slope: float, offset: float) -> Centred:
    made, draw = Centred(2), random.Random(1)
    for _ in range(400):
        for request, level in (("sure", 1.0), ("unsure", -1.0)):
            made.learn(request, 0, sigmoid(offset + slope * (level + draw.gauss(0, 1))))
    return made


def test_an_offset_and_a_slope_of_the_confidence_do_not_matter():
    plain, faint = taught(1.0, 0.0), taught(0.5, -1.0)
    for said in (-1.5, 0.0, 2.0):
        seen = plain.of("sure", 0, sigmoid(said))
        assert faint.of("sure", 0, sigmoid(-1.0 + 0.5 * said)) == pytest.approx(seen, abs=0.02)
    # one deviation above what it says of this request
    assert plain.of("sure", 0, sigmoid(2.0)) == pytest.approx(1.0, abs=0.2)


def test_it_is_the_requests_own_usual_word():
    made = taught(1.0, 0.0)
    assert made.of("sure", 0, 0.5) == pytest.approx(-1, abs=0.3)
    assert made.of("unsure", 0, 0.5) == pytest.approx(1, abs=0.3)
    assert made.of("new", 0, 0.5) == pytest.approx(0, abs=0.3)
    made.release("sure")
    assert made.of("sure", 0, 0.5) == made.of("new", 0, 0.5)


def test_nothing_is_said_before_anything_was_and_extremes_are_cut():
    made = taught(1.0, 0.0)
    assert made.of("sure", 1, 0.9) == 0
    assert made.of("unsure", 0, 1.0) == 3
