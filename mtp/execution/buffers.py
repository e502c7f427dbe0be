"""The device's tables, allocated once, before any capture: one object owns every slot's state
and the window in work."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from mtp.executor import Limits, stops_of
from mtp.request import Request
from triton_kernels import Accepted, Packed


class Buffers:
    """Per-slot tables, int32. A slot's position is its anchor's: the committed length of target and
    drafter KV alike."""

    def __init__(
        self,
        slots: int,
        *,
        depth: int,  # most drafts a slot holds
        largest_group: int,  # most rows a slot gets
        rows: int,  # most rows of a window, padding included
        hidden: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        def table(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.int32, device=device)

        self.slots, self.depth, self.width = slots, depth, largest_group
        self.max_stop_ids = 16  # of a slot
        self.anchors, self.positions, self.produced = table(slots), table(slots), table(slots)
        self.drafts = table(slots, max(depth, largest_group - 1))
        self.held = table(slots)  # lengths decide: drafts[slot, held[slot]:] mean nothing
        # 0: the slot's drafter state is lost, it holds no drafts any more
        self.draftable = table(slots)
        self.max_new, self.context, self.min_new = table(slots), table(slots), table(slots)
        self.stop_ids, self.stop_counts = table(slots, self.max_stop_ids), table(slots)
        self._of_slot = [value for value in vars(self).values() if isinstance(value, Tensor)]
        # the window in work: what verify leaves for commit, and commit for the host
        self.group_rows = table(slots)
        self.rows = rows
        self._window = Packed(table(rows), table(rows), table(rows), table(rows), table(slots + 1))
        self._picks = table(rows)
        self._hidden = torch.zeros(rows, hidden, dtype=dtype, device=device)
        self.accepted = Accepted(
            table(slots), table(slots, largest_group), table(slots), table(slots)
        )
        # kept, finish, held, tokens, drafts, confidence (bits of fp32)
        self.results = table(slots, 3 + largest_group + 2 * depth)
        self._staged = torch.zeros(slots, dtype=torch.int32, pin_memory=device.type == "cuda")

    # ---- slots

    def admit(self, slot: int, request: Request, limits: Limits) -> None:
        """The slot's limits; everything of an earlier request is gone."""
        stops = sorted(stops_of(request, limits))
        self.clear(slot)
        self.draftable[slot] = 1
        self.max_new[slot] = request.max_new_tokens
        self.context[slot] = limits.context
        self.min_new[slot] = request.min_new_tokens
        self.stop_ids[slot, : len(stops)] = torch.tensor(stops, dtype=torch.int32)
        self.stop_counts[slot] = len(stops)

    def clear(self, slot: int) -> None:
        for table in self._of_slot:
            table[slot].fill_(0)

    # ---- the window in work

    def stage(self, rows_of: dict[int, int]) -> None:
        """Group rows of the next window: one copy to the device; slots left out get 0."""
        self._staged.zero_()
        for slot, rows in rows_of.items():
            self._staged[slot] = rows
        self.group_rows.copy_(self._staged, non_blocking=True)

    def window(self, bucket: int) -> Packed:
        """The packed rows of the window in work."""
        return Packed._make([*(table[:bucket] for table in self._window[:-1]), self._window.starts])

    def picks(self, bucket: int) -> Tensor:
        return self._picks[:bucket]

    def hidden(self, bucket: int) -> Tensor:
        return self._hidden[:bucket]

    @contextlib.contextmanager
    def dry_run(self) -> Iterator[None]:
        """Nothing is kept: a commit that runs now changes nothing. The next verify finds the
        real counts again."""
        self.accepted.kept.zero_()
        yield

    # ---- commits

    def move(self) -> None:
        """Anchors, positions and counts of a commit; slots that kept nothing are not changed."""
        kept = self.accepted.kept
        self.anchors.copy_(torch.where(kept > 0, self.accepted.anchors, self.anchors))
        self.positions += kept
        self.produced += kept

    def hold(self, kept: Tensor, drafts: Tensor, held: Tensor) -> None:
        """New drafts [slots, depth] of the slots that kept something, of which the first
        held[slot] count."""
        moved = kept > 0
        place = self.drafts[:, : drafts.shape[1]]
        place.copy_(torch.where(moved[:, None], drafts, place))
        self.held.copy_(torch.where(moved, held, self.held))

    def report(self, held: Tensor, drafts: Tensor, confidence: Tensor) -> None:
        """What the host reads in its one copy; drafts: [slots, depth] int32; confidence: [slots,
        depth] fp32."""
        numbers = torch.stack([self.accepted.kept, self.accepted.finish, held], 1)
        row = torch.cat([numbers, self.accepted.tokens, drafts, confidence.view(torch.int32)], 1)
        self.results[:, : row.shape[1]] = row


def copy_into(places: tuple[Tensor, ...], values: tuple[Tensor, ...]) -> None:
    """Results into buffers that outlive the next replay."""
    for place, value in zip(places, values, strict=True):
        place.copy_(value)
