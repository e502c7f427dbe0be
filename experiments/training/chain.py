"""Attention in a chain of drafts: over committed entries and the chain's own provisional ones."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def attend_chained(
    q: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], scale: float
) -> Tensor:
    """One step of a chain, at every anchor of a text at once: [batch, heads, anchors, size].

    Anchor t sees the first step's entries 0..t, which in use are committed, and of later steps its
    own.

    q: [batch, heads, anchors, size], of this step
    keys, values: of the steps so far, each of that shape
    """
    anchors = q.shape[2]
    causal = torch.ones(anchors, anchors, dtype=torch.bool).tril()
    scores = [(q @ keys[0].mT).masked_fill(~causal, float("-inf"))]  # [.., anchors, anchors]
    scores += [(q * one).sum(-1, keepdim=True) for one in keys[1:]]
    weights = (torch.cat(scores, -1).float() * scale).softmax(-1).to(q.dtype)
    mixed = weights[..., :anchors] @ values[0]
    for i, value in enumerate(values[1:]):
        mixed = mixed + weights[..., anchors + i, None] * value
    return mixed
