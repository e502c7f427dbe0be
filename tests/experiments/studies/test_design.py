"""The cells of a judgement."""

from collections import Counter
from itertools import product

import pytest

from experiments.studies.cell import Cell
from experiments.studies.design import (
    DRAFTS,
    GRADES,
    LONG,
    OFF,
    RATIOS,
    REGIMES,
    SIZES,
    SLOTS,
    SyntheticDesign,
)
from experiments.studies.loops import before_loop
from experiments.studies.real import RecordedDesign
from experiments.studies.trial import tapes_of
from mtp.tape import Tape
from mtp.tape.synthesis import Synthesis

CELLS = SyntheticDesign().cells()


def test_at_most_200_cells_and_every_level_often():
    assert len(CELLS) <= 200
    assert len({cell.name for cell in CELLS}) == len({cell.seed for cell in CELLS}) == len(CELLS)
    base = [cell for cell in CELLS if cell.family == "design"]
    assert {(cell.regime, cell.slots) for cell in base} == set(product(REGIMES, SLOTS))
    levels = {
        "ratio": RATIOS,
        "draft": DRAFTS,
        "sizes": SIZES,
        "rows": (8, 16),
        "stairs": (False, True),
        "confidence": GRADES,
    }
    for name, wanted in levels.items():
        counts = Counter(getattr(cell, name) for cell in base)
        assert set(counts) == set(wanted)
        assert min(counts.values()) >= len(base) / len(wanted) / 2, (name, counts)
    assert {cell.family for cell in CELLS} == {"design", LONG, *OFF}


@pytest.mark.parametrize("one", ["ratio", "draft", "sizes", "stairs", "confidence"])
def test_no_level_is_tied_to_a_regime_or_to_a_batch(one):
    base = [cell for cell in CELLS if cell.family == "design"]
    for regime in REGIMES:
        assert len({getattr(cell, one) for cell in base if cell.regime == regime}) == len(
            {getattr(cell, one) for cell in base}
        )
    for slots in SLOTS:
        assert len({getattr(cell, one) for cell in base if cell.slots == slots}) == len(
            {getattr(cell, one) for cell in base}
        )


def test_tuning_and_judging_never_share_a_text():
    judged = {cell.seed for cell in CELLS}
    assert min(judged) >= 1000
    one = Cell("", "design", "code", 1, seed=1000)
    assert tapes_of(one, 2, 20) == tapes_of(one, 2, 20)
    assert (
        tapes_of(one, 2, 20)["r0"]
        != tapes_of(Cell("", "design", "code", 1, seed=1001), 2, 20)["r0"]
    )


def test_recorded_cells_name_tapes_that_ship():
    for cell in RecordedDesign().cells():
        assert len(tapes_of(cell, 0, 0)) >= 12


def test_a_text_is_cut_before_its_first_repeated_16_gram():
    tokens = (*range(100, 110), *range(20), *range(20))
    tape = Tape(tokens, tuple(min(3, len(tokens) - 1 - place) for place in range(len(tokens))))
    kept = before_loop(tape)
    # the 16-gram 0..15 comes again with its last token, number 45
    assert kept.tokens == tokens[:45]
    assert kept.matches[-4:] == (3, 2, 1, 0)
    fresh = Tape.drawn(Synthesis("code"), 60, 1)
    assert before_loop(fresh) is fresh
