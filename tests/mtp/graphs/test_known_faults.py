"""Inputs that broke other captured-graph caches. One id, one test; K03 and K07 are in
tests/mtp/layouts/test_cache.py as well."""

from __future__ import annotations

import contextlib

import pytest
import torch

from mtp.buckets import Buckets
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.graphs.backends import CpuGraphs
from mtp.graphs.capture import capturing
from mtp.layouts import Eager, Keyed, LayoutCache
from mtp.policies import StaticK
from mtp.request import Request
from mtp.targets import load_target
from mtp.windows import Group
from tests.support.checkpoints import write_qwen3_5
from tests.support.replay_drafter import ReplayDrafter

CPU = torch.device("cpu")
CONTEXT, PROMPT = 1088, 1011  # attention goes over from 16 to 17 blocks of keys at position 1024


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_qwen3_5(
        tmp_path_factory.mktemp("qwen"),
        seed=3,
        num_hidden_layers=2,
        layer_types=["linear_attention", "full_attention"],
    )


@pytest.fixture(scope="module")
def target(folder):
    return load_target(folder, slots=1, context=CONTEXT, dtype="fp32", device=CPU)


def nothing() -> None:
    pass


class Matmuls:
    """Windows of one size with a product each, and a workspace that the first to come makes for
    all."""

    shared: torch.Tensor | None

    def __init__(self, owner: Matmuls | None, x: torch.Tensor, out: torch.Tensor) -> None:
        self.owner, self.shared = owner or self, None
        self.weight, self.x, self.out = torch.randn(x.shape[1], x.shape[1]), x, out

    def verify(self) -> None:
        if self.owner.shared is None:
            self.owner.shared = torch.ones(self.x.shape[1])
        self.out.copy_(self.x @ self.weight * self.owner.shared)

    def commit(self) -> None:
        self.out += 1


def test_K01_evicting_one_graph_leaves_the_others_right():
    x, out = torch.randn(8, 16), torch.zeros(8, 16)
    a = Matmuls(None, x, out)
    works = {"A": a, "B": Matmuls(a, x, out), "C": Matmuls(a, x, out)}
    cache = LayoutCache(2, CpuGraphs(contextlib.nullcontext))
    for key in "ABC":
        cache.run(key, works[key])
    assert "A" not in cache
    for _ in range(100):
        x.normal_()
        cache.run("B", works["B"])
        replayed = out.clone()
        works["B"].verify()
        works["B"].commit()
        assert torch.equal(replayed, out)
    assert cache.stats().hits == 100


def engine_of(target, layout, drafter=None):
    executor = ModelExecutor(
        target, drafter, slots=1, largest_group=4, depth=3, buckets=Buckets((4, 8)), device=CPU
    )
    engine = Engine(
        executor,
        slots=1,
        policy=StaticK(3 if drafter else 0),
        layout=layout(executor),
        prefill_chunk=CONTEXT,
    )
    engine.submit(Request("r", tuple(n % 300 for n in range(PROMPT)), 40, ignore_stop=True))
    return engine


@pytest.fixture(scope="module")
def text(target):
    (done,) = engine_of(target, lambda executor: None).run()
    return done.prompt + done.tokens


def graphs(key, capture_on=1):
    return lambda executor: Keyed(
        key, LayoutCache(4, CpuGraphs(executor.dry_run), capture_on=capture_on)
    )


def windows(engine):
    """After each window: anchor's position, rows, and all that it left for the host and the
    drafter."""
    b = engine.executor.buffers
    while engine.step():
        if engine.steps[-1].kind == "window":
            yield (
                int(b.positions[0]),
                engine.steps[-1].rows,
                [table.clone() for table in (b.results, b._hidden, b._picks)],
            )


def steps_of(target, text, layout):
    return list(windows(engine_of(target, layout, ReplayDrafter([text], slots=1, context=CONTEXT))))


@pytest.mark.parametrize("key", ["slots", "rows"])
def test_K05_one_graph_of_layout_0_4_serves_every_length_across_a_switch(target, text, key):
    eager = steps_of(target, text, lambda executor: Eager(executor.now))
    engine = engine_of(target, graphs(key), ReplayDrafter([text], slots=1, context=CONTEXT))
    replayed = list(windows(engine))
    positions = [position for position, rows, _ in replayed if rows == 4]
    assert min(positions) < 1020 < 1023 < 1030 < max(positions)
    assert len(positions) > 8
    # 4, and what the end leaves room for
    assert engine.layout.stats().captures == len({rows for _, rows, _ in replayed})
    for (position, rows, left), (position_, rows_, left_) in zip(replayed, eager, strict=True):
        assert (position, rows) == (position_, rows_)
        assert all(torch.equal(a, b) for a, b in zip(left, left_, strict=True)), position


