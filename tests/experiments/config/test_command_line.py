"""Command lines as people write them: flags anywhere (F18), names of files that hold anything
(N17), keys that a choice does not have (F20)."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hydra import initialize_config_dir

from experiments.config import resolvers
from experiments.config.checks import BadInput
from experiments.config.overrides import flags_last, parse, quoted, single_job
from experiments.run import CONFIGS
from experiments.runs.validate import Composer, validate


@pytest.fixture(autouse=True)
def resolved() -> None:
    resolvers.register()


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


NAMES = [
    *("epoch=3-step=87.jsonl", "x (50%).jsonl", "(50%).jsonl", "[b]/{c}.jsonl", "a:b#c.jsonl"),
    *("it's.jsonl", 'a"b.jsonl', "~/x.jsonl", "é.jsonl", "a&b", "=", "x\\'y", "a, b (1).jsonl"),
]


@pytest.mark.parametrize("name", NAMES)
def test_N17_a_name_that_hydra_cannot_read_is_refused_with_the_quotes_that_it_needs(name: str):
    with pytest.raises(BadInput) as refused:
        single_job([f"workload.path={name}"])
    said = str(refused.value)
    assert said.startswith(f"workload.path={name} is no value as Hydra writes it, expected one")
    (word,) = shlex.split(said.split("in quotes: ")[1])  # as a shell would hand it over
    (override,) = parse([word])
    assert (override.key_or_group, override.value()) == ("workload.path", name)


@pytest.mark.parametrize("name", ["a b.jsonl", "50%.jsonl", "a-b+c@d.jsonl", "a$b.jsonl"])
def test_N17_other_names_need_none(name: str):
    (override,) = parse([f"workload.path={name}"])
    assert override.value() == name
    assert not override.is_sweep_override()


def test_N17_a_comma_needs_quotes():
    with pytest.raises(BadInput, match=r"a text quotes: workload\.path='a,b\.jsonl'"):
        single_job(["workload.path=a,b.jsonl"])
    (override,) = parse(["workload.path='a,b.jsonl'"])
    assert override.value() == "a,b.jsonl"


@pytest.mark.parametrize("name", ["epoch=3-step=87 (50%), é.jsonl", "it's [b].jsonl"])
def test_N17_a_quoted_name_reaches_the_job(name: str, tmp_path: Path):
    (tmp_path / name).write_text('{"prompt_ids": [1, 2]}\n')
    path = f"workload.path={quoted(str(tmp_path / name))}"
    for flags in ([], ["-m"]):
        checked = validate([*flags, "workload=file", path, "device=cpu"], CONFIGS, "run")
        ((overrides, _),) = checked.jobs
        config = Composer("run", CONFIGS)
        with initialize_config_dir(CONFIGS, version_base="1.3"):
            assert config(overrides).workload.path == str(tmp_path / name)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("policy.k=1", "policy.k is 1, but rotate_grow has no k, expected one of depth, sizes"),
        ("+policy.k=1", "policy.k is 1, but rotate_grow has no k, expected one of depth, sizes"),
        ("-m policy.k=1,3", "policy.k is 1, but rotate_grow has no k, expected one of depth, s"),
        ("-m policy=static_k,rotate_grow policy.k=1", "policy.k is 1, but rotate_grow has no k"),
        ("policy=adaptive policy.k=1", "policy.k is 1, but adaptive has no k, expected one of "),
        ("grant.budget=8", "grant.budget is 8, but everyone has no budget, expected another grant"),
        ("workload.pth=x", "workload.pth is x, but synthetic_workload has no pth, expected one of"),
        ("+cost.foo=1", "cost.foo is 1, but linear_cost has no foo, expected one of base, capture"),
        ("layout.size=1", "layout.size is 1, but layout has no size, expected one of capacity, ca"),
        ("nothing=3", "nothing is 3, but a run has no nothing, expected one of buckets, cache_dir"),
        ("slots.x=1", "slots.x is 1, but slots is 4, which has no keys"),
    ],
)
def test_F20_a_key_that_a_choice_lacks_is_refused_with_those_that_it_has(overrides, message):
    with pytest.raises(BadInput) as refused:
        validate(flags_last(["workload=synthetic", *overrides.split()]), CONFIGS, "run")
    assert str(refused.value).startswith(message)


def test_F20_a_key_that_all_swept_choices_have_is_no_fault():
    given = ["-m", "workload=synthetic", "policy=static_k,static_0", "policy.k=1"]
    assert len(validate(given, CONFIGS, "run").jobs) == 2
