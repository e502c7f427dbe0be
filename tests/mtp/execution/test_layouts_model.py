"""Graph pairs on the real executor: replays, evictions and failures never change a token."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mtp.buckets import Buckets
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.graphs.backends import CpuGraphs, FailingGraphs
from mtp.layouts import KEYS, Keyed, LayoutCache
from mtp.policies import RotateGrow, StaticK
from mtp.request import Request
from mtp.targets import load_target
from tests.support.checkpoints import write_qwen3_5
from tests.support.replay_drafter import ReplayDrafter

CPU = torch.device("cpu")
CONTEXT = 160


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return load_target(
        write_qwen3_5(tmp_path_factory.mktemp("qwen"), seed=4),
        slots=4,
        context=CONTEXT,
        dtype="fp32",
        device=CPU,
    )


@pytest.fixture(scope="module")
def reference(target):
    return run(target, None, StaticK(0), None)[0]


def requests(new=40):
    return [
        Request(
            f"r{n}",
            tuple(range(5 + n, 9 + 4 * n)),
            new + 3 * n,
            ignore_stop=n != 2,
            min_new_tokens=9 * (n == 2),
        )
        for n in range(5)
    ]


def run(target, texts, policy, layout, *, plan=None, **options):
    drafter = ReplayDrafter(texts, slots=4, context=CONTEXT) if texts else None
    executor = ModelExecutor(
        target,
        drafter,
        slots=4,
        largest_group=4,
        depth=policy.depth,
        buckets=Buckets((4, 8)),
        device=CPU,
    )
    cache = None
    if layout:
        backend = CpuGraphs(executor.dry_run)
        cache = LayoutCache(
            backend=FailingGraphs(backend, plan) if plan else backend,
            **({"capacity": 32} | options),
        )
    engine = Engine(
        executor, slots=4, policy=policy, layout=Keyed(layout, cache) if layout else None
    )
    for request in requests():
        engine.submit(request)
    return {done.id: done for done in engine.run()}, cache, engine


@pytest.fixture(scope="module")
def texts(reference):
    return [done.prompt + done.tokens for done in reference.values()]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("capacity", [1, 2, 32])
def test_every_key_and_capacity_gives_the_tokens_of_plain_decoding(
    target, reference, texts, key, capacity
):
    finished, cache, engine = run(target, texts, RotateGrow(), key, capacity=capacity, capture_on=1)
    for name, done in finished.items():
        assert (done.tokens, done.finish) == (reference[name].tokens, reference[name].finish)
    stats = cache.stats()
    assert stats.hits + stats.misses == engine.windows
    assert stats.captures >= 1
    assert stats.failures == 0
    assert len(cache) <= capacity
    assert sum(round_.accepted for round_ in engine.rounds) > 30
    assert sum(step.phases.capture for step in engine.steps) == pytest.approx(stats.capture_s)


def test_graphs_serve_every_outcome_of_a_layout(target, texts):
    """One slot: few layouts, many kept counts; a layout is captured once."""
    _, cache, engine = run(target, texts, StaticK(3), "rows")
    assert len({round_.committed for round_ in engine.rounds}) > 2
    stats = cache.stats()
    assert stats.captures == stats.misses == len(cache)
    assert stats.hits > 2 * stats.captures


faults = st.dictionaries(
    st.tuples(st.sampled_from(["warm", "capture", "instantiate"]), st.integers(1, 30)),
    st.sampled_from([RuntimeError("boom"), MemoryError("full")]),
    max_size=12,
)


@settings(max_examples=12, deadline=None)
@given(faults, st.sampled_from(KEYS), st.integers(1, 4), st.integers(1, 3))
def test_failed_captures_never_change_a_token(
    target, reference, texts, plan, key, capacity, capture_on
):
    finished, cache, _ = run(
        target, texts, RotateGrow(), key, plan=plan, capacity=capacity, capture_on=capture_on
    )
    for name, done in finished.items():
        assert (done.tokens, done.finish) == (reference[name].tokens, reference[name].finish)
    assert len(cache) <= capacity


@pytest.mark.parametrize("call", ["warm", "capture", "instantiate"])
def test_K03_a_failed_half_leaves_no_memory_and_one_line_on_both_outputs(
    target, reference, texts, call, capfd
):
    plan = {(call, 2): RuntimeError("boom")}  # the second half of the first pair
    finished, cache, _ = run(target, texts, RotateGrow(), "rows", plan=plan)
    assert {name: done.tokens for name, done in finished.items()} == {
        name: done.tokens for name, done in reference.items()
    }
    assert cache.stats().failures == 1
    out, err = capfd.readouterr()
    assert out.count("ERR capture of layout") == err.count("ERR capture of layout") == 1


@pytest.mark.parametrize("layout", [None, "slots", "rows"])
def test_rows_left_from_a_bigger_window_never_touch_a_slot(target, texts, reference, layout):
    """Poisoned window buffers change nothing, eager or replayed: only the counts say what is
    there."""
    drafter = ReplayDrafter(texts, slots=4, context=CONTEXT)
    executor = ModelExecutor(
        target, drafter, slots=4, largest_group=4, depth=3, buckets=Buckets((4, 8)), device=CPU
    )
    keyed = Keyed(layout, LayoutCache(4, CpuGraphs(executor.dry_run))) if layout else None
    engine = Engine(executor, slots=4, policy=RotateGrow(), layout=keyed)
    for request in requests():
        engine.submit(request)
    poison = executor.buffers
    while engine.step():
        for table in (*poison._window[:-1], poison._picks):
            table.fill_(3)
        poison._hidden.fill_(float("nan"))
        poison.results.fill_(-9)
    assert {done.id: done.tokens for done in engine.finished} == {
        name: done.tokens for name, done in reference.items()
    }
