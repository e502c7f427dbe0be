"""Command lines as people write them: flags anywhere (F18), names of files that hold anything
(N17)."""

from __future__ import annotations

import pytest

from experiments.config.checks import BadInput
from experiments.config.overrides import flags_last
from experiments.run import CONFIGS
from experiments.runs.validate import validate


@pytest.mark.parametrize(
    "arguments",
    [
        ["workload=synthetic", "-m", "grant=rotate,off"],
        ["-m", "workload=synthetic", "grant=rotate,off"],
        ["workload=synthetic", "grant=rotate,off", "--multirun"],
    ],
)
def test_F18_flags_stand_anywhere(arguments: list[str]):
    checked = validate(flags_last(arguments), CONFIGS, "run")
    assert checked.sweep
    grants = [overrides[-1] for overrides, _ in checked.jobs]
    assert grants == ["grant=rotate", "grant=off"]


def test_F18_a_flag_keeps_its_value():
    assert flags_last(["--cfg", "job", "a=1", "--info", "-m", "b=2"]) == [
        *("a=1", "b=2"),
        *("--cfg", "job", "--info", "-m"),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs=3", "seed=1"], "--jobs=3 is no flag"),
        (["seed=1", "-x"], "-x is no flag"),
        (["seed=1", "--cfg", "all of it"], "argument --cfg/-c: invalid choice: 'all of it'"),
        (["--cfg"], "argument --cfg/-c: expected one argument"),
    ],
)
def test_F18_a_flag_that_is_none_is_one_line(arguments: list[str], message: str):
    with pytest.raises(BadInput) as refused:
        flags_last(arguments)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)