def test_K05_a_switch_that_the_host_takes_must_be_in_the_key():
    """What a key misses is replayed as it was: the recorder does what a real graph does."""
    n, out = torch.zeros(1), torch.zeros(1)

    class Switching:
        commit = staticmethod(nothing)

        def __init__(self, length):
            self.length = length

        def verify(self):
            out.copy_(n + 1 if self.length < 1024 else n * 2)

    def run(key_of):
        cache, seen = LayoutCache(8, CpuGraphs(contextlib.nullcontext)), []
        for length in range(1020, 1031):
            n.fill_(length)
            cache.run(key_of(length), Switching(length))
            seen.append(int(out))
        return seen

    right = [length + 1 if length < 1024 else length * 2 for length in range(1020, 1031)]
    assert run(lambda length: ("layout", length < 1024)) == right
    assert run(lambda length: "layout") != right


def reallocating(engine, at, *, graph_epoch):
    """At the n-th window the target's keys and values move; epoch: whether the works say so."""
    make, made = engine.executor.window, []

    def window(groups, depth):
        made.append(None)
        if len(made) == at:
            for layer in engine.executor.target.caches:
                layer.keys, layer.values = layer.keys.clone(), layer.values.clone()
        work = make(groups, depth)
        work.graph_epoch += int(graph_epoch and len(made) >= at)
        return work

    engine.executor.window = window
    return engine


@pytest.mark.parametrize("graph_epoch", [True, False], ids=["reported", "unreported"])
def test_K05_a_reallocated_buffer_empties_the_cache(folder, text, graph_epoch):
    target = load_target(folder, slots=1, context=CONTEXT, dtype="fp32", device=CPU)
    eager = steps_of(target, text, lambda executor: Eager(executor.now))
    engine = reallocating(
        engine_of(target, graphs("rows"), ReplayDrafter([text], slots=1, context=CONTEXT)),
        at=3,
        graph_epoch=graph_epoch,
    )
    same = [torch.equal(a[2][1], b[2][1]) for a, b in zip(windows(engine), eager, strict=False)]
    layouts = len({rows for _, rows, _ in eager})
    assert engine.layout.stats().captures == layouts + int(graph_epoch)  # 4 rows once more
    # else the later captures read new buffers that the older graphs did not write
    assert all(same) == graph_epoch


def test_K05_whatever_a_graph_bakes_in_is_in_its_key(folder):
    def graph_constants(groups=((0, 4),), depth=3, dtype="fp32", buckets=(4, 8), min_new=0):
        target = load_target(folder, slots=2, context=64, dtype=dtype, device=CPU)
        executor = ModelExecutor(
            target, None, slots=2, largest_group=4, depth=3, buckets=Buckets(buckets), device=CPU
        )
        executor.admit(0, Request("r", (1, 2), 9, min_new_tokens=min_new))
        return executor.window([Group(*group) for group in groups], depth).graph_constants

    assert graph_constants() == graph_constants(groups=((1, 2),)) == graph_constants(min_new=0)
    changes = [
        {"depth": 1},
        {"dtype": "bf16"},
        {"buckets": (8,)},
        {"min_new": 3},
        {"groups": ((0, 4), (1, 1))},
    ]
    assert all(graph_constants(**change) != graph_constants() for change in changes)


def test_K09_what_is_compiled_at_first_sight_is_compiled_before_the_capture():
    """Each phase is warmed up with the very work that is captured, before its capture."""
    compiled, compiling = set(), []

    class Recording(CpuGraphs):
        def capture(self, work):
            compiling.append("capture")
            try:
                return super().capture(work)
            finally:
                compiling.append("end")

    class Compiling:
        def __init__(self, rows):
            self.rows = rows

        def phase(self, name):
            if (name, self.rows) not in compiled:
                assert capturing()
                compiled.add((name, self.rows))
                compiling.append((name, self.rows))

        def verify(self):
            self.phase("verify")

        def commit(self):
            self.phase("commit")

    cache = LayoutCache(32, Recording(contextlib.nullcontext))
    for rows in (*range(1, 9), 16):
        cache.run(rows, Compiling(rows))
    assert len(compiled) == 18
    starts = [place for place, what in enumerate(compiling) if what == "capture"]
    assert [compiling[place + 1] for place in starts] == ["end"] * 18
