"""Greedy text of the target, in batches of equal prompts, with the hidden rows the MTP head reads."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from experiments.training.model import Model


class Continued(NamedTuple):
    ids: Tensor  # [batch, prompt + new]
    hidden: Tensor  # [batch, prompt + new - 1, hidden]


@torch.no_grad()
def continue_greedy(model: Model, prompts: Tensor, new: int) -> Continued:
    """prompts: [batch, tokens]. The end token is a token like others here: a new document follows it."""
    state = model.state()
    ids, rows = prompts, []
    step = prompts
    for _ in range(new):
        rows.append(model(step, state))
        step = model.logits(rows[-1][:, -1]).argmax(-1, keepdim=True)
        ids = torch.cat([ids, step], 1)
    return Continued(ids, torch.cat(rows, 1))


def spread(stream: Tensor, count: int, length: int) -> Tensor:
    """`count` windows at even distances through a stream: [count, length]."""
    starts = torch.linspace(0, len(stream) - length - 1, count).long()
    return stream[starts[:, None] + torch.arange(length)]
