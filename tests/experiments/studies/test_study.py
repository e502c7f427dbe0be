"""A study from end to end, killed and gone on with."""

import io
import json

import polars as pl
import pytest
from omegaconf import OmegaConf
from rich.console import Console

from experiments.config.checks import BadInput
from experiments.run import _take_folder
from experiments.studies.cell import Cell
from experiments.studies.policies import PolicyStudy
from experiments.studies.study import run_study
from experiments.studies.trial import Trial, policy_of, run_trial
from mtp.costs import LinearCost, StaircaseCost

ARMS = (
    "static_0",
    "static_1",
    "static_2",
    "static_3",
    "rotate_grow",
    "adaptive",
    "oracle_p",
    "hindsight",
)


class TwoCells:
    def cells(self):
        return [
            Cell("one", "design", "switch", 2, ratio=0.2, seed=1),
            Cell("two", "useless", "prose", 1, confidence="useless", seed=2),
        ]


def study(**options):
    return PolicyStudy(
        TwoCells(), arms=ARMS, requests=4, tokens=40, resamples=200, workers=0, **options
    )


def run(folder, one=None):
    printed = io.StringIO()
    return run_study(one or study(), folder, "id", Console(file=printed)), printed.getvalue()


def test_two_cells_end_to_end_and_the_same_numbers_twice(tmp_path):
    metrics, printed = run(tmp_path / "a")
    run(tmp_path / "b")
    table = pl.read_parquet(tmp_path / "a" / "cells.parquet")
    assert table.equals(pl.read_parquet(tmp_path / "b" / "cells.parquet"))
    assert set(table["arm"]) == set(ARMS) - {"static_2"}  # the sizes hold no groups of three
    assert table.filter(pl.col("arm") == pl.col("best_static"))["over_best_static"].to_list() == [
        0.0,
        0.0,
    ]
    assert (table["tokens_per_s"] > 0).all()
    page = (tmp_path / "a" / "bars.md").read_text()
    assert page == (tmp_path / "b" / "bars.md").read_text()
    assert "| one | static_" in page
    assert "floor" in printed
    assert metrics["cells"] == 2
    assert json.loads((tmp_path / "a" / "metrics.json").read_text())["evidence"] == "synthetic"
    assert (tmp_path / "a" / "regime_map.svg").read_text().startswith("<?xml")


def test_a_killed_study_goes_on_and_ends_alike(tmp_path, monkeypatch):
    run(tmp_path / "whole")
    calls = []

    def killed(trial):
        if calls:
            raise KeyboardInterrupt
        calls.append(trial.cell.name)
        return run_trial(trial)

    killed.__qualname__ = run_trial.__qualname__
    monkeypatch.setattr("experiments.studies.policies.run_trial", killed)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut")
    assert [file.name for file in (tmp_path / "cut" / "cells").iterdir()] == ["one.json"]
    # as if torn: it counts for nothing
    (tmp_path / "cut" / "cells" / "two.json").write_text('{"fing')
    monkeypatch.setattr("experiments.studies.policies.run_trial", run_trial)
    metrics, printed = run(tmp_path / "cut")
    assert metrics["cells_kept"] == 1
    assert "1 of 2 cells are there already" in printed
    assert (tmp_path / "cut" / "bars.md").read_text() == (
        tmp_path / "whole" / "bars.md"
    ).read_text()


@pytest.mark.parametrize("content", ["", "[]", '{"found": {}}'])
def test_N06_a_broken_cell_runs_again_and_is_named(content, tmp_path, capfd):
    whole, _ = run(tmp_path)
    cell = tmp_path / "cells" / "two.json"
    cell.write_text(content)
    again, _ = run(tmp_path)
    assert again["cells_kept"] == whole["cells"] - 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"warning: {cell} cannot be used (")


def test_changed_settings_run_again(tmp_path):
    run(tmp_path)
    metrics, _ = run(tmp_path, study(layout="sorted"))
    assert metrics["cells_kept"] == 0


def test_all_arms_of_a_cell_emit_the_same_text_in_other_windows():
    found = run_trial(
        Trial(
            Cell("one", "design", "code", 1, seed=3),
            ("static_0", "static_3", "hindsight"),
            requests=3,
            tokens=30,
        )
    )
    tokens = [arm["tokens"] for arm in found["arms"].values()]
    assert tokens[0] == tokens[1] == tokens[2] == [29, 29, 29]  # one comes of the prefill
    windows = [arm["windows"] for arm in found["arms"].values()]
    assert windows[0] == 87
    assert windows[1] < 60


def test_arms_are_checked_before_anything_runs():
    with pytest.raises(BadInput, match=r"study\.arms is 'nonsense', expected one of"):
        PolicyStudy(TwoCells(), arms=(*ARMS, "nonsense"))
    with pytest.raises(BadInput, match=r"study\.arms lacks static_3"):
        PolicyStudy(TwoCells(), arms=("static_0", "static_1", "adaptive"))


def test_arms_believe_what_the_cell_says_and_are_charged_the_truth():
    cell = Cell("one", "row_dear", "code", 2, ratio=0.2, belief=1.4, stairs=True)
    cost_model = policy_of("adaptive", cell, {}).cost
    truth = StaircaseCost(LinearCost(**cell.cost()), cell.buckets)
    assert cost_model.window(3, 1, 0) - cost_model.window(1, 1, 0) == 0  # both are padded to four
    assert cost_model.window(8, 1, 0) - cost_model.window(4, 1, 0) == pytest.approx(
        1.4 * (truth.window(8, 1, 0) - truth.window(4, 1, 0))
    )
    assert policy_of("static_2", cell, {}) is None
    assert policy_of("static_3", cell, {}).k == 3


def test_a_study_that_failed_goes_on_in_its_folder_and_no_other_run_does(tmp_path):
    status = tmp_path / "status.json"
    for state, study_node in (("ok", {"cells": 1}), ("failed", None)):
        status.write_text(json.dumps({"state": state}))
        with pytest.raises(BadInput, match="holds a run already"):
            _take_folder(
                OmegaConf.create({"study": study_node, "hydra": {"run": {"dir": str(tmp_path)}}})
            )
        assert status.exists()
    _take_folder(
        OmegaConf.create({"study": {"cells": 1}, "hydra": {"run": {"dir": str(tmp_path)}}})
    )
    assert not status.exists()
