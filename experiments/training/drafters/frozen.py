"""The frozen target as a trained drafter sees it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from mtp.targets.decoder import DecoderTarget


class FrozenTarget:
    """The target's embedding and head, of which only drafted tokens get logits.

    draft_vocab: [draft vocab] int64, these tokens; None: all of the vocabulary
    """

    def __init__(self, target: DecoderTarget, draft_vocab: Tensor | None) -> None:
        self.draft_vocab = torch.arange(target.limits.vocab) if draft_vocab is None else draft_vocab
        self._target = target
        self._head = None if draft_vocab is None else target.head.weight[draft_vocab]

    def embed(self, ids: Tensor) -> Tensor:
        """ids: [..] -> [.., hidden], as the target's first layer reads them."""
        rows = self._target.embed(ids.flatten())
        return rows.unflatten(0, ids.shape)

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden: [.., hidden] after a last norm -> [.., draft vocab]."""
        rows = hidden.to(self._target.dtype)
        return self._target.logits(rows) if self._head is None else linear(rows, self._head)

    def choices(self, hidden: Tensor) -> Tensor:
        """hidden: [.., hidden] -> the target's own picks [..], token ids."""
        return self._target.logits(hidden.to(self._target.dtype)).argmax(-1)
