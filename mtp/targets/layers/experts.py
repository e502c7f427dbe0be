"""A mixture of experts in the place of an MLP.

A router, the experts it chooses, and one that every row goes through.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import silu

from mtp.targets.layers.blocks import Mlp, prefixed
from mtp.targets.loading.config import ExpertForm
from mtp.targets.loading.weights import Shapes, Weights
from triton_kernels.product import Matrix

ROWS = 8  # whose experts' weights are gathered at a time


def choose(scores: Tensor, per_row: int) -> tuple[Tensor, Tensor]:
    """The best experts of each row and their shares of the output: [rows, per_row] each.

    scores: [rows, experts]. The lowest id wins a tie.
    """
    chances, order = scores.float().softmax(-1).sort(dim=-1, descending=True, stable=True)
    chances = chances[:, :per_row]
    return order[:, :per_row], chances / chances.sum(-1, keepdim=True)


class Routed:
    """Experts of which each row goes through a few.

    Shapes depend on the row count alone: each row's experts are gathered and multiplied one by one,
    in the order in which they are chosen. So a row's bits do not depend on the other rows, and
    nothing is read by the host.
    """

    def __init__(
        self, gate_up: Tensor, down: Tensor, activation: Callable[[Tensor], Tensor] = silu
    ) -> None:
        self.gate_up = gate_up  # [experts, 2 * inner, hidden]
        self.down = down  # [experts, hidden, inner]
        self.activation = activation

    def __call__(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        """x: [rows, hidden]; chosen, shares: [rows, experts of a row] -> fp32 [rows, hidden]."""
        return torch.cat(
            [
                self._some(*some)
                for some in zip(x.split(ROWS), chosen.split(ROWS), shares.split(ROWS), strict=True)
            ]
        )

    def _some(self, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        which = chosen.flatten()
        # [rows * experts of a row, 1, hidden]
        each = x.repeat_interleave(chosen.shape[1], 0)[:, None]
        gate, up = torch.bmm(each, self.gate_up.index_select(0, which).transpose(1, 2)).chunk(2, 2)
        out = torch.bmm(
            self.activation(gate) * up, self.down.index_select(0, which).transpose(1, 2)
        )
        return (out.float().view(*chosen.shape, -1) * shares[..., None]).sum(1)


class Experts:
    def __init__(self, w: Weights, form: ExpertForm) -> None:
        self.form = form
        # [experts + 1, hidden]
        self.route = Matrix(w.stacked("gate.weight", "shared_expert_gate.weight"))
        self.shared = Mlp(w.under("shared_expert."))
        if "experts.gate_up_proj" in w:
            self.routed = Routed(w.tensor("experts.gate_up_proj"), w.tensor("experts.down_proj"))
            return
        count, inner, hidden = form.count, form.inner, self.route.shape[1]
        gate_up = torch.empty(count, 2 * inner, hidden, dtype=w.dtype, device=w.device)
        down = torch.empty(count, hidden, inner, dtype=w.dtype, device=w.device)
        for i in range(count):
            w.fill(gate_up[i, :inner], f"experts.{i}.gate_proj.weight")
            w.fill(gate_up[i, inner:], f"experts.{i}.up_proj.weight")
            w.fill(down[i], f"experts.{i}.down_proj.weight")
        self.routed = Routed(gate_up, down)

    @staticmethod
    def shapes(hidden: int, form: ExpertForm, fused: bool) -> Shapes:
        """fused: all experts in one tensor, or one by one."""
        count, inner = form.count, form.inner
        shapes: Shapes = {"gate.weight": (count, hidden), "shared_expert_gate.weight": (1, hidden)}
        shapes |= prefixed("shared_expert.", Mlp.shapes(hidden, form.shared))
        if fused:
            return shapes | {
                "experts.gate_up_proj": (count, 2 * inner, hidden),
                "experts.down_proj": (count, hidden, inner),
            }
        for i in range(count):
            shapes |= prefixed(f"experts.{i}.", Mlp.shapes(hidden, inner))
        return shapes

    def __call__(self, x: Tensor) -> Tensor:
        scores, gate = self.route(x).split([self.form.count, 1], 1)
        y = self.routed(x, *choose(scores, self.form.per_row))
        return y.to(x.dtype) + gate.double().sigmoid().to(x.dtype) * self.shared(x)

    def matrices(self) -> list[Matrix]:
        """Without the experts: they are multiplied with one row each, whatever the row count."""
        return [self.route, *self.shared.matrices()]
