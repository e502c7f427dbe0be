"""What every operation of the seam must give, in literal Python on lists: the rules of
`mtp.commit` and `mtp.windows`, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from bench.inputs.windows import WindowData
from mtp.commit import Committed, commit_group
from mtp.windows import SlotView, WindowPlan, rotate_grow

FINISH = {None: 0, "stop": 1, "length": 2, "error": 3}  # as `Accepted.finish` codes it


@dataclass(frozen=True)
class Slots:
    """One window's slots, as lists by slot; rows: of their groups."""

    anchors: list[int]
    drafts: list[list[int]]
    positions: list[int]
    rows: list[int]


def picks(data: WindowData) -> list[int]:
    """Per row the lowest id of the highest logit; the data here holds no faulty row."""
    return np.argmax(data.logits[:, : data.vocab].float().cpu().numpy(), axis=1).tolist()


def packed(slots: Slots, bucket: int) -> list[list[int]]:
    """`Packed` as lists: ids, positions, slots, group_index, starts."""
    ids, positions, owners, places, starts = [], [], [], [], [0]
    for slot, rows in enumerate(slots.rows):
        for place in range(rows):
            ids.append(slots.anchors[slot] if place == 0 else slots.drafts[slot][place - 1])
            positions.append(slots.positions[slot] + place)
            owners.append(slot)
            places.append(place)
        starts.append(len(ids))
    padding = [0] * (bucket - len(ids))
    return [ids + padding, positions + padding, owners + padding, places + padding, starts]


def committed(data: WindowData) -> list[Committed]:
    """By slot; a slot without a group commits nothing."""
    chosen, ids, starts = picks(data), data.window.ids.tolist(), data.window.starts.tolist()
    produced, positions = data.state.produced.tolist(), data.state.positions.tolist()
    found = []
    for slot, (first, end) in enumerate(pairwise(starts)):
        found.append(
            commit_group(
                ids[first:end],
                chosen[first:end],
                stop_ids=frozenset(data.limits.stop_ids[slot].tolist()),
                produced=produced[slot],
                max_new=int(data.limits.max_new[slot]),
                position=positions[slot],
                context=int(data.limits.context[slot]),
            )
            if end > first
            else Committed((), 0, 0, None)
        )
    return found


def accepted(data: WindowData) -> list[Any]:
    """`Accepted` as lists: kept, tokens, anchors, finish."""
    width, found = data.state.drafts.shape[1] + 1, committed(data)
    anchors = [
        one.tokens[-1] if one.kept else old
        for one, old in zip(found, data.state.anchors.tolist(), strict=True)
    ]
    tokens = [[*one.tokens, *[0] * (width - one.kept)] for one in found]
    return [[one.kept for one in found], tokens, anchors, [FINISH[one.finish] for one in found]]


def moved(data: WindowData) -> tuple[Slots, list[int]]:
    """The slots after the commit, with the drafts that follow the row kept last (no group yet),
    and how many each holds."""
    kept, _, anchors, _ = accepted(data)
    first, proposals = data.window.starts.tolist(), data.proposals.tolist()
    drafts, held = data.state.drafts.tolist(), data.state.held.tolist()
    for slot, count in enumerate(kept):
        if count:
            drafts[slot] = proposals[first[slot] + count - 1]
            held[slot] = len(drafts[slot])
    positions = [
        old + count for old, count in zip(data.state.positions.tolist(), kept, strict=True)
    ]
    return Slots(anchors, drafts, positions, [0] * len(kept)), held


def planned(data: WindowData, positions: list[int], held: list[int]) -> WindowPlan:
    live, context = data.state.live.tolist(), data.limits.context.tolist()
    slots = [
        SlotView(slot, held[slot], 10**6, positions[slot], context[slot])
        for slot in range(len(live))
        if live[slot]
    ]
    return rotate_grow(slots, rows=data.rows, start=int(data.state.start))


def next_window(data: WindowData) -> tuple[list[int], list[list[int]]]:
    """Group rows by slot of the window after this one, and that window."""
    slots, held = moved(data)
    rows = {group.slot: group.rows for group in planned(data, slots.positions, held).groups}
    group_rows = [rows.get(slot, 0) for slot in range(len(held))]
    return group_rows, packed(
        Slots(slots.anchors, slots.drafts, slots.positions, group_rows), len(data.window.ids)
    )
