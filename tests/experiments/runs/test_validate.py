"""The command line is refused in one line before anything is loaded, with or without -m."""

from __future__ import annotations

import subprocess
import sys

import pytest

from experiments.config import resolvers
from experiments.config.checks import BadInput
from experiments.run import CONFIGS
from experiments.runs.validate import validate

BAD = [
    ("slots=0", "slots is 0, expected an integer, 1 to 64"),
    ("slots=65", "slots is 65, expected an integer, 1 to 64"),
    ("policy.depth=8", "policy.depth is 8, expected an integer, 0 to 7"),
    ("buckets=[8,65]", "expected row counts of at most 64"),
    ("slots=08", "slots is '08', expected an integer"),
    ("slots=8.0", "slots is 8.0, expected an integer"),
    ("slots=true", "slots is true, expected an integer"),
    ("slots=null", "slots is null, expected an integer"),
    ("slots=abc", "slots is 'abc', expected an integer"),
    ("slots=inf", "slots is inf, expected an integer"),
    ("rows=-1", "rows is -1, expected an integer"),
    ("max_new_tokens=0", "max_new_tokens is 0"),
    ("buckets=[4]", "buckets is [4], expected its largest to cover a window of 8 rows"),
    ("buckets=[8,4]", "buckets is [8, 4], expected ascending row counts"),
    ("buckets=loose", "buckets is 'loose', expected a list of row counts or tight"),
    ("sizes=[2,4]", "sizes is [2, 4], expected ascending group sizes with 1 among them"),
    ("sizes=[1,2]", "sizes is [1, 2], expected [1, 2, 4]"),
    ("buckets=8", "buckets is 8, expected a list of row counts or tight"),
    ("~plain", "plain is missing"),
    ("share=null", "share is null, expected one of tick, window"),
    ("+sampling.temperature=0.5", "sampling.temperature is no key of sampling, expected kind"),
    ("+device.foo=1", "device.foo is no key of device"),
    ("+target.foo=1", "target.foo is no key of target, expected context or dtype or path"),
    ("target.context=abc", "context is 'abc', expected 1 to 1024"),
    ("target.context=1000.0", "context is 1000.0, expected 1 to 1024"),
    ("target.context=30000", "context is 30000, expected 1 to 1024"),
    ("target.dtype=fp16", "dtype is 'fp16', expected auto, stored, fp32 or bf16"),
    ("workload.requests=99", "workload.requests is 99, expected at most 40"),
    ("workload.arrivals=trace", "workload.trace is null"),
    ("parity=maybe", "parity is 'maybe', expected one of exact, report, off"),
    ("bogus=3", "bogus"),
    ("+bogus=3", "bogus is no key of a run"),
    ("policy=bogus", "policy/bogus"),
    ("policy.bogus=3", "bogus"),
    ("target=checkpoint", "target.path is not given"),
    (
        "target.path=no/such/folder",
        "target.path is no/such/folder, expected an existing checkpoint folder",
    ),
    ("workload.requests=0", "workload.requests is 0"),
    ("sampling.kind=beam", "sampling.kind is 'beam', expected one of greedy"),
    ("plan=gpu", "plan is 'gpu', expected one of host, device"),
    ("+drafter.foo=1", "drafter.foo is no key of drafter, expected one of context, path, weights"),
    ("drafter.path=nowhere", "drafter.path is nowhere, expected an existing checkpoint folder"),
    ("tag=[a]", "tag is ['a'], expected one text"),
    ("report=3", "report is 3, expected true or false"),
    ("resume=null", "resume is null, expected auto, new or the folder of a sweep"),
    ("device.name=tpu", "device.name is 'tpu', expected one of auto, cpu, cuda"),
]


CASES = [([], *case) for case in BAD] + [(["-m", "seed=0,1"], *case) for case in BAD[::8]]


@pytest.mark.parametrize(
    ("before", "override", "message"),
    CASES,
    ids=[" ".join([*before, override]) for before, override, _ in CASES],
)
def test_bad_values_are_refused_in_one_line(before, override, message):
    resolvers.register()
    with pytest.raises(BadInput) as refused:
        validate([*before, override], CONFIGS, "run")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_policy_k_must_fit_the_sizes():
    resolvers.register()
    with pytest.raises(
        BadInput, match=r"policy\.k is 2, expected one less than a group size: 0, 1, 3"
    ):
        validate(["policy=static_k", "policy.k=2"], CONFIGS, "run")


