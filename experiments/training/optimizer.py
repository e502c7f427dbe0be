"""Muon for matrices, AdamW for the rest, one learning-rate schedule for both."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Muon

WARM_UP = 0.02  # of the phase
COOL_DOWN = 0.5  # of the phase: the rate falls to zero over the last part


class Optimizer:
    """rate: the peak learning rate of both, whose updates have the same RMS."""

    def __init__(self, module: nn.Module, rate: float, decay: float) -> None:
        matrices: list[nn.Parameter] = []
        rest: list[nn.Parameter] = []
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                small = parameter.ndim != 2 or min(parameter.shape) < 16 or "embed" in name
                (rest if small else matrices).append(parameter)
        self.rate, self.parameters = rate, matrices + rest
        self.parts = [
            Muon(
                matrices, lr=rate, weight_decay=decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"
            ),
            AdamW(rest, lr=rate, betas=(0.9, 0.95), weight_decay=0.0),
        ]

    def step(self, progress: float) -> None:
        """progress: 0 to 1 through the phase. Uses and clears the gradients."""
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        rate = self.rate * min(1.0, (progress + 0.002) / WARM_UP, (1 - progress) / COOL_DOWN)
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = max(rate, 0.01 * self.rate)
            part.step()
            part.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, states: list[dict[str, Any]]) -> None:
        for part, state in zip(self.parts, states, strict=True):
            part.load_state_dict(state)
