"""Every plot: what it needs, what it shows, and that two kinds of evidence never share an axis."""

from __future__ import annotations

import json
from itertools import product

import polars as pl
import pytest

from experiments.report.arms import arms_of
from experiments.report.baseline import baselines
from experiments.report.draw_matplotlib import save
from experiments.report.draw_plotly import figure
from experiments.report.grant_marks import windows_of_grants
from experiments.report.headline import headline
from experiments.report.panel import Bars, Heat, Line, MixedEvidence, Panel, Points, View
from experiments.report.plots import (
    PICTURES,
    calibration,
    gantt,
    heat,
    layouts,
    pareto,
    positions,
    speed,
    tapes,
    timeline,
    window_time,
)
from experiments.report.runs import find_runs
from tests.support.run_folders import write_run


def view_of(folder):
    arms = arms_of(find_runs(folder))
    return View(headline(arms, baselines(arms, None)))


@pytest.fixture(scope="module")
def rich(tmp_path_factory):
    """A run for every plot."""
    folder = tmp_path_factory.mktemp("rich")
    on_tapes = {"evidence": "synthetic"}
    policies = (("static_k", 0), ("rotate_grow", None), ("hindsight", None))
    for n, (row, (policy, k)) in enumerate(product((0.001, 0.005), policies)):
        config = {"cost.base": 0.02, "cost.row": row}
        write_run(
            folder / f"tape{n}",
            policy=policy,
            k=k,
            config=config,
            metrics=on_tapes,
            window_s=0.05 - 0.01 * n / 6,
        )
    cut = write_run(folder / "cpu0", captures=(0, 2), config={"cost.base": 0.02, "cost.row": 0.005})
    write_run(
        folder / "cpu1", policy="static_k", k=0, config={"cost.base": 0.02, "cost.row": 0.005}
    )
    notes = cut / ".hydra" / "hydra.yaml"
    notes.write_text(
        notes.read_text()
        .replace("grant: 'off'", "grant: rotate")
        .replace("grant: off", "grant: rotate")
    )
    grants = {
        "request": ["a", "b", "a"],
        "began": [0, 2, 3],
        "ended": [2, 3, 5],
        "rounds": [2, 1, 2],
        "tokens": [4, 2, 5],
    }
    pl.DataFrame(grants | {"waited": [0, 2, 1], "again": [False, False, True]}).write_parquet(
        cut / "grants.parquet"
    )
    confidence = [place / 200 for place in range(200)]
    tape = {
        "request": "a",
        "token": 1,
        "matches": [int(c > 0.3) for c in confidence],
        "confidence_1": confidence,
    }
    pl.DataFrame(tape).with_row_index("index").write_parquet(cut / "tape.parquet")
    return folder


@pytest.mark.parametrize("plot", PICTURES, ids=lambda plot: plot.key)
def test_every_picture_draws_and_says_why_when_it_cannot(plot, rich, tmp_path):
    panels = plot.draw(view_of(rich))
    assert not isinstance(panels, str), panels
    for panel in panels:
        assert panel.evidence in ("cpu", "synthetic")
        drawn = figure(panel)
        json.dumps(drawn, allow_nan=False)
        assert len(drawn["data"]) == len(panel.marks) > 0
    for file in save(panels, tmp_path / plot.key):
        assert file.stat().st_size > 2000
    reason = plot.draw(View([]))
    assert isinstance(reason, str)
    assert "\n" not in reason


def test_every_picture_keeps_evidence_apart(rich):
    kinds = {plot.key: {panel.evidence for panel in plot.draw(view_of(rich))} for plot in PICTURES}
    assert kinds["speed"] == kinds["window_timeline"] == kinds["split"] == {"cpu", "synthetic"}
    assert kinds["regret"] == kinds["regime_map"] == {"synthetic"}


def test_two_kinds_of_evidence_on_one_axis_are_refused(rich):
    runs = find_runs(rich)
    with pytest.raises(MixedEvidence, match="cpu, synthetic on one axis, expected one kind"):
        Panel("all", "x", "y", [], runs)
    with pytest.raises(MixedEvidence, match="none on one axis"):
        Panel("all", "x", "y", [], [])


def test_the_timeline_shows_each_row_of_each_window(rich):
    (panel,) = [
        one
        for one in timeline.draw(view_of(rich))
        if one.title.startswith("rotate_grow") and one.evidence == "cpu"
    ]
    bars = {mark.name: mark for mark in panel.marks if isinstance(mark, Bars)}
    assert (bars["slot 0"].length, bars["slot 0"].base) == ([3, 1, 4], [0, 0, 0])
    assert (bars["slot 0, rejected"].length, bars["slot 0, rejected"].base) == (
        [1, 1, 0],
        [3, 1, 4],
    )
    assert (bars["slot 1"].length, bars["slot 1"].base) == ([2, 4, 1], [4, 2, 4])
    assert bars["slot 0, rejected"].hatched
    marks = {mark.name: mark.x for mark in panel.marks if isinstance(mark, Points)}
    assert marks == {"capture": [0, 2], "promotion": [1], "park": [0]}
    # a's first grant: its prefill and window 0; then b's prefill; then a again: windows 1 and 2


