"""The window's kernels in literal Python, from the pure rules."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from bench.inputs.windows import WindowData
from mtp.commit import commit_group
from mtp.windows import SlotView, WindowPlan, rotate_grow, static_k

FINISH = (None, "stop", "length", "error")


def pick(row: Sequence[float], vocab: int, banned: Collection[int] = ()) -> tuple[int, bool]:
    """(id, fault): the first of the largest."""
    best = None
    for token in range(vocab):
        if math.isnan(row[token]):
            return 0, True
        if (
            token not in banned
            and row[token] > -math.inf
            and (best is None or row[token] > row[best])
        ):
            best = token
    return (0, True) if best is None else (best, False)


def pack(
    anchors: Sequence[int],
    drafts: Sequence[Sequence[int]],
    positions: Sequence[int],
    groups: Sequence[int],
    bucket: int,
) -> list[list[int]]:
    """ids, positions, slots, group_index, starts."""
    rows = [
        (([anchors[s], *drafts[s]])[i], positions[s] + i, s, i)
        for s in range(len(groups))
        for i in range(groups[s])
    ]
    rows += [(0, 0, 0, 0)] * (bucket - len(rows))
    return [*map(list, zip(*rows, strict=True)), [sum(groups[:s]) for s in range(len(groups) + 1)]]


def view(data: dict[str, Any], limits: dict[str, Any], slot: int) -> SlotView:
    held = min(data["held"][slot], limits["allowed"][slot])
    room = limits["max_new"][slot] - data["produced"][slot]
    return SlotView(slot, held, room, data["positions"][slot], limits["context"][slot])


def plan(
    state: dict[str, Any], limits: dict[str, Any], rows: int, policy: str, k: int
) -> WindowPlan:
    views = [view(state, limits, slot) for slot in range(len(state["live"])) if state["live"][slot]]
    start = state["start"][0]
    return (
        rotate_grow(views, rows=rows, start=start)
        if policy == "rotate_grow"
        else static_k(views, k=k, rows=rows, start=start)
    )


def advance(stage: str, data: WindowData) -> dict[str, Any]:
    """State, window, picks and result after `advance_window(stage)`, as lists."""
    state = {name: tensor.tolist() for name, tensor in data.state._asdict().items()}
    limits = {name: tensor.tolist() for name, tensor in data.limits._asdict().items()}
    window = [tensor.tolist() for tensor in data.window]
    slots, bucket, depth = len(state["live"]), len(window[0]), data.state.drafts.shape[1]
    picks, result = [], []
    if stage != "plan":
        picks, result = _accept(state, limits, window, data, depth)
    if stage != "accept" and slots:
        planned = plan(state, limits, data.rows, data.policy, data.k)
        groups = [0] * slots
        for group in planned.groups:
            groups[group.slot] = group.rows
        state["start"] = [planned.next_start]
        window = pack(state["anchors"], state["drafts"], state["positions"], groups, bucket)
    return {"state": list(state.values()), "window": window, "picks": picks, "result": result}


def _accept(
    state: dict[str, Any],
    limits: dict[str, Any],
    window: list[list[int]],
    data: WindowData,
    depth: int,
) -> tuple[list, list]:
    ids, _, _, _, starts = window
    rows, proposals = data.logits.tolist(), data.proposals.tolist()
    picks = [0] * len(ids)
    result = [[0] * len(state["live"]) for _ in range(3 + depth + 1)]
    for slot in range(len(state["live"])):
        group = range(starts[slot], starts[slot + 1])
        stops = limits["stop_ids"][slot][: limits["stop_counts"][slot]]
        faults = []
        for i, row in enumerate(group):
            early = state["produced"][slot] + i < limits["min_new"][slot]
            picks[row], fault = pick(rows[row], data.vocab, stops if early else ())
            faults.append(fault)
        if not group:
            continue
        outcome = commit_group(
            [ids[row] for row in group],
            [picks[row] for row in group],
            stop_ids=frozenset(stops),
            produced=state["produced"][slot],
            max_new=limits["max_new"][slot],
            position=state["positions"][slot],
            context=limits["context"][slot],
            min_new=limits["min_new"][slot],
            faults=faults,
        )
        kept = outcome.kept
        for field, value in enumerate(
            (len(group), kept, FINISH.index(outcome.finish), *outcome.tokens)
        ):
            result[field][slot] = value
        state["produced"][slot] += kept
        state["positions"][slot] += kept
        state["held"][slot] = 0
        if outcome.finish:
            state["live"][slot] = 0
        if kept:
            state["anchors"][slot] = outcome.tokens[-1]
            drafts = proposals[group[kept - 1]]
            state["held"][slot] = len(drafts)
            state["drafts"][slot][: len(drafts)] = drafts
    return picks, result
