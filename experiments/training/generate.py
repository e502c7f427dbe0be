"""Greedy text of the target, in batches of equal prompts."""

from __future__ import annotations

import torch
from torch import Tensor

from experiments.training.trainable import TrainableTarget


@torch.no_grad()
def continue_greedy(model: TrainableTarget, prompts: Tensor, new: int) -> Tensor:
    """prompts: [batch, tokens] int64 -> [batch, tokens + new].

    The end token is a token like others here: a new document follows it.
    """
    state = model.state()
    ids = step = prompts
    for _ in range(new):
        step = model.logits(model(step, state)[:, -1]).argmax(-1, keepdim=True)
        ids = torch.cat([ids, step], 1)
    return ids


def spread(stream: Tensor, count: int, length: int) -> Tensor:
    """`count` windows at even distances through a stream: [count, length]."""
    starts = torch.linspace(0, len(stream) - length - 1, count).long()
    return stream[starts[:, None] + torch.arange(length)]
