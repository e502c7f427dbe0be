"""Traces of runs: their ranges, and which windows they hold."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest
import torch
from omegaconf import OmegaConf

from experiments.config.checks import BadInput
from experiments.runs.trace import FILE, MOST_WINDOWS, ProfileSettings, trace_windows
from mtp import profiling as ranges
from mtp.buckets import Buckets
from mtp.drafters.prompt_lookup import PromptLookup
from mtp.engine import Engine
from mtp.execution.device_planned import DevicePlanningModel
from mtp.execution.model import ModelExecutor
from mtp.graphs.backends import CpuGraphs
from mtp.layouts import Keyed, LayoutCache
from mtp.policies import RotateGrow
from mtp.request import Request
from mtp.targets import load_target
from tests.support.checkpoints import write_qwen3_5
from tests.support.tapes import engine_of, random_tape

CPU = torch.device("cpu")
OWN = {"pack", "verify", "picks", "accept", "commit", "draft", "host", "stage", "read"}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return load_target(
        write_qwen3_5(tmp_path_factory.mktemp("qwen"), seed=4),
        slots=2,
        context=64,
        dtype="fp32",
        device=CPU,
    )


def engine(target, executor=ModelExecutor, layout=None, **options):
    drafter = PromptLookup(slots=2, context=64, ngram=3, device=CPU)
    made = executor(
        target,
        drafter,
        slots=2,
        largest_group=4,
        depth=3,
        buckets=Buckets((8,)),
        device=CPU,
        **options,
    )
    keyed = (
        Keyed("rows", LayoutCache(8, CpuGraphs(made.dry_run), capture_on=layout))
        if layout
        else None
    )
    engine = Engine(made, slots=2, policy=RotateGrow(), layout=keyed)
    for n in range(2):
        engine.submit(Request(f"r{n}", (5, 6, 7, 5, 6), 24, ignore_stop=True))
    return engine


def traced(engine, folder, windows, skip):
    """Our ranges as {name: [(begin, end)]}, in order; and how many windows it said there were."""
    said = trace_windows(engine, ProfileSettings(windows, skip), folder / FILE)
    trace = json.loads(gzip.decompress((folder / FILE).read_bytes()))
    for event in trace["traceEvents"]:
        assert {"ph", "name", "ts", "pid", "tid"} <= event.keys()
        assert event["ph"] != "X" or event["dur"] >= 0
    found: dict[str, list[tuple[float, float]]] = {}
    for event in sorted(
        (event for event in trace["traceEvents"] if event.get("cat") == "user_annotation"),
        key=lambda event: event["ts"],
    ):
        found.setdefault(event["name"], []).append((event["ts"], event["ts"] + event["dur"]))
    return found, said


def within(found, parent):
    """Counts of the ranges that lie in this one; none crosses its borders."""
    ((begin, end),) = found[parent]
    inside: Counter[str] = Counter()
    for name, times in found.items():
        for low, high in times:
            assert (
                high <= begin
                or low >= end
                or (begin <= low and high <= end)
                or (low <= begin and end <= high)
            )
            inside[name] += name != parent and begin <= low and high <= end
    return +inside


def test_windows_and_the_first_prefill_have_their_ranges(target, tmp_path):
    made = engine(target)
    found, said = traced(made, tmp_path, windows=3, skip=2)
    assert said == 3
    windows = [name for name in found if name.startswith("window ")]
    assert windows == ["window 2", "window 3", "window 4"]
    for window in windows:
        assert within(found, window) == dict.fromkeys(OWN, 1) | {"host": 2}  # plan and bookings
    assert within(found, "prefill").keys() == {"pack", "picks", "accept", "draft", "read"}
    order = [
        min(low for low, _ in found[name] if low > found["window 3"][0][0])
        for name in ("pack", "verify", "picks", "accept", "commit")
    ]
    assert order == sorted(order)
    plain = engine(target)
    assert [done.tokens for done in made.run()] == [done.tokens for done in plain.run()]


def test_what_is_replayed_is_one_range_a_graph(target, tmp_path):
    found, _ = traced(engine(target, layout=2), tmp_path, windows=10, skip=0)
    kinds = [within(found, name) for name in found if name.startswith("window ")]
    assert len(kinds) == 10
    replayed = Counter({"host": 2, "stage": 1, "verify graph": 1, "commit graph": 1, "read": 1})
    eager = Counter(dict.fromkeys(OWN, 1) | {"host": 2})
    assert kinds[0] == eager  # the first sight of its layout
    assert replayed + Counter(["capture"]) in kinds
    assert kinds[-1] == replayed
    assert all(kind in (eager, replayed, replayed + Counter(["capture"])) for kind in kinds)


def test_the_device_plans(target, tmp_path):
    found, said = traced(
        engine(target, DevicePlanningModel, policy=RotateGrow()), tmp_path, windows=5, skip=1
    )
    windows = [f"window {n}" for n in range(1, 6)]
    assert [name for name in found if name.startswith("window ")] == windows
    assert said == 5
    # a window is launched, then the one before it is read and booked
    assert within(found, "window 4") == dict.fromkeys(
        ("stage", "verify", "accept", "commit", "draft", "pack", "read", "host"), 1
    )


def test_a_run_that_ends_early_and_one_on_tapes(tmp_path):
    requests = {Request(f"r{n}", (1, 2), 6, ignore_stop=True): random_tape(n) for n in range(2)}
    made = engine_of(requests, RotateGrow(), slots=2)
    found, said = traced(made, tmp_path, windows=50, skip=1)
    assert not made.streams
    assert said == made.windows - 1 == sum(name.startswith("window ") for name in found)
    assert within(found, "window 1") == {"host": 2, "verify": 1, "commit": 1}
    assert len(found["prefill"]) >= 1


def test_nothing_is_left_behind_once_nobody_listens():
    for method, _ in ranges._marked:
        owner, attribute = ranges._place(method)
        before = vars(owner)[attribute]
        with ranges.profiling_ranges(lambda name: pytest.fail(name)):
            assert vars(owner)[attribute] is not before
        assert vars(owner)[attribute] is before


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"windows": -1}, f"profile.windows is -1, expected an integer, 0 to {MOST_WINDOWS}"),
        ({"windows": True}, f"profile.windows is true, expected an integer, 0 to {MOST_WINDOWS}"),
        ({"windows": 2, "skip": 1.5}, "profile.skip is 1.5, expected an integer, at least 0"),
        ({"window": 2}, "profile.window is no key of profile, expected skip or windows"),
        (3, "profile is 3, expected profile.windows=N, and profile.skip=M if need be"),
    ],
)
def test_refusals(node, message):
    with pytest.raises(BadInput) as refused:
        ProfileSettings.of(OmegaConf.create(node) if isinstance(node, dict) else node)
    assert str(refused.value) == message
    assert (
        ProfileSettings.of(None)
        == ProfileSettings.of(OmegaConf.create({}))
        == ProfileSettings(0, 0)
    )
