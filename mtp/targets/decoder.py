"""What every target here is: a decoder with `slots` places, run on windows and prompt chunks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from mtp.executor import Limits
from mtp.targets.layers.attention import KvCache
from mtp.targets.layers.blocks import Layer, Norm, Place, PromptRows, WindowRows
from mtp.targets.layers.rope import Rope, Rotation
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.loading.config import TextConfig
from mtp.targets.loading.weights import Progress, Weights
from mtp.targets.protocol import RecurrentState
from triton_kernels import Packed
from triton_kernels.product import Matrix

DTYPES = (torch.float32, torch.bfloat16)


class DecoderTarget(ABC):
    """See `Target`.

    A family says which tensors it has and builds itself of them (`weights`, `build`); what it does
    differently on the way from ids to logits is in `embed`, `enter` and `logits`.

    rows: most rows (padding included) of a window
    progress: hears how much of the weights has been read

    Raises ValueError, one line, for a checkpoint whose tensors are missing, unknown or mis-shaped.
    """

    dtype_reason: str = ""  # one line, where the dtype was chosen by measuring

    # what `build` makes
    embedding: Tensor  # [vocab, hidden]
    head: Matrix  # [vocab, hidden]
    blocks: Sequence[Layer]
    norm: Norm  # the last one
    ropes: dict[str, Rope]  # by layer type
    caches: list[KvCache]  # in the order of layers, of those that have their own
    states: Sequence[RecurrentState]  # other state of the slots

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: TextConfig,
        *,
        slots: int,
        context: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        rows: int = 8,
        progress: Progress | None = None,
    ) -> None:
        if dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype}, expected {' or '.join(map(str, DTYPES))}")
        config.check_context(context)
        if slots < 1 or rows < 1:
            raise ValueError(f"slots is {slots} and rows {rows}, expected at least 1")
        self.slots, self.rows, self.dtype, self.device = slots, rows, dtype, torch.device(device)
        self.limits = Limits(vocab=config.vocab, context=context, stop_ids=checkpoint.stop_ids)
        self.hidden_size, self.logit_width = config.hidden, config.vocab
        self.ropes, self.caches, self.states = {}, [], []
        self.build(
            config,
            self.weights(checkpoint, config, dtype=dtype, device=self.device, progress=progress),
        )

    @staticmethod
    @abstractmethod
    def weights(checkpoint: Checkpoint, config: Any, **options: Any) -> Weights:
        """Its tensors, checked by name and shape; options: as of `Checkpoint.read`."""

    @abstractmethod
    def build(self, config: Any, w: Weights) -> None:
        """Makes all that is declared above."""

    @torch.inference_mode()
    def prefill(self, slot: int, ids: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """See `Target`. A slot's chunks come in order, the first one at start 0 after `clear`.

        Raises ValueError where the chunk does not fit the slots or the context.
        """
        stop = start + len(ids)
        if not (0 <= slot < self.slots and 0 <= start < stop <= self.limits.context):
            raise ValueError(
                f"tokens {start}..{stop - 1} of slot {slot} do not fit "
                f"{self.slots} slots of {self.limits.context}"
            )
        rotations = self._rotations(torch.arange(start, stop, device=self.device))
        hidden = self._forward(ids, PromptRows(slot, start, rotations))
        return self.logits(hidden[-1:]), hidden

    @torch.inference_mode()
    def verify(self, window: Packed) -> tuple[Tensor, Tensor]:
        """See `Target`. Raises ValueError for more rows than `rows`."""
        if len(window.ids) > self.rows:
            raise ValueError(
                f"a window of {len(window.ids)} rows, expected at most {self.rows} (rows)"
            )
        hidden = self._forward(
            window.ids,
            WindowRows(window.positions, window.starts, self._rotations(window.positions)),
        )
        return self.logits(hidden), hidden

    @torch.inference_mode()
    def commit(self, window: Packed, kept: Tensor) -> None:
        for state in self.states:
            state.commit(window.starts, kept)

    @torch.inference_mode()
    def clear(self, slot: int) -> None:
        for cache in self.caches:
            cache.clear(slot)
        for state in self.states:
            state.clear(slot)

    def kv(self, layer_type: str) -> tuple[Tensor, Tensor]:
        """See `Target`. Raises ValueError for a layer type without keys and values."""
        own = {cache.layer_type: cache for cache in self.caches}  # the last of each
        if layer_type not in own:
            raise ValueError(
                f"layer type is {layer_type!r}, expected {' or '.join(map(repr, own))} "
                "(the types that have keys and values)"
            )
        return own[layer_type].keys, own[layer_type].values

    def linear_weights(self) -> list[Matrix]:
        return [self.head, *(matrix for block in self.blocks for matrix in block.matrices())]

    # ---- from ids to logits

    def embed(self, ids: Tensor) -> Tensor:
        """[rows] ids -> [rows, hidden], as the first layer reads them."""
        return embedding(ids, self.embedding)

    def enter(self, ids: Tensor, place: Place) -> tuple[Tensor, Place]:
        """The stream, and the place with all that the blocks read besides."""
        return self.embed(ids), place

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] after the last norm -> [rows, logit width]."""
        return self.head(hidden)

    def _forward(self, ids: Tensor, place: Place) -> Tensor:
        x, place = self.enter(ids, place)
        for block in self.blocks:
            x = block(x, place)
        return self.norm(x).to(self.dtype)

    def _rotations(self, positions: Tensor) -> dict[str, Rotation]:
        return {layer_type: rope.at(positions) for layer_type, rope in self.ropes.items()}
