"""The device's tables: one object owns drafts, held counts, anchors, positions and limits of every slot."""

from __future__ import annotations

import torch
from torch import Tensor

from mtp.execution.protocol import Limits, stops_of
from mtp.request import Request
from triton_kernels import Accepted


class Buffers:
    """Per-slot tables, int32, allocated once. positions: the anchor's == committed length of target and drafter KV.

    depth: most drafts a slot holds; max_stop_ids: most stop ids a slot can have.
    """

    def __init__(self, slots: int, *, depth: int, max_stop_ids: int = 16, device: torch.device) -> None:
        def table(*shape: int) -> Tensor:
            return torch.zeros(slots, *shape, dtype=torch.int32, device=device)

        self.slots, self.depth, self.max_stop_ids = slots, depth, max_stop_ids
        self.anchors = table()
        self.positions = table()
        self.drafts = table(depth)
        self.held = table()  # lengths decide: drafts[slot, held[slot]:] mean nothing
        self.produced = table()
        self.max_new = table()
        self.context = table()
        self.min_new = table()
        self.stop_ids = table(max_stop_ids)
        self.stop_counts = table()
        self.group_rows = table()  # of the window in work, staged by the host

    def admit(self, slot: int, request: Request, limits: Limits) -> None:
        """The slot's limits; everything of an earlier request is gone."""
        stops = sorted(stops_of(request, limits))
        self.clear(slot)
        self.max_new[slot] = request.max_new_tokens
        self.context[slot] = limits.context
        self.min_new[slot] = request.min_new_tokens
        self.stop_ids[slot, : len(stops)] = torch.tensor(stops, dtype=torch.int32)
        self.stop_counts[slot] = len(stops)

    def clear(self, slot: int) -> None:
        for table in vars(self).values():
            if isinstance(table, Tensor):
                table[slot] = 0

    def stage(self, rows_of: dict[int, int]) -> None:
        """Group rows of the next window: one copy to the device; slots left out get 0."""
        staged = torch.zeros(self.slots, dtype=torch.int32)
        for slot, rows in rows_of.items():
            staged[slot] = rows
        self.group_rows.copy_(staged, non_blocking=True)

    def move(self, accepted: Accepted) -> None:
        """Anchors, positions and counts of a commit; slots that kept nothing are not changed."""
        self.anchors.copy_(accepted.anchors)
        self.positions += accepted.kept
        self.produced += accepted.kept

    def hold(self, kept: Tensor, drafts: Tensor, held: Tensor) -> None:
        """New drafts [slots, depth] of the slots with kept > 0, of which the first held[slot] count."""
        moved = kept > 0
        depth = drafts.shape[1]
        self.drafts[:, :depth] = torch.where(moved[:, None], drafts, self.drafts[:, :depth])
        self.held.copy_(torch.where(moved, held, self.held))
