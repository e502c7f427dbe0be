"""Which row counts give bit-equal rows on this device: what a bucket may promise."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear


def bit_equal_row_counts(weights: Sequence[Tensor], *, rows: int) -> tuple[int, ...]:
    """Row counts of 1..rows at which a product with every weight [out, in] gives row 0 the bits
    it has at `rows` rows."""
    generator = torch.Generator().manual_seed(0)
    equal = set(range(1, rows + 1))
    shapes = {(tuple(weight.shape), weight.dtype): weight for weight in weights}  # one of each form
    for weight in shapes.values():
        x = torch.randn(rows, weight.shape[1], generator=generator).to(weight.device, weight.dtype)
        whole = linear(x, weight)
        equal = {n for n in equal if torch.equal(linear(x[:n], weight), whole[:n])}
    return tuple(sorted(equal))
