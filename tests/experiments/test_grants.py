"""Grants from the command line: what is refused, what the presets mean, and what a run reports."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest
import yaml
from hydra import compose, initialize_config_dir

from experiments.config import resolvers
from experiments.config.checks import BadInput
from experiments.io import PROJECT
from experiments.run import CONFIGS
from experiments.runs.spec import run_spec
from experiments.runs.validate import validate
from mtp.grants import Drr, Everyone, Fifo, Rotate, Srpt, Strict, Vtc

NUMBERS = [
    ("'08'", "08"),
    ("8.0", "8.0"),
    ("true", "true"),
    ("null", "null"),
    ("'abc'", "abc"),
    ("inf", "inf"),
    ("-1", "-1"),
]
KEYS = [("budget", 0), ("skip_cap", 0), ("backlog", 0), ("holders", 1)]
CASES = [
    (f"grant.{key}={given}", f"grant.{key} is {shown}, expected an integer, at least {least}")
    for (key, least), (shown, given) in itertools.product(KEYS, NUMBERS)
]
CASES += [
    ("grant.holders=0", "grant.holders is 0, expected an integer, at least 1"),
    ("grant.unit=steps", "grant.unit is 'steps', expected one of rounds, tokens, ms"),
    ("grant.parked=null", "grant.parked is null, expected one of auto, wait, plain"),
    ("slots=2", "slots is 2, expected at least 3 (grant.holders 1 + grant.backlog 2)"),
    ("grant.holders=3", "slots is 4, expected at least 5 (grant.holders 3 + grant.backlog 2)"),
    ("share=both", "share/both"),
    ("share=null", "share is null, expected one of tick, window"),
    ("grant=null", "grant is null, expected one of drr, fifo, off, rotate, srpt, strict, vtc"),
    ("workload.priorities=[1,-1]", "workload.priorities[1] is -1, expected an integer, at least 0"),
]


@pytest.fixture(autouse=True)
def registered():
    resolvers.register()


def spec(*overrides):
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        return run_spec(compose("run", overrides=list(overrides)))


@pytest.mark.parametrize(("override", "message"), CASES, ids=[case[0] for case in CASES])
def test_bad_values_are_refused_in_one_line(override, message):
    with pytest.raises(BadInput) as refused:
        validate(["grant=rotate", override], CONFIGS, "run")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_bad_values_are_refused_once_before_any_job_of_a_sweep():
    command = [
        sys.executable,
        "-m",
        "experiments.run",
        "-m",
        "experiment=grants",
        "grant.budget=8,08",
    ]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines() == [
        "error: grant.budget is '08', expected an integer, at least 0"
    ]


def test_time_sharing_without_a_discipline_is_refused():
    with pytest.raises(BadInput, match="share is tick, but with grant=off nobody holds a grant"):
        validate(["share=tick", "grant=off"], CONFIGS, "run")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rotate", Rotate),
        ("fifo", Fifo),
        ("strict", Strict),
        ("drr", Drr),
        ("vtc", Vtc),
        ("srpt", Srpt),
    ],
)
def test_a_config_and_its_discipline_have_the_same_defaults(name, kind):
    built = spec(f"grant={name}").grants
    assert type(built) is kind
    assert built == kind(budget=built.budget)
    assert built.budget == (16 if name == "drr" else 8)


def test_presets():
    assert isinstance(spec().grants, Everyone)
    assert spec("grant=rotate").grants == Rotate(share="window")
    assert spec("share=tick").grants == Rotate(
        budget=8, skip_cap=2, backlog=2, holders=1, share="tick"
    )
    assert spec("share=tick", "grant=fifo").grants == Fifo(share="tick")
    assert spec("share=tick", "grant.parked=plain").grants == Rotate(share="tick", parked="plain")
    assert (spec("share=tick").grants.parked_wait, spec("grant=rotate").grants.parked_wait) == (
        True,
        False,
    )


@pytest.mark.parametrize("name", ["grants", "sharing"])
def test_every_job_of_an_experiment_can_be_planned(name):
    swept = yaml.safe_load((PROJECT / "configs" / "experiment" / f"{name}.yaml").read_text())[
        "hydra"
    ]["sweeper"]["params"]
    for key, values in swept.items():
        for value in str(values).split(","):
            made = spec(f"experiment={name}", f"{key}={value}")
    assert made.settings.slots == {"grants": 6, "sharing": 8}[name]
    assert made.workload.requests == {"grants": 9, "sharing": 6}[name]


def test_a_run_in_time_sharing_is_exact_and_reports_its_grants(tmp_path):
    lines = [{"id": name, "prompt": "def f(x):\n", "max_new_tokens": 12} for name in "abcd"]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = [
        "share=tick",
        "grant.budget=2",
        "workload=file",
        "workload.path=prompts.jsonl",
        "workload.priorities=[1,1,2]",
    ]
    command = [
        sys.executable,
        "-m",
        "experiments.run",
        "device=cpu",
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
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["parity"]["exact"]
    assert metrics["grants"]["ring_peak"] == metrics["grants"]["live_sessions_peak"] == 3
    assert 2 <= metrics["grants"]["max_gap_rounds"] <= 6
    assert metrics["grants"]["switches"] >= 2
    requests = {entry["id"]: entry for entry in metrics["requests"]}
    assert [requests[name]["priority"] for name in "abcd"] == [1, 1, 2, 1]
    assert all(requests[name]["grants"] >= 1 for name in "abc")
    assert requests["d"]["grants"] is None  # beyond the backlog
    assert all(
        entry["stall_s"] > 0 and entry["plain_reason"] is None for entry in requests.values()
    )
