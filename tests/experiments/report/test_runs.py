"""Runs are read from their files: what is whole, what is not, and what is known of each."""

from __future__ import annotations

import json

import pytest

from experiments import load
from experiments.report.arms import arms_of
from experiments.report.planned import not_run
from experiments.report.runs import find_runs
from tests.support.run_folders import write_run


def test_H07_a_run_is_known_by_its_config_whatever_its_path(tmp_path):
    write_run(tmp_path / "tag='a" / "b'" / "[deep], $x", config={"tag": "a/b"})
    write_run(tmp_path / "policy=static_k,policy.k=3", policy="rotate_grow", config={"tag": "c,d"})
    assert sorted(run.config["tag"] for run in find_runs(tmp_path)) == ["a/b", "c,d"]
    assert {arm.label for arm in arms_of(find_runs(tmp_path))} == {
        "rotate_grow tag=a/b",
        "rotate_grow tag=c,d",
    }


def test_states_of_a_sweep_in_flight(tmp_path):
    write_run(tmp_path / "whole")
    write_run(tmp_path / "running")
    (tmp_path / "running" / "status.json").unlink()
    write_run(tmp_path / "status-cut")
    (tmp_path / "status-cut" / "status.json").write_text('{"state": "o')
    write_run(tmp_path / "metrics-cut")
    (tmp_path / "metrics-cut" / "metrics.json").write_text('{"evidence": ')
    write_run(tmp_path / "metrics-gone")
    (tmp_path / "metrics-gone" / "metrics.json").unlink()
    write_run(tmp_path / "config-cut")
    (tmp_path / "config-cut" / ".hydra" / "config.yaml").write_text("a: [")
    write_run(tmp_path / "failed", state="failed", error="Traceback\nRuntimeError: no")
    early = tmp_path / "failed-early"  # before Hydra wrote anything
    early.mkdir()
    (early / "status.json").write_text(json.dumps({"state": "failed", "error": "bad"}))
    states = {run.folder.name: (run.state, run.counts) for run in find_runs(tmp_path)}
    half = ("half-written", False)
    assert states == {
        "whole": ("ok", True),
        "running": ("running", False),
        "status-cut": half,
        "metrics-cut": half,
        "metrics-gone": half,
        "config-cut": half,
        "failed": ("failed", False),
        "failed-early": ("failed", False),
    }
    table = load(tmp_path)
    assert table.height == 8
    assert table.filter(table["state"] == "ok")["config.policy"].to_list() == ["rotate_grow"]
    assert table["tokens_per_s"].drop_nulls().len() == 2  # the failed one had written its figures


def test_jobs_that_a_sweep_names_and_no_folder_has(tmp_path):
    write_run(tmp_path / "000-aa")
    (tmp_path / "001-bb").mkdir()
    jobs = [
        {"name": name, "overrides": [f"seed={n}"], "fingerprint": ""}
        for n, name in enumerate(("000-aa", "001-bb", "002-cc"))
    ]
    (tmp_path / "sweep.json").write_text(json.dumps({"jobs": jobs}))
    assert not_run(tmp_path) == ["001-bb: seed=1 (just begun, or killed)", "002-cc: seed=2"]
    (tmp_path / "sweep.json").write_text("{")
    assert "sweep.json cannot be read" in not_run(tmp_path)[0]


def test_parity_labels(tmp_path):
    checks = {
        "exact": {"checked": 2, "exact": True},
        "invalid": {"checked": 2, "exact": False},
        "unchecked": {"checked": 0, "exact": False},
        "numerically equal": {"checked": 2, "exact": False, "label": "numerically equal"},
    }
    for label, parity in checks.items():
        write_run(tmp_path / label, parity=parity)
    assert {run.folder.name: run.parity for run in find_runs(tmp_path)} == {
        label: label for label in checks
    }
    write_run(
        tmp_path / "failed for its tokens",
        parity=checks["invalid"],
        state="failed",
        error="tokens differ",
    )
    assert sum(run.counts for run in find_runs(tmp_path)) == 5


def test_an_arm_is_as_good_as_its_worst_run(tmp_path):
    write_run(tmp_path / "0", config={"seed": 0})
    write_run(tmp_path / "1", config={"seed": 1}, parity={"checked": 2, "exact": False})
    (arm,) = arms_of(find_runs(tmp_path))
    assert (len(arm.runs), arm.parity, arm.ranks) == (2, "invalid", False)


def test_arms_are_named_by_what_varies_and_no_more(tmp_path):
    for n, (policy, k, budget) in enumerate(
        [("static_k", 0, 1), ("static_k", 3, 1), ("rotate_grow", None, 1), ("rotate_grow", None, 8)]
    ):
        write_run(
            tmp_path / str(n), policy=policy, k=k, config={"grant.budget": budget, "slots": 4}
        )
    labels = [arm.label for arm in arms_of(find_runs(tmp_path))]
    assert labels == [
        "static_k k=0 budget=1",
        "static_k k=3 budget=1",
        "rotate_grow budget=1",
        "rotate_grow budget=8",
    ]


def test_load_of_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="expected a folder of runs"):
        load(tmp_path / "none")
    assert load(tmp_path).height == 0
