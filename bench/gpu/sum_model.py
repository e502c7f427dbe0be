"""A target and a drafter of plain torch operations that any device can capture, whose text depends
on every token before it.

The state of a slot is the sum of its committed tokens: integers, so a run with another layout,
policy or graph must give the same text. The drafter knows the target and is wrong where the sum is
divisible by 5.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mtp.drafters.protocol import Drafted
from mtp.executor import Limits
from mtp.targets.protocol import Target
from triton_kernels import Packed, row_argmax
from triton_kernels.product import Matrix

STATES = 509  # different hidden rows


class SumTarget:
    def __init__(
        self,
        slots: int,
        device: torch.device,
        *,
        vocab: int = 4096,
        hidden: int = 256,
        context: int = 512,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        noise = torch.Generator().manual_seed(0)
        self.limits = Limits(vocab=vocab, context=context, stop_ids=frozenset())
        self.slots, self.device, self.hidden_size, self.dtype, self.logit_width = (
            slots,
            device,
            hidden,
            dtype,
            vocab,
        )
        self.table = torch.randn(STATES, hidden, generator=noise).to(device, dtype)
        self.head = torch.randn(vocab, hidden, generator=noise).to(device, dtype)
        self.sums = torch.zeros(slots, dtype=torch.int64, device=device)

    def rows(self, sums: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.table[sums % STATES]
        return hidden @ self.head.T, hidden

    def prefill(self, slot: int, ids: Tensor, start: int) -> tuple[Tensor, Tensor]:
        sums = self.sums[slot] + ids.cumsum(0)
        self.sums[slot] = sums[-1]
        logits, hidden = self.rows(sums)
        return logits[-1:], hidden

    def verify(self, window: Packed) -> tuple[Tensor, Tensor]:
        total = window.ids.cumsum(0)
        first = torch.arange(len(window.ids), device=self.device) - window.group_index
        before = (total - window.ids)[first]  # of the rows of other groups
        return self.rows(self.sums[window.slots] + total - before)

    def commit(self, window: Packed, kept: Tensor) -> None:
        self.sums += kept_sums(window, kept)

    def linear_weights(self) -> list[Matrix]:
        return [Matrix(self.head)]

    def clear(self, slot: int) -> None:
        self.sums[slot] = 0

    def kv(self, layer_type: str) -> tuple[Tensor, Tensor]:
        raise ValueError(f"layer type is {layer_type!r}, but this target has no keys and values")


class SumDrafter:
    max_depth = 7

    def __init__(self, target: SumTarget) -> None:
        self.target, self.context = target, target.limits.context
        self.sums = torch.zeros_like(target.sums)

    def bind(self, target: Target) -> None:
        """It was made with its target."""

    def prefill(self, slot: int, ids: Tensor, hidden: Tensor, start: int) -> None:
        self.sums[slot] += ids[:-1].sum()

    def advance(
        self, window: Packed, kept: Tensor, picks: Tensor, hidden: Tensor, depth: int
    ) -> Drafted:
        self.sums += kept_sums(window, kept)
        last = (window.starts[:-1] + kept - 1).clamp(min=0)
        vocab = self.target.limits.vocab
        sums, drafts = self.sums + picks[last], []
        for _ in range(depth):
            right = row_argmax(self.target.rows(sums)[0], vocab=vocab).ids
            drafts.append(torch.where(sums % 5 == 0, (right + 1) % vocab, right))
            sums = sums + drafts[-1]
        tokens = (
            torch.stack(drafts, 1)
            if drafts
            else torch.zeros(len(kept), 0, dtype=torch.int32, device=kept.device)
        )
        return Drafted(
            tokens, torch.full(tokens.shape, 0.8, device=kept.device), torch.full_like(kept, depth)
        )

    def clear(self, slot: int) -> None:
        self.sums[slot] = 0


def kept_sums(window: Packed, kept: Tensor) -> Tensor:
    """[slots] int64: the sum of the rows that each slot keeps."""
    row = torch.arange(len(window.ids), device=kept.device)
    keeps = (window.group_index < kept[window.slots]) & (row < window.starts[-1])
    own = window.slots[:, None] == torch.arange(len(kept), device=kept.device)  # [bucket, slots]
    return (own * torch.where(keeps, window.ids, 0)[:, None]).sum(0)