def test_the_timeline_says_what_was_not_recorded(tmp_path):
    run = write_run(tmp_path / "a")
    (run / "steps.parquet").unlink()
    (panel,) = timeline.draw(view_of(tmp_path))
    assert "captures, parks and promotions: not recorded (no steps.parquet)" in panel.title


def test_grants_on_windows(rich):
    (run,) = [run for run in find_runs(rich) if run.folder.name == "cpu0"]
    assert windows_of_grants(run) == [("a", 0, 0, False, True), ("a", 1, 2, True, False)]
    (panel,) = gantt.draw(view_of(rich))
    bars = {mark.name: (mark.base, mark.length) for mark in panel.marks if isinstance(mark, Bars)}
    assert bars == {"a": ([0, 3], [2, 2]), "b": ([2], [1])}


def test_the_fitted_line(tmp_path):
    windows = [[("a", rows, 1)] for rows in (1, 2, 4, 4, 2, 1)]
    run = write_run(tmp_path / "a", windows=windows)
    steps = pl.read_parquet(run / "steps.parquet").with_columns(
        padded=pl.lit(0), commit_s=0.001, verify_s=0.01 + 0.002 * pl.col("rows")
    )
    steps.write_parquet(run / "steps.parquet")
    (panel,) = window_time.draw(view_of(tmp_path))
    assert any("11.00 + 2.000 × rows ms" in mark.name for mark in panel.marks)


def test_the_pareto_front():
    assert pareto.pareto([(1, 5), (2, 4), (3, 1), (2, 3), (1, 4), (3, 1)]) == [
        (1, 5),
        (2, 4),
        (3, 1),
    ]
    assert pareto.pareto([(1, 1), (2, 2)]) == [(2, 2)]


def test_acceptance_by_position_with_n(rich):
    panels = positions.draw(view_of(rich))
    (conditional, cumulative) = [panel for panel in panels if panel.evidence == "cpu"]
    line = conditional.marks[1]
    assert isinstance(line, Line)
    assert line.arm.startswith("rotate_grow")
    assert line.name.endswith("(n = 5, 3, 3)")
    assert line.y == [4 / 5, 3 / 3, 2 / 3]
    assert cumulative.marks[1].y == [4 / 5, 3 / 3, 2 / 3]


def test_heat_maps_of_two_knobs(rich):
    (panel,) = heat.draw(view_of(rich))
    (mark,) = panel.marks
    assert isinstance(mark, Heat)
    assert (
        len(mark.x),
        len(mark.y),
        sum(value is not None for row in mark.z for value in row),
    ) == (3, 2, 6)


def test_regret_and_gain(rich):
    (panel,) = tapes.REGRET.draw(view_of(rich))
    (bars,) = panel.marks
    assert isinstance(bars, Bars)
    assert min(bars.length) == 0.0
    assert max(bars.length) > 3.0  # plain decoding's windows were longer
    (gains,) = tapes.REGIME_MAP.draw(view_of(rich))
    lines = {mark.name: mark.x for mark in gains.marks}
    assert lines["rotate_grow"] == [0.05, 0.25]


def test_layouts_over_time_and_calibration(rich):
    (panel,) = layouts.draw(view_of(rich))
    line, captures = panel.marks
    assert line.y == [0.0, 1 / 2, 1 / 3]
    assert captures.x == [0, 2]
    (reliability,) = calibration.draw(view_of(rich))
    curve = reliability.marks[1]
    assert curve.name == "draft 1 (n = 200)"
    assert curve.y == [0, 0, 0, 19 / 20, 1, 1, 1, 1, 1, 1]
    assert curve.x[0] == pytest.approx(0.0475)


def test_invalid_arms_are_not_drawn_among_speeds(tmp_path):
    write_run(tmp_path / "0", policy="static_k", k=0)
    write_run(tmp_path / "1", policy="static_k", k=1)
    write_run(tmp_path / "2", parity={"checked": 2, "exact": False})
    (panel,) = speed.draw(view_of(tmp_path))
    assert {name for mark in panel.marks for name in mark.y} == {"static_k k=0", "static_k k=1"}
    (front,) = pareto.draw(view_of(tmp_path))
    assert {mark.name for mark in front.marks} == {"static_k k=0", "static_k k=1", "Pareto front"}


def test_labels_are_text_and_never_markup_or_mathematics(tmp_path):
    write_run(tmp_path / "0", config={"tag": "<b>$x^2$</b>"})
    write_run(tmp_path / "1", config={"tag": "plain"})
    drawn = [plot.draw(view_of(tmp_path)) for plot in PICTURES]
    traces = [
        trace
        for panels in drawn
        if not isinstance(panels, str)
        for panel in panels
        for trace in figure(panel)["data"]
    ]
    assert len(traces) > 20
    # meta is for the filter and never shown
    assert not [trace for trace in traces if "<b>" in json.dumps(trace | {"meta": None})]
    (panel,) = speed.draw(view_of(tmp_path))
    drawn = json.dumps(figure(panel))
    assert "&lt;b&gt;$x^2$" in drawn
    svg, _ = save([panel], tmp_path / "speed")
    assert "$x^2$" in svg.read_text()
