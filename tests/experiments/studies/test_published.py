"""The published cells, and the surface."""

import pytest

from experiments.studies.calibrated import closed_form, coin_tape, published
from experiments.studies.published import Sharing, run_cell, run_sharing
from experiments.studies.published_page import implied_alone

CALIBRATED = {"code-1": 70.1, "code-3": 85.1, "prose-1": 76.1, "prose-3": 71.3}


@pytest.mark.parametrize(("name", "value"), CALIBRATED.items())
def test_the_engine_on_tapes_gives_the_calibrated_cells(name, value):
    assert closed_form(name.split("-")[0], 2, published()[name].drafts) == pytest.approx(
        value, abs=0.06
    )
    assert run_cell((name, 24))["tokens_per_s"] == pytest.approx(value, rel=0.015)
    assert published()[name].tokens_per_s == pytest.approx(value, rel=0.03)


def test_what_one_request_alone_would_need():
    assert closed_form("code", 1, 3) == pytest.approx(63.5, abs=0.1)
    assert implied_alone(published()) == pytest.approx(63.5 / 129.5, abs=0.001)


def test_coins():
    tape = coin_tape((0.9, 0.5), 20_000, 1)
    assert sum(match >= 1 for match in tape.matches) / 20_000 == pytest.approx(0.9, abs=0.01)
    assert sum(match >= 2 for match in tape.matches) / 20_000 == pytest.approx(0.45, abs=0.01)


def test_break_even_of_two_certain_drafters():
    """Nearly every draft is right: four rows alone give 4 tokens, a shared window 8, so alone
    windows must cost T(4) / T(8) of what batched ones of as many rows cost, times two: (22.6 +
    43.68) / (22.6 + 21.84) / 2."""
    found = run_sharing(Sharing(0.999, 2, 40))
    assert found["ratio"] == pytest.approx(66.28 / 44.44 / 2, rel=0.03)
