"""Layouts from the command line: defaults, the experiment's grid, and what a run reports."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import yaml
from hydra import compose, initialize_config_dir

from experiments.config import resolvers
from experiments.config.overrides import jobs_of
from experiments.io import PROJECT
from experiments.run import CONFIGS
from experiments.runs import settings
from experiments.runs.spec import run_spec
from mtp.layouts import KEYS

EXPERIMENT = PROJECT / "configs" / "experiment" / "layout_keys.yaml"


@pytest.fixture(autouse=True)
def registered():
    resolvers.register()


def spec(*overrides):
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        return run_spec(compose("run", overrides=list(overrides)))


@pytest.mark.parametrize("key", KEYS)
def test_the_engine_captures_at_the_second_sight_and_gives_up_after_four_capacities(
    key, monkeypatch
):
    made = []
    monkeypatch.setattr(
        settings, "LayoutCache", lambda *args, **kwargs: made.append((args, kwargs))
    )
    spec(f"layout={key}").layout.build(time.perf_counter, lambda: None)
    spec(
        f"layout={key}", "layout.capacity=5", "layout.capture_on=1", "layout.give_up_after=7"
    ).layout.build(time.perf_counter, lambda: None)
    assert [(args[0], kwargs["capture_on"], kwargs["give_up_after"]) for args, kwargs in made] == [
        (32, 2, 128),
        (5, 1, 7),
    ]


@pytest.mark.slow
def test_the_experiment_is_keys_by_slots_by_capacities():
    swept = yaml.safe_load(EXPERIMENT.read_text())["hydra"]["sweeper"]["params"]
    jobs = jobs_of([f"{key}={values}" for key, values in swept.items()])
    specs = [spec("experiment=layout_keys", *job) for job in jobs]
    grid = {(made.layout.key, made.settings.slots, made.layout.capacity) for made in specs}
    assert grid == {
        (key, slots, capacity) for key in KEYS for slots in (1, 2, 4, 8) for capacity in (8, 32, 64)
    }
    assert len(specs) == 48
    assert {
        (made.settings.parity, made.workload.requests, made.settings.max_new_tokens)
        for made in specs
    } == {("exact", 8, 64)}


@pytest.mark.slow
def test_a_run_reports_its_cache_and_says_that_it_gave_up(tmp_path):
    options = [
        "layout=slots",
        "layout.capacity=1",
        "layout.capture_on=1",
        "layout.give_up_after=3",
        "max_new_tokens=24",
        "device=cpu",
    ]
    command = [
        sys.executable,
        "-m",
        "experiments.run",
        "plain=false",
        "hydra.run.dir=out",
        *options,
    ]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(PROJECT), "PATH": "/usr/bin:/bin"},
    )
    assert ran.returncode == 0, ran.stderr
    assert "3 captures without a hit, no more captures" in ran.stdout + ran.stderr
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    layouts = metrics["layouts"]
    assert metrics["parity"]["exact"]
    assert (layouts["key"], layouts["given_up"], layouts["captures"] - layouts["evictions"]) == (
        "slots",
        True,
        1,
    )
    assert layouts["hit_rate"] == layouts["hits"] / metrics["windows"]
    assert layouts["capture_share"] == pytest.approx(
        metrics["split_s"]["capture"] / metrics["decode_s"]
    )
    cost = layouts["window_ms"]
    assert 0 < cost["eager"] < cost["capturing"]
    split = sum(metrics["split_s"][part] for part in ("verify", "commit_and_draft", "capture"))
    assert cost["mean"] == pytest.approx(1000 * split / metrics["windows"])
