"""How far a head is from its target."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear, smooth_l1_loss

from experiments.training.drafters.head import Frozen, Head
from experiments.training.losses import FADE

ROWS = 0.5  # weight of the hidden rows


def distance(head: Head, target: Frozen, ids: Tensor, hidden: Tensor, depth: int, hidden_rms: float) -> Tensor:
    """Cross-entropy of chained drafts to the target's distributions over the draft vocabulary, and smooth L1 of the hidden rows
    relative to their RMS: mean over steps with fading weights.

    ids: [batch, tokens]; hidden: [batch, tokens - 1, hidden]."""
    steps = head.chain(target, ids[:, :-1], hidden, depth)
    anchors = steps[0].hidden.shape[1]
    with torch.no_grad():
        wanted = linear(hidden[:, 1:].to(target.head.dtype), target.head).float().softmax(-1)
    total = torch.zeros(())
    for i, step in enumerate(steps):
        here = slice(i, i + anchors)
        got = linear(step.hidden.to(target.head.dtype), target.head).float().log_softmax(-1)
        rows = smooth_l1_loss(step.hidden / hidden_rms, hidden[:, 1:][:, here].float() / hidden_rms)
        total = total + FADE**i * (ROWS * rows - (wanted[:, here] * got).sum(-1).mean())
    return total / sum(FADE**i for i in range(depth))
