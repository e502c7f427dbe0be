"""Studies from the command line."""

import io
import json
import re

import pytest
from hydra import compose, initialize_config_dir
from rich.console import Console

from experiments.config import resolvers
from experiments.config.checks import BadInput
from experiments.run import CONFIGS
from experiments.runs.job import run_job
from experiments.runs.spec import run_spec


def config_of(*overrides):
    resolvers.register()
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        return compose("run", overrides=list(overrides))


@pytest.mark.parametrize(
    ("experiment", "cells"), [("policies", 132), ("policies_tapes", 72), ("published", 28)]
)
def test_every_study_is_built(experiment, cells):
    study = run_spec(config_of(f"experiment={experiment}")).study
    assert len(study.jobs()) == cells


def test_a_run_has_none():
    assert run_spec(config_of()).study is None


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("study.tokens=1", "study.tokens is 1, expected an integer, at least 2"),
        ("+study.design.seed=-1", "study.design.seed is -1"),
        ("study.arms=[static_0]", "study.arms lacks static_1"),
        ("layout=off", "study.layout is 'off', expected one of slots, ordered, sorted, rows"),
        ("+study.foo=1", "foo"),
    ],
)
def test_bad_studies_are_refused_in_one_line(override, message):
    with pytest.raises(BadInput, match=re.escape(message)) as refused:
        run_spec(config_of("experiment=policies", override))
    assert "\n" not in str(refused.value)


def test_what_is_no_study_is_refused():
    with pytest.raises(
        BadInput, match=r"study is mtp\.policies\.StaticK, expected one of experiments/studies"
    ):
        run_spec(config_of("+study._target_=mtp.policies.StaticK"))


def test_a_job_with_a_study_runs_it(tmp_path):
    small = (
        "study.acceptances=[0.5,0.9]",
        "study.slots=[2]",
        "study.tokens=16",
        "study.requests=3",
        "study.workers=0",
    )
    metrics = run_job(
        config_of("experiment=published", *small), tmp_path, "id", Console(file=io.StringIO())
    ).metrics
    assert json.loads((tmp_path / "metrics.json").read_text()) == metrics
    assert metrics["label"] == "calibrated"
    page = (tmp_path / "published.md").read_text()
    assert "| code 256K, up to 3 drafts | 84.3 | 85.1 |" in page
    assert "## Not reproduced" in page
    assert (tmp_path / "break_even.svg").exists()
