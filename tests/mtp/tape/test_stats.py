"""What tapes say about a drafter, on rows that can be counted by hand, and on texts whose
parameters are known."""

from __future__ import annotations

import random

import pytest

from mtp.tape import Tape
from mtp.tape.stats import auc, calibration_error, correlation, tape_stats
from mtp.tape.synthesis import Synthesis


def test_by_hand():
    confidence = ((0.9, 0.5), (), (0.1,), (0.6, 0.2), (0.3, 0.3), (0.3, 0.3))
    tape = Tape((1, 2, 3, 4, 5, 6), (2, 0, 1, 0, 1, 0), confidence)
    figures = tape_stats([tape], depth=2)  # the last two tokens cannot be judged
    assert figures["tokens"] == 4
    assert figures["offered"] == 0.75
    assert figures["survival"] == [0.5, 0.25]
    assert figures["auc"] == 0.5  # right: 0.9, 0.1; wrong: 0.6
    assert figures["calibration_error"] == pytest.approx((0.1 + 0.9 + 0.6) / 3)
    assert figures["autocorrelation"] == pytest.approx(-1.0)  # 1 0 1 0, token to token


def test_without_a_confidence_or_without_tokens_there_is_nothing_to_say():
    assert tape_stats([Tape((1,) * 9, (1, 0) * 4 + (0,))], depth=3)["auc"] is None
    assert tape_stats([Tape((1,), (0,), ((0.0,),))], depth=7) == {
        "tokens": 0,
        "offered": None,
        "survival": [None] * 7,
        "auc": None,
        "calibration_error": None,
        "autocorrelation": None,
    }


def test_auc_counts_pairs_and_a_tie_is_half():
    draw = random.Random(1)
    scored = [(round(draw.random(), 1), draw.random() < 0.6) for _ in range(150)]
    right, wrong = (
        [s for s, is_right in scored if is_right],
        [s for s, is_right in scored if not is_right],
    )
    by_pairs = sum((a > b) + 0.5 * (a == b) for a in right for b in wrong) / (
        len(right) * len(wrong)
    )
    assert auc(scored) == pytest.approx(by_pairs)
    assert auc([(0.5, True)]) is None
    assert calibration_error([(1.0, True), (1.0, False)]) == 0.5
    assert correlation([(0.0, 1.0), (1.0, 0.0)]) == pytest.approx(-1)
    assert correlation([(1.0, 1.0)]) is None


def test_a_synthetic_text_has_the_figures_it_was_asked_for():
    figures = tape_stats(
        [Tape.drawn(Synthesis("code", auc=0.75), 20_000, seed) for seed in range(2)], depth=7
    )
    assert figures["survival"][:3] == pytest.approx((0.91, 0.85, 0.76), abs=0.01)
    assert figures["auc"] == pytest.approx(0.75, abs=0.015)
    assert figures["calibration_error"] < 0.02
    assert figures["autocorrelation"] > 0.08
