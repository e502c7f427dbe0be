"""Windows as they occur: the engine on recorded tapes, stopped once all its slots decode."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache

import torch

from bench.inputs.windows import INT, WindowData
from experiments.assets import TAPES
from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.executor import Limits
from mtp.policies import Policy, RotateGrow
from mtp.request import Request
from mtp.tape import Tape, read_tapes
from mtp.windows import Group, SlotView, rotate_grow
from triton_kernels import Packed, SlotLimits, SlotState, pack_window_torch

TAPE = TAPES / "tiny_qwen_high-code" / "tape.parquet"
LIMITS = Limits(vocab=2048, context=1024, stop_ids=frozenset())
DEPTH = 3
NEVER = 10**9  # a limit that no benchmark reaches


@cache
def tapes() -> tuple[Tape, ...]:
    return tuple(read_tapes(TAPE).values())


def requests(count: int, *, times: int = 1) -> dict[Request, Tape]:
    """Recorded texts, each told so many times, under ids of their own; more requests than
    recordings begin again."""
    known = [
        Tape(tape.tokens * times, tape.matches * times, tape.confidence * times) for tape in tapes()
    ]
    chosen = {f"r{n}": known[n % len(known)] for n in range(count)}
    return {
        Request(id, (1, 2, 3), len(tape.tokens), ignore_stop=True): tape
        for id, tape in chosen.items()
    }


def decoding(policy: Policy, slots: int, rows: int) -> Engine:
    """An engine whose slots are all past their prompts, some windows later."""
    # none ends while others are still in their prompts
    queue = requests(slots, times=1 + slots // 8)
    executor = TapeExecutor({request.id: tape for request, tape in queue.items()}, limits=LIMITS)
    engine = Engine(executor, slots=slots, rows=rows, policy=policy)
    for request in queue:
        engine.submit(request)
    while len(engine.streams) < slots or any(
        stream.prefilling for stream in engine.streams.values()
    ):
        if not engine.step():
            raise RuntimeError(
                f"requests ended before all {slots} slots decoded: their texts are too short"
            )
    for _ in range(8):
        engine.step()
    return engine


def views(engine: Engine) -> list[SlotView]:
    """What a policy sees of the slots now."""
    return [engine.streams[slot].view(None) for slot in sorted(engine.streams)]


@cache
def layout(
    slots: int, rows: int
) -> tuple[tuple[SlotView, ...], tuple[Group, ...], tuple[int, ...]]:
    """The slots, their groups in the next window of `rotate_grow`, and how many drafts each had
    accepted last."""
    engine = decoding(RotateGrow(), slots, rows)
    seen = views(engine)
    last = {round_.slot: round_.accepted for round_ in engine.rounds}
    return (
        tuple(seen),
        rotate_grow(seen, rows=rows).groups,
        tuple(last.get(view.slot, 0) for view in seen),
    )


@lru_cache(maxsize=2)
def recorded_window(slots: int, rows: int, vocab: int, dtype: torch.dtype) -> WindowData:
    """That window as tensors on the CPU: never ends, always holds three drafts, agrees with them as
    often as it was recorded.

    Whoever changes it in place takes a copy (`fresh`).
    """
    seen, groups, accepted = layout(slots, rows)
    noise = torch.Generator().manual_seed(0)
    size = max(view.slot for view in seen) + 1
    ints = torch.zeros(size, dtype=INT)
    state = SlotState(
        anchors=torch.randint(0, LIMITS.vocab, (size,), generator=noise, dtype=INT),
        positions=ints.clone(),
        produced=ints + 1,
        live=ints.clone(),
        held=ints.clone(),
        drafts=torch.randint(0, LIMITS.vocab, (size, DEPTH), generator=noise, dtype=INT),
        start=torch.zeros(1, dtype=INT),
    )
    for view in seen:
        state.positions[view.slot], state.held[view.slot], state.live[view.slot] = (
            view.position,
            min(view.held, DEPTH),
            1,
        )
    stops = torch.full((size, 1), LIMITS.vocab, dtype=INT)  # one that no pick is
    limits = SlotLimits(ints + NEVER, ints + NEVER, ints.clone(), ints + DEPTH, stops, ints + 1)
    group_rows = ints.clone()
    for group in groups:
        group_rows[group.slot] = group.rows
    window = pack_window_torch(
        state.anchors, state.drafts, state.positions, group_rows, bucket=rows
    )
    logits = torch.randn(rows, vocab, generator=noise).to(dtype)
    chosen = torch.randint(0, LIMITS.vocab, (rows,), generator=noise)
    kept = dict(zip((view.slot for view in seen), accepted, strict=True))
    for row in range(int(window.starts[-1]) - 1):
        place, accepted_there = int(window.group_index[row + 1]), kept[int(window.slots[row + 1])]
        # the first wrong draft is followed by right ones, which must not count
        if place and place != accepted_there + 1:
            chosen[row] = window.ids[row + 1]
    logits[torch.arange(rows), chosen] = 9.0
    proposals = torch.randint(0, LIMITS.vocab, (rows, DEPTH), generator=noise, dtype=INT)
    return WindowData(state, limits, window, logits, proposals, vocab, rows, "rotate_grow", 0)


def fresh(data: WindowData) -> WindowData:
    """The same, with tables of its own that a window may change."""
    state, window = data.copy()
    return replace(data, state=SlotState(*state), window=Packed(*window))
