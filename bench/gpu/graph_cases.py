"""What can go wrong with captured graphs, each as a function of the device that lists what is
wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import triton_kernels.accept
import triton_kernels.argmax
import triton_kernels.pack
from bench.gpu.sum_model import SumDrafter, SumTarget
from experiments.assets import MODELS
from mtp.buckets import Buckets
from mtp.drafters import load_qwen_mtp
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.graphs.backends import FailingGraphs, graphs_for
from mtp.layouts import KEYS, Eager, Keyed, LayoutCache, LayoutKey
from mtp.layouts.cache import GraphBackend
from mtp.policies import RotateGrow
from mtp.request import Request
from mtp.targets import load_target

MODEL = MODELS / "tiny_qwen"
SLOTS, FEW = 4, 40
KERNELS = (
    triton_kernels.argmax.row_argmax_kernel,
    triton_kernels.pack.pack_window_kernel,
    triton_kernels.accept.accept_prefix_kernel,
)
Texts = dict[str, tuple[int, ...]]
Wrap = Callable[[GraphBackend], GraphBackend]


def engine_run(
    device: torch.device,
    key: LayoutKey | None,
    *,
    capacity: int = 32,
    tokens: int = FEW,
    wrap: Wrap = lambda backend: backend,
    clock: Callable[[], float] | None = None,
    buckets: Buckets | None = None,
    tiny: bool = False,
) -> tuple[Texts, LayoutCache | None, Engine]:
    """Six requests in four slots through the engine: their texts. key None: eager; tiny: the
    shipped model, else `SumTarget`."""
    cache, engine = engine_of(
        device,
        key,
        capacity=capacity,
        tokens=tokens,
        wrap=wrap,
        clock=clock,
        buckets=buckets,
        tiny=tiny,
    )
    # six prefills, and windows that commit at least one token each
    for _ in range(most := 8 * tokens + 100):
        if not engine.step():
            return {done.id: done.tokens for done in engine.finished}, cache, engine
    raise RuntimeError(f"no end after {most} steps: windows commit nothing")


def engine_of(
    device: torch.device,
    key: LayoutKey | None,
    *,
    capacity: int = 32,
    tokens: int = FEW,
    wrap: Wrap = lambda backend: backend,
    clock: Callable[[], float] | None = None,
    buckets: Buckets | None = None,
    tiny: bool = False,
) -> tuple[LayoutCache | None, Engine]:
    """The engine of `engine_run` before its first step, with its requests submitted."""
    buckets = buckets or Buckets((4, 8))
    target: Any = (
        load_target(MODEL, slots=SLOTS, context=512, device=device)
        if tiny
        else SumTarget(SLOTS, device)
    )
    drafter = load_qwen_mtp(MODEL, target, buckets=buckets) if tiny else SumDrafter(target)
    executor = ModelExecutor(
        target, drafter, slots=SLOTS, largest_group=4, depth=3, buckets=buckets, device=device
    )
    clock = clock or executor.now
    cache = (
        LayoutCache(capacity, wrap(graphs_for(device, executor.dry_run)), clock=clock)
        if key
        else None
    )
    layout = Keyed(key, cache) if key and cache is not None else Eager(clock)
    engine = Engine(executor, slots=SLOTS, policy=RotateGrow(), layout=layout)
    for number in range(6):
        prompt = tuple(range(10 + number, 20 + 3 * number))
        engine.submit(Request(str(number), prompt, tokens + 3 * number, ignore_stop=True))
    return cache, engine


def keys(device: torch.device) -> list[str]:
    """Every key at every capacity gives the eager run's tokens, and captures, replays and
    evicts."""
    wrong, (eager, _, _) = [], engine_run(device, None)
    for key in KEYS:
        for capacity in (1, 2, 32):
            texts, _, engine = engine_run(device, key, capacity=capacity)
            stats = engine.layout.stats()
            if texts != eager:
                wrong.append(f"key {key}, capacity {capacity}: tokens differ from the eager run's")
            if (
                stats.failures
                or not stats.captures
                or (capacity == 32 and not stats.hits)
                or (capacity == 1 and not stats.evictions)
            ):
                wrong.append(f"key {key}, capacity {capacity}: {stats}")
    return wrong


class Products:
    """A window of a product in each phase. spoil: called by every run of its commit, with the
    run's number from 1."""

    def __init__(
        self, x: Tensor, out: Tensor, seed: int, spoil: Callable[[int], object] = lambda run: None
    ) -> None:
        weights = torch.randn(
            2, x.shape[1], x.shape[1], generator=torch.Generator().manual_seed(seed)
        )
        (self.first, self.second), self.x, self.out, self.spoil, self.runs = (
            weights.to(x.device),
            x,
            out,
            spoil,
            0,
        )

    def verify(self) -> None:
        self.out.copy_(self.x @ self.first)

    def commit(self) -> None:
        self.runs += 1
        self.spoil(self.runs)
        self.out.copy_(self.out @ self.second)

    def expected(self) -> Tensor:
        return self.x @ self.first @ self.second


def products(device: torch.device) -> tuple[Tensor, Tensor, LayoutCache]:
    x, out = torch.randn(8, 128, device=device), torch.zeros(8, 128, device=device)
    return x, out, LayoutCache(2, graphs_for(device, contextlib.nullcontext))