def test_a_depth_that_no_drafter_has_is_refused():
    resolvers.register()
    with pytest.raises(BadInput, match="the policy drafts 15 tokens, expected at most 7"):
        validate(
            ["policy=static_k", "policy.k=15", "sizes=[1,16]", "rows=16", "buckets=[16]"],
            CONFIGS,
            "run",
        )


def test_a_look_up_of_no_tokens_is_refused_before_anything_is_loaded():
    resolvers.register()
    with pytest.raises(BadInput, match=r"drafter.ngram is 0, expected an integer, at least 1"):
        validate(["drafter=prompt_lookup", "drafter.ngram=0"], CONFIGS, "run")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["-m", "sizes=1,2,4"],
            "sizes is 1,2,4: sizes must be a list, expected brackets: sizes=[1,2,4]",
        ),
        (["-m", "buckets=4,8"], "buckets is 4,8: buckets must be a list, expected brackets"),
        (
            ["sizes=1,2,4"],
            "Ambiguous value for argument 'sizes=1,2,4': several values need -m, and a list needs "
            "brackets: sizes=[1,2,4]",
        ),
        (["tag=a,b"], "Ambiguous value for argument 'tag=a,b'"),
        (["-m", "seed=interval(0,1)"], "seed=interval(0,1) is no list of values"),
        (["-m", "sizes=[1,2],[1,2,4"], "sizes=[1,2],[1,2,4"),
    ],
)
def test_H03_values_with_commas_that_are_refused(arguments, message):
    resolvers.register()
    with pytest.raises(BadInput) as refused:
        validate(arguments, CONFIGS, "run")
    assert message in str(refused.value)


def test_H03_values_with_commas_that_are_meant():
    resolvers.register()
    lists = validate(["-m", "sizes=[1,2],[1,2,4]", "policy=static_k"], CONFIGS, "run")
    assert [job for job, _ in lists.jobs] == [
        ("sizes=[1,2]", "policy=static_k"),
        ("sizes=[1,2,4]", "policy=static_k"),
    ]
    assert len({fingerprint for _, fingerprint in lists.jobs}) == 2
    assert validate(["tag='a,b'"], CONFIGS, "run").base.tag == "a,b"
    assert [
        job for job, _ in validate(["-m", "buckets=tight,[4,8]", "tag='a,b'"], CONFIGS, "run").jobs
    ] == [
        ("buckets=tight", "tag='a,b'"),
        ("buckets=[4,8]", "tag='a,b'"),
    ]


def test_an_experiments_own_axes_are_checked_too_and_can_be_replaced():
    resolvers.register()
    with pytest.raises(BadInput, match="slots is 2, expected at least 3"):
        validate(["-m", "experiment=grants", "slots=2"], CONFIGS, "run")
    narrowed = validate(
        ["-m", "experiment=quick", "policy=static_1", "launcher.jobs=1", "resume=new"],
        CONFIGS,
        "run",
    )
    assert [job for job, _ in narrowed.jobs] == [
        (f"workload={text}", "policy=static_1", "experiment=quick") for text in ("code", "prose")
    ]


def test_the_command_exits_2_with_one_line_and_no_traceback():
    ran = subprocess.run(
        [sys.executable, "-m", "experiments.run", "-m", "slots=0,1"], capture_output=True, text=True
    )
    assert ran.returncode == 2
    assert ran.stderr.splitlines() == ["error: slots is 0, expected an integer, 1 to 64"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("layout=slots", "plan is device, but layout.key is slots: expected rows or off"),
        ("share=tick", "plan is device, but share is tick"),
        ("grant=rotate", None),
        ("layout=rows", None),
        ("policy=static_k", None),
    ],
)
def test_a_device_plans_what_it_can_and_the_rest_is_refused(override, message):
    if message is None:
        validate(["plan=device", override], CONFIGS, "run")
        return
    with pytest.raises(BadInput, match=message):
        validate(["plan=device", override], CONFIGS, "run")
    with pytest.raises(BadInput, match=r"grant.parked is wait"):
        validate(["plan=device", "grant=rotate", "grant.parked=wait"], CONFIGS, "run")
