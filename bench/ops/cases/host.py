"""What the host does for a window: plan, staging, cache look-up, and the engine around work that
costs nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any

import torch

from bench.inputs.recorded import LIMITS, decoding, layout, requests, views
from bench.inputs.scripted import NoGraphs, NoWork, replays
from bench.ops.registry import Shape, Work, implementation
from mtp.engine import Engine
from mtp.execution.buffers import Buffers
from mtp.layouts import KEYS, Eager, Keyed, LayoutCache
from mtp.policies import Adaptive, Policy, RotateGrow, StaticK
from mtp.windows import Group, SlotView
from triton_kernels.plan import plan_groups_torch

SLOTS_ROWS = ((1, 8), (2, 8), (3, 8), (4, 8), (8, 8), (16, 16), (64, 64))
POLICIES: dict[str, Callable[[], Policy]] = {
    "plain": lambda: StaticK(0),
    "static_k_3": lambda: StaticK(3),
    "rotate_grow": RotateGrow,
    "adaptive": Adaptive,
}


def _shapes(wide: bool) -> Iterator[Shape]:
    for slots, rows in SLOTS_ROWS:
        yield {"slots": slots, "rows": rows}


# ---- plan


def lawful(groups: Sequence[Group], slots: Sequence[SlotView], rows: int) -> str:
    """What every plan must be, whatever the policy: empty if it is."""
    of = {view.slot: view for view in slots}
    names = [group.slot for group in groups]
    if names != sorted(set(names)) or not set(names) <= set(of):
        return f"slots {names}"
    if not 1 <= sum(group.rows for group in groups) <= rows:
        return f"{sum(group.rows for group in groups)} rows"
    wrong = [
        group
        for group in groups
        if not 1 <= group.rows <= min(of[group.slot].limit, of[group.slot].held + 1)
    ]
    return str(wrong[0]) if wrong else ""


def _plan(name: str) -> Callable[[Shape, torch.device], Work]:
    """rotate_grow, static_k: the kernel's literal walk is the oracle. adaptive: another engine
    with the same past decides the same, and the plan is lawful; `tests/policies` proves it best."""

    def make(shape: Shape, device: torch.device) -> Work:
        slots, rows = shape["slots"], shape["rows"]
        engine, other = (decoding(POLICIES[name](), slots, rows) for _ in range(2))
        seen, start = views(engine), slots // 2
        if name == "adaptive":
            groups = other.policy.decide(views(other), rows=rows, start=start).plan.groups
        else:
            able, usable = [False] * slots, [0] * slots
            for view in seen:
                able[view.slot], usable[view.slot] = view.limit >= 1, view.usable(3)
            walk = "rotate_grow" if name == "rotate_grow" else "static_k"
            lengths, _ = plan_groups_torch(
                able, usable, start, rows, walk, engine.policy.depth, (1, 2, 4)
            )
            groups = tuple(Group(slot, length) for slot, length in enumerate(lengths) if length)

        def read(decision: Any) -> Any:
            planned = decision.plan.groups
            return [[(group.slot, group.rows) for group in planned], lawful(planned, seen, rows)]

        expected = [[(group.slot, group.rows) for group in groups], ""]
        return Work(lambda: engine.policy.decide(seen, rows=rows, start=start), expected, read=read)

    return make


# ---- staging


@implementation("stage", "buffers", shapes=_shapes, mode="host")
def _(shape: Shape, device: torch.device) -> Work:
    """Group rows on their way to the device."""
    slots = shape["slots"]
    rows_of = {group.slot: group.rows for group in layout(slots, shape["rows"])[1]}
    buffers = Buffers(
        slots,
        depth=3,
        largest_group=4,
        rows=shape["rows"],
        hidden=8,
        dtype=torch.float32,
        device=device,
    )
    expected = [rows_of.get(slot, 0) for slot in range(slots)]
    return Work(
        lambda: buffers.stage(rows_of), expected, read=lambda _: buffers.group_rows.tolist()
    )


# ---- cache look-up: around graphs and windows that do nothing


def _look_up(key: Any) -> Callable[[Shape, torch.device], Work]:
    def make(shape: Shape, device: torch.device) -> Work:
        groups, work = layout(shape["slots"], shape["rows"])[1], NoWork()
        keyed = Keyed(key, LayoutCache(32, NoGraphs()))
        keyed.run(groups, work)
        return Work(lambda: keyed.run(groups, work), "replayed", read=lambda phases: phases.path)

    return make


@implementation("look_up", "off", shapes=_shapes, mode="host")
def _(shape: Shape, device: torch.device) -> Work:
    groups, work = layout(shape["slots"], shape["rows"])[1], NoWork()
    eager = Eager(time.perf_counter)
    return Work(lambda: eager.run(groups, work), "eager", read=lambda phases: phases.path)


@implementation("look_up", "slots_miss", shapes=_shapes, mode="host")
def _(shape: Shape, device: torch.device) -> Work:
    """Every window evicts the pair of the one before and captures."""
    groups, work = layout(shape["slots"], shape["rows"])[1], NoWork()
    keyed = Keyed("slots", LayoutCache(1, NoGraphs()))
    turns = cycle((groups, (Group(groups[0].slot, groups[0].rows % 4 + 1), *groups[1:])))
    return Work(lambda: keyed.run(next(turns), work), "capturing", read=lambda phases: phases.path)


# ---- the engine


def _engine(name: str) -> Callable[[Shape, torch.device], Work]:
    """Whole runs on recorded outcomes, per window; the tapes' own texts are the oracle."""

    def make(shape: Shape, device: torch.device) -> Work:
        queue = requests(shape["slots"])
        engines = replays(queue, POLICIES[name], limits=LIMITS, **shape)
        first = next(engines)
        first.run()

        def call() -> Engine:
            engine = next(engines)
            engine.run()
            return engine

        expected = {request.id: tape.tokens for request, tape in queue.items()}
        return Work(
            call,
            expected,
            per=first.windows,
            read=lambda engine: {done.id: done.tokens for done in engine.finished},
        )

    return make


for _name in POLICIES:
    if _name != "plain":  # its plan is static_k's
        implementation("plan", _name, shapes=_shapes, mode="host")(_plan(_name))
for _key in KEYS:
    implementation("look_up", _key, shapes=_shapes, mode="host")(_look_up(_key))
for _name in POLICIES:
    implementation("engine", _name, shapes=_shapes, mode="host")(_engine(_name))
