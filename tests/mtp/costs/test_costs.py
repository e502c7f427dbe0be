"""Cost models: values by hand, files, the fit, and the online correction."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mtp.costs import (
    LinearCost,
    PathCost,
    ScaledCost,
    StaircaseCost,
    TableCost,
    load_cost,
    planning_cost,
    save_cost,
)
from mtp.costs.fit import Measured, fit_cost
from mtp.costs.refit import Refit, solve

LINE = LinearCost(
    base=0.02, row=0.005, slot=0.001, draft=0.002, prompt_token=0.0001, context=0.00001
)


def test_by_hand():
    assert LINE.window(8, 2, 3, 1000) == pytest.approx(0.02 + 0.04 + 0.002 + 0.006 + 0.01)
    assert LINE.prefill(100) == pytest.approx(0.03)
    table = TableCost((0.02, 0.021, 0.03), draft=0.001)
    assert table.window(2, 1, 1) == pytest.approx(0.022)
    assert table.window(5, 1, 0) == pytest.approx(0.04)  # the mean step goes on
    stairs = StaircaseCost(LINE, (4, 8))
    assert [stairs.window(rows, 1, 0) for rows in (1, 4, 5, 9)] == [
        LINE.window(rows, 1, 0) for rows in (4, 4, 8, 9)
    ]
    paths = PathCost(LinearCost(base=0.01), LINE)
    assert paths.window(4, 1, 0) == LinearCost(base=0.01).window(4, 1, 0)
    assert paths.window(4, 2, 0) == LINE.window(4, 2, 0)
    assert ScaledCost(LINE, 1.4).window(4, 2, 1) == pytest.approx(1.4 * LINE.window(4, 2, 1))
    assert planning_cost(LINE, "tight") is LINE
    assert planning_cost(LINE, [4, 8]) == stairs


def test_the_published_calibration():
    """research.md, section 1: its four two-request cells, tokens per second of both requests."""
    cost = ScaledCost(LinearCost(base=0.0226, row=0.00546, draft=0.0), 1.22)
    for conditional, k, expected in (((0.90, 0.91, 0.88), 1, 70.1), ((0.90, 0.91, 0.88), 3, 85.1)):
        survival, tokens = 1.0, 1.0
        for p in conditional[:k]:
            survival *= p
            tokens += survival
        assert 2 * tokens / cost.window(2 * (k + 1), 2, k) == pytest.approx(expected, abs=0.3)


@pytest.mark.parametrize("model", [LINE, TableCost((0.02, 0.03), slot=0.001)])
def test_files(model, tmp_path: Path) -> None:
    save_cost(tmp_path / "cost.yaml", model, {"device": "here"})
    assert load_cost(tmp_path / "cost.yaml") == model
    assert load_cost(tmp_path / "cost.yaml", [4, 8]) == StaircaseCost(model, (4, 8))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: cubic", "expected a mapping with kind: linear or table"),
        ("kind: linear\nrowz: 1.0", "rowz is no key of it"),
        (
            "kind: linear\nrow: -1.0",
            "cost.row is -1.0, expected a finite number of seconds, at least 0",
        ),
        (
            "kind: table\nrows: [0.1, 0.0]",
            "cost.rows is [0.1, 0.0], expected seconds for 1, 2, 3, ... rows",
        ),
        ("[", "no YAML"),
    ],
)
def test_bad_files(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "cost.yaml").write_text(text)
    with pytest.raises(ValueError, match="path is ") as wrong:
        load_cost(tmp_path / "cost.yaml")
    assert message in str(wrong.value)
    assert "\n" not in str(wrong.value)


def test_the_fit_finds_the_line_and_says_how_far_off_it_is():
    cells = [
        Measured(r, s, d, LINE.window(r, s, d))
        for r in (1, 2, 4, 8)
        for s in (1, 2, 4)
        if s <= r
        for d in (0, 1, 3)
    ]
    model, residuals = fit_cost(cells)
    assert [model.base, model.row, model.slot, model.draft] == pytest.approx(
        [0.02, 0.005, 0.001, 0.002]
    )
    assert residuals["max"] < 1e-9
    cells[0] = Measured(cells[0].rows, cells[0].slots, cells[0].depth, 2 * cells[0].seconds)
    model, residuals = fit_cost(cells)
    assert residuals["max"] > 0.3 > residuals["rms"] > 0.05
    falling = [Measured(r, 1, 0, 0.02 - 0.001 * r) for r in (1, 2, 3, 4)]
    assert fit_cost(falling)[0].row == 0.0


def windows(count: int, seed: int = 0):
    draw = random.Random(seed)
    for _ in range(count):
        slots = draw.randint(1, 4)
        yield draw.randint(slots, 8), slots, draw.choice([0, 1, 3])


def test_refit_finds_a_cost_that_is_off_by_40_percent():
    refit = Refit(ScaledCost(LINE, 1.4))
    for rows, slots, depth in windows(400):
        refit.observe(rows, 0, slots, depth, 0, LINE.window(rows, slots, depth))
    for rows, slots, depth in windows(50, 1):
        assert refit.cost.window(rows, slots, depth) == pytest.approx(
            LINE.window(rows, slots, depth), rel=0.02
        )


def test_refit_shrugs_at_outliers():
    refit, draw = Refit(LINE), random.Random(3)
    for rows, slots, depth in windows(400):
        measured = LINE.window(rows, slots, depth) * draw.uniform(0.98, 1.02)
        # 20 times a window
        refit.observe(rows, 0, slots, depth, 0, measured + (1.0 if draw.random() < 0.02 else 0.0))
    for rows, slots, depth in windows(50, 1):
        assert refit.cost.window(rows, slots, depth) == pytest.approx(
            LINE.window(rows, slots, depth), rel=0.05
        )


def test_refit_learns_the_buckets():
    refit, stairs = Refit(LINE), StaircaseCost(LINE, (4, 8))
    for rows, slots, depth in windows(200):
        refit.observe(
            rows, (4 if rows <= 4 else 8) - rows, slots, depth, 0, stairs.window(rows, slots, depth)
        )
    for rows in range(1, 9):
        assert refit.cost.window(rows, 1, 1) == pytest.approx(stairs.window(rows, 1, 1), rel=0.02)


def test_refit_leaves_what_never_varies():
    """All windows alike: their time is right, and no price has become absurd."""
    refit = Refit(LINE)
    for _ in range(200):
        refit.observe(8, 0, 2, 3, 0, 1.5 * LINE.window(8, 2, 3))
    assert refit.cost.window(8, 2, 3) == pytest.approx(1.5 * LINE.window(8, 2, 3), rel=0.02)
    assert LINE.window(1, 1, 0) < refit.cost.window(1, 1, 0) < 1.6 * LINE.window(1, 1, 0)


def test_solve():
    assert solve([[2.0, 1.0], [1.0, 3.0]], [4.0, 7.0]) == pytest.approx([1.0, 2.0])