def evict(device: torch.device) -> list[str]:
    """K01: A, B, then C evicts A; B replayed 100 times equals eager."""
    x, out, cache = products(device)
    works = {key: Products(x, out, seed) for seed, key in enumerate("ABC")}
    for key in "ABC":
        cache.run(key, works[key])
    wrong = 0
    for _ in range(100):
        x.normal_()
        cache.run("B", works["B"])
        wrong += not torch.equal(out, works["B"].expected())
    found = [f"{wrong} of 100 replays differ"] if wrong else []
    return found + ([] if "A" not in cache and cache.stats().hits == 100 else [f"{cache.stats()}"])


def memory(device: torch.device) -> list[str]:
    """K07: what 20 layouts through a cache of 2 hold is what 200 hold."""
    x, out, cache = products(device)
    held = []
    for n in range(200):
        cache.run(n, Products(x, out, 0))
        held.append(cache.stats().bytes)
    stats = cache.stats()
    return (
        []
        if max(held[20:]) <= max(held[:20]) and (len(cache), stats.evictions) == (2, 198)
        else [f"bytes {held[19]} to {max(held)}, {stats}"]
    )


def failing(call: str) -> Callable[[torch.device], list[str]]:
    """K03: the second phase of the first pair fails."""

    def case(device: torch.device) -> list[str]:
        eager, _, _ = engine_run(device, None)
        fault: Exception = MemoryError("full") if call == "memory" else RuntimeError("boom")
        plan = {("capture" if call == "memory" else call, 4 if call == "memory" else 2): fault}
        texts, _, engine = engine_run(
            device, "rows", wrap=lambda backend: FailingGraphs(backend, plan)
        )
        stats = engine.layout.stats()
        told = (stats.evictions, stats.failures) == (
            (1, 0) if call == "memory" else (0, 1)
        ) and stats.captures > 1
        return ([] if texts == eager else ["tokens differ from the eager run's"]) + (
            [] if told else [f"{stats}"]
        )

    return case


def spoilt(spoil: Callable[[Products], object]) -> Callable[[torch.device], list[str]]:
    """A capture (the commit's second run, after its warm-up) that really fails: the window is
    right, and others capture afterwards."""

    def case(device: torch.device) -> list[str]:
        x, out, cache = products(device)
        works = {key: Products(x, out, seed) for seed, key in enumerate("AXB")}
        works["X"].spoil = lambda run: spoil(works["X"]) if run == 2 else None
        wrong = []
        for key in "AXBAXB":
            x.normal_()
            cache.run(key, works[key])
            if not torch.equal(out, works[key].expected()):
                wrong.append(f"window {key} differs from eager")
        stats = cache.stats()
        # full memory may be cured by an eviction: no failure then
        if stats.failures > 1 or "X" not in cache or works["X"].runs < 3:
            wrong.append(f"{stats}")
        texts, _, engine = engine_run(device, "slots")
        if texts != engine_run(device, None)[0] or engine.layout.stats().failures:
            wrong.append(f"an engine after it: {engine.layout.stats()}")
        return wrong

    return case


def compilations(device: torch.device) -> list[str]:
    """K09: row counts first seen in captures compile nothing there."""

    class Counting:
        def __init__(self, inner: GraphBackend) -> None:
            self.warm, self.pool_bytes, self._capture = inner.warm, inner.pool_bytes, inner.capture

        def capture(self, work: Callable[[], None]) -> Any:
            before = variants()
            graph = self._capture(work)
            compiled.append(variants() - before)
            return graph

    compiled: list[int] = []
    texts = engine_run(device, "rows", wrap=Counting, buckets=Buckets(()))[0]
    wrong = (
        [] if not sum(compiled) else [f"{sum(compiled)} compilations in {len(compiled)} captures"]
    )
    if device.type == "cuda" and not variants():
        wrong.append("no compiled variant was found: the count means nothing")
    return wrong if len(compiled) >= 6 and texts else [*wrong, f"only {len(compiled)} captures"]


def variants() -> int:
    """Compiled variants of the window's kernels, on all devices."""
    return sum(
        len(kept[0]) for kernel in KERNELS for kept in getattr(kernel, "device_caches", {}).values()
    )


def tiny(device: torch.device) -> list[str]:
    """The shipped model on its window kernels: captured, or if that fails eager, with the same
    tokens either way."""
    texts, _, engine = engine_run(device, "rows", tiny=True)
    stats = engine.layout.stats()
    wrong = (
        []
        if texts == engine_run(device, None, tiny=True)[0]
        else ["tokens differ from the eager run's"]
    )
    return (
        wrong
        if stats.captures + stats.failures
        else [*wrong, "nothing was captured, nor failed to be"]
    )


CASES: dict[str, Callable[[torch.device], list[str]]] = {
    "keys": keys,
    "evict": evict,
    "memory": memory,
    **{f"failing {call}": failing(call) for call in ("warm", "capture", "instantiate", "memory")},
    "host read": spoilt(lambda work: work.out.sum().item()),
    "out of memory": spoilt(
        lambda work: torch.empty(2**50, dtype=torch.uint8, device=work.out.device)
    ),
    "compilations": compilations,
    "tiny model": tiny,
}
