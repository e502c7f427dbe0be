"""Feeds known texts to a target in windows, whatever it would pick itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from mtp.buckets import Buckets
from mtp.targets.protocol import Target
from triton_kernels import Packed, pack_window

DEPTH = 7


class Row(NamedTuple):
    logits: Tensor  # [width]
    hidden: Tensor  # [hidden]


def ints(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


class Teacher:
    """texts: by slot, token ids. lengths: by slot, how many of them are committed."""

    def __init__(
        self,
        target: Target,
        texts: Mapping[int, Tensor],
        slots: int,
        *,
        buckets: Buckets | None = None,
    ) -> None:
        self.target, self.slots = target, slots
        self.texts = dict(texts)
        self.lengths = dict.fromkeys(texts, 0)
        # one row count: bit-equal on every CPU, in fp32 too
        self.buckets = Buckets((8,)) if buckets is None else buckets

    def prefill(self, slot: int, count: int, chunk: int = 1_000) -> tuple[Tensor, Tensor]:
        """The slot begins again with `count` tokens: logits [width] of the last, hidden [count,
        hidden].
        """
        self.target.clear(slot)
        hidden = []
        for start in range(0, count, chunk):
            ids = self.texts[slot][start : min(start + chunk, count)].int()
            logits, rows = self.target.prefill(slot, ids, start)
            hidden.append(rows)
        self.lengths[slot] = count
        return logits[0], torch.cat(hidden)

    def pack(self, rows: Mapping[int, int]) -> Packed:
        def token(slot: int, place: int) -> int:
            text = self.texts.get(slot, [])
            place += self.lengths.get(slot, 0)
            return int(text[place]) if place < len(text) else 0

        tokens = ints([[token(slot, i) for i in range(DEPTH + 1)] for slot in range(self.slots)])
        positions = ints([self.lengths.get(slot, 0) for slot in range(self.slots)])
        group_rows = ints([rows.get(slot, 0) for slot in range(self.slots)])
        return pack_window(
            tokens[:, 0].contiguous(),
            tokens[:, 1:].contiguous(),
            positions,
            group_rows,
            bucket=self.buckets.round_up(sum(rows.values())),
        )

    def verify(self, rows: Mapping[int, int]) -> tuple[Packed, dict[tuple[int, int], Row]]:
        """The window, and what each row gives, by (slot, position)."""
        window = self.pack(rows)
        logits, hidden = self.target.verify(window)
        places = zip(window.slots.tolist(), window.positions.tolist(), strict=True)
        real = int(window.starts[-1])
        return window, {
            place: Row(logits[i], hidden[i]) for i, place in enumerate(list(places)[:real])
        }

    def commit(self, window: Packed, kept: Mapping[int, int]) -> Tensor:
        counts = ints([kept.get(slot, 0) for slot in range(self.slots)])
        self.target.commit(window, counts)
        for slot, count in kept.items():
            self.lengths[slot] += count
        return counts

    def step(
        self, rows: Mapping[int, int], kept: Mapping[int, int] | None = None
    ) -> dict[tuple[int, int], Row]:
        """Verify and commit; kept: None = every row."""
        window, results = self.verify(rows)
        self.commit(window, rows if kept is None else kept)
        return results
