"""What a target is. Tensors; every group boundary, slot, position and length is device data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from mtp.executor import Limits
from triton_kernels import Packed
from triton_kernels.product import Matrix


class Target(Protocol):
    """A model with `slots` persistent places.

    Committed state is, per slot, the KV rows and recurrent state of its first n tokens. KV rows at
    or beyond the committed length, and scratch that `verify` leaves for `commit`, are free to
    write.
    """

    limits: Limits
    slots: int
    device: torch.device
    hidden_size: int
    dtype: torch.dtype
    logit_width: int  # columns of the logits; >= limits.vocab

    def prefill(self, slot: int, ids: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Prompt tokens at positions start..start + n - 1 become committed state of the slot.

        ids: [n] int. Gives logits [1, width] of the last row and hidden [n, hidden], of the
        target's dtype, after the final norm: what an MTP drafter reads.
        """
        ...

    def verify(self, window: Packed) -> tuple[Tensor, Tensor]:
        """Logits [bucket, width] and hidden [bucket, hidden] of a window's rows.

        Changes no committed state. Row r sits at window.positions[r] of slot window.slots[r] and
        sees that slot's committed rows and the earlier rows of its own group. Padding rows give
        anything and touch nothing. A row's result never depends on the other groups, nor on how
        many rows its own group has after it.
        """
        ...

    def commit(self, window: Packed, kept: Tensor) -> None:
        """The first kept rows of each group become committed state; the window was just verified.

        kept: [slots] int32
        """
        ...

    def linear_weights(self) -> Sequence[Matrix]:
        """Every matrix [out, in] that rows are multiplied with, for the row-count probe."""
        ...

    def clear(self, slot: int) -> None:
        """Nothing of the slot's past is left."""
        ...

    def kv(self, layer_type: str) -> tuple[Tensor, Tensor]:
        """The cache of the last layer of that type that has its own, for drafters that read it.

        Keys and values [slots, kv heads, capacity, head size], not copies: capacity >= context, in
        whole blocks of `window_attention`. Rows from a slot's committed length on may hold
        anything.
        """
        ...


@runtime_checkable
class TextTarget(Target, Protocol):
    """A target that shares its embedding and head with a drafter."""

    head: Matrix  # [logit_width, hidden]

    def embed(self, ids: Tensor) -> Tensor:
        """[rows] ids -> [rows, hidden], as its first layer reads them."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] after a last norm -> [rows, logit_width]."""
        ...


class RecurrentState(Protocol):
    """Recurrent state of the slots, and what a verified window leaves for its commit."""

    def commit(self, starts: Tensor, kept: Tensor) -> None:
        """The first kept rows of each group of the window become state.

        starts: [slots + 1] int32
        kept: [slots] int32
        """
        ...

    def clear(self, slot: int) -> None:
        """Nothing of the slot's past is left."""
        ...
