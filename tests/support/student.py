"""A teacher with a drafter: picks are the text's own tokens, whatever the target says."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mtp.buckets import Buckets
from mtp.drafters.protocol import Drafted, Drafter
from mtp.targets.protocol import Target
from tests.support.teacher import Teacher, ints

SLOTS, DEPTH = 6, 7  # slots: more than are used, and not a row count that buckets know


class Student(Teacher):
    drafter: Drafter

    def __init__(
        self,
        target: Target,
        texts: dict[int, Tensor],
        *,
        slots: int = SLOTS,
        buckets: Buckets | None = None,
    ) -> None:
        super().__init__(target, texts, slots, buckets=buckets)

    def begin(self, slot: int, count: int, chunk: int = 1_000, depth: int = 1) -> Drafted:
        """A prompt of which every entry but the last one is fed: that one is the first window's."""
        self.drafter.clear(slot)
        _, hidden = self.prefill(slot, count, chunk)
        for start in range(0, count - 1, chunk):
            stop = min(start + chunk, count - 1)
            self.drafter.prefill(
                slot, self.texts[slot][start : stop + 1].int(), hidden[start:stop], start
            )
        self.lengths[slot] = count - 1
        window = self.pack({slot: 1})
        rows = torch.zeros(len(window.ids), hidden.shape[1], dtype=hidden.dtype)
        rows[0] = hidden[-1]
        drafted = self.drafter.advance(
            window, self.kept_in(slot, 1), self.picks(window), rows, depth
        )
        self.lengths[slot] = count
        return drafted

    def draft(self, rows: dict[int, int], kept: dict[int, int], depth: int = DEPTH) -> Drafted:
        window = self.pack(rows)
        _, hidden = self.target.verify(window)
        picks = self.picks(window)
        counts = self.commit(window, kept)
        return self.drafter.advance(window, counts, picks, hidden, depth)

    def kept_in(self, slot: int, count: int) -> Tensor:
        return ints([count if s == slot else 0 for s in range(self.slots)])

    def picks(self, window: Any) -> Tensor:
        places = list(zip(window.slots.tolist(), window.positions.tolist(), strict=True))[
            : int(window.starts[-1])
        ]
        after = [int(self.texts[slot][position + 1]) for slot, position in places]
        after += [0] * (len(window.ids) - len(after))
        return ints(after)
