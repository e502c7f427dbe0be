"""What every operation of the seam must give, in literal Python on lists: the rules of `mtp.commit`
and `mtp.windows`, no torch operation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from bench.inputs.windows import WindowData
from mtp.commit import commit_group
from mtp.windows import SlotView, WindowPlan, rotate_grow, static_k

FINISH = (None, "stop", "length", "error")  # by its code in `Accepted.finish`
Lists = dict[str, Any]  # a table of `SlotState` or `SlotLimits`: its tensors as lists, by name


class After(NamedTuple):
    """What `advance_window` leaves, as lists."""

    state: Lists
    window: list[list[int]]  # the fields of `Packed`
    picks: list[int]  # by row; 0 in faulty rows and in padding; empty where the stage is plan
    result: list[list[int]]  # as `Advanced.result`; empty where the stage is plan


def pick(row: Any, vocab: int, banned: Collection[int] = ()) -> tuple[int, bool]:
    """(id, fault) of one row of logits: the first of the largest that is not banned."""
    real = np.array(row[:vocab], dtype=np.float64)
    if np.isnan(real).any():
        return 0, True
    real[[token for token in banned if 0 <= token < vocab]] = -np.inf
    best = int(real.argmax())
    return (best, False) if real[best] > -np.inf else (0, True)


def picks(data: WindowData) -> list[list[int] | list[bool]]:
    """ids and faults of every row, padding too, with nothing banned."""
    found = [pick(row, data.vocab) for row in _logits(data)]
    return [[id for id, _ in found], [fault for _, fault in found]]


def pack(
    anchors: Sequence[int],
    drafts: Sequence[Sequence[int]],
    positions: Sequence[int],
    group_rows: Sequence[int],
    bucket: int,
) -> list[list[int]]:
    """`Packed` as lists: ids, positions, slots, group_index, starts."""
    rows = [
        ([anchors[slot], *drafts[slot]][place], positions[slot] + place, slot, place)
        for slot, count in enumerate(group_rows)
        for place in range(count)
    ]
    rows += [(0, 0, 0, 0)] * (bucket - len(rows))
    return [*map(list, zip(*rows, strict=True)), list(accumulate(group_rows, initial=0))]


def plan(state: Lists, limits: Lists, rows: int, policy: str, k: int) -> WindowPlan:
    """The next window of at most `rows` rows."""
    views = [
        SlotView(
            slot,
            min(state["held"][slot], limits["allowed"][slot]),
            limits["max_new"][slot] - state["produced"][slot],
            state["positions"][slot],
            limits["context"][slot],
        )
        for slot, live in enumerate(state["live"])
        if live
    ]
    (start,) = state["start"]
    if policy == "rotate_grow":
        return rotate_grow(views, rows=rows, start=start)
    return static_k(views, k=k, rows=rows, start=start)


def advance(stage: str, data: WindowData) -> After:
    """State, window, picks and result after `advance_window(stage)`."""
    state = {name: tensor.tolist() for name, tensor in data.state._asdict().items()}
    limits = {name: tensor.tolist() for name, tensor in data.limits._asdict().items()}
    window = [tensor.tolist() for tensor in data.window]
    slots, bucket = len(state["live"]), len(data.window.ids)
    chosen: list[int] = []
    result: list[list[int]] = []
    if stage != "plan":
        chosen, result = _commit(state, limits, data)
    if stage != "accept" and slots:
        planned = plan(state, limits, data.rows, data.policy, data.k)
        group_rows = [0] * slots
        for group in planned.groups:
            group_rows[group.slot] = group.rows
        state["start"] = [planned.next_start]
        window = pack(state["anchors"], state["drafts"], state["positions"], group_rows, bucket)
    return After(state, window, chosen, result)


def accepted(data: WindowData) -> list[Any]:
    """`Accepted` as lists: kept, tokens, anchors, finish."""
    after = advance("accept", data)
    _, kept, finish, *tokens = after.result
    return [
        kept,
        [list(each) for each in zip(*tokens, strict=True)],
        after.state["anchors"],
        finish,
    ]


def next_window(data: WindowData) -> tuple[list[int], list[list[int]]]:
    """Group rows by slot of the window after this one, and that window."""
    window = advance("all", data).window
    return [end - first for first, end in pairwise(window[-1])], window


def _logits(data: WindowData) -> np.ndarray:
    return data.logits.float().cpu().numpy()


def _commit(state: Lists, limits: Lists, data: WindowData) -> tuple[list[int], list[list[int]]]:
    """Picks and result of the window; `state` moves on in place."""
    ids, starts = data.window.ids.tolist(), data.window.starts.tolist()
    logits, proposals = _logits(data), data.proposals.tolist()
    chosen = [0] * len(ids)
    fields = 3 + data.state.drafts.shape[1] + 1  # rows, kept, finish, and a token a place
    result = [[0] * len(state["live"]) for _ in range(fields)]
    for slot, (first, end) in enumerate(pairwise(starts)):
        if first == end:
            continue
        stops = limits["stop_ids"][slot][: limits["stop_counts"][slot]]
        faults = []
        for row in range(first, end):
            early = state["produced"][slot] + row - first < limits["min_new"][slot]
            chosen[row], fault = pick(logits[row], data.vocab, stops if early else ())
            faults.append(fault)
        outcome = commit_group(
            ids[first:end],
            chosen[first:end],
            stop_ids=frozenset(stops),
            produced=state["produced"][slot],
            max_new=limits["max_new"][slot],
            position=state["positions"][slot],
            context=limits["context"][slot],
            min_new=limits["min_new"][slot],
            faults=faults,
        )
        kept = outcome.kept
        column = (end - first, kept, FINISH.index(outcome.finish), *outcome.tokens)
        for field, value in enumerate(column):
            result[field][slot] = value
        state["produced"][slot] += kept
        state["positions"][slot] += kept
        state["held"][slot] = 0
        if outcome.finish:
            state["live"][slot] = 0
        if kept:
            state["anchors"][slot] = outcome.tokens[-1]
            drafts = proposals[first + kept - 1]
            state["held"][slot] = len(drafts)
            state["drafts"][slot][: len(drafts)] = drafts
    return chosen, result
