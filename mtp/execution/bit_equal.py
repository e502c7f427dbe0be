"""Which row counts give bit-equal rows on this device: what a bucket may promise."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mtp.targets.protocol import Target
from triton_kernels.product import Matrix

_FEWEST: WeakKeyDictionary[Target, int] = WeakKeyDictionary()


def bit_equal_row_counts(matrices: Sequence[Matrix], *, rows: int) -> tuple[int, ...]:
    """Row counts of 1..rows at which a product with every matrix gives row 0 the bits it has at
    `rows` rows.

    Products are of inputs whose sums cancel: what is left is the rounding of each step, so that
    another order of the sums shows in most elements. Random inputs show it in one of thousands.
    """
    generator = torch.Generator().manual_seed(0)
    equal = set(range(1, rows + 1))
    forms = {(matrix.shape, matrix.dtype): matrix for matrix in matrices}  # one of each
    for matrix in forms.values():
        x, opposed = cancelling(matrix.weight, rows, generator)
        like = Matrix(opposed)
        whole = like(x)
        equal = {n for n in equal if torch.equal(like(x[:n]), whole[:n])}
    return tuple(sorted(equal))


def fewest_rows(target: Target) -> int:
    """2 where a product of one row has other bits than one of more: a window of one row is padded
    then, at the same cost. Else 1."""
    if target not in _FEWEST:
        equal = bit_equal_row_counts(target.linear_weights(), rows=2)
        _FEWEST[target] = 1 if 1 in equal else 2
    return _FEWEST[target]


def cancelling(weight: Tensor, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """(x [rows, in], a weight of the form of `weight`), whose products are sums of pairs that
    cancel: the second half of the columns is minus a permutation of the first, and x's is the
    permutation alone."""
    width = weight.shape[1]
    half = width // 2
    order = torch.randperm(half, generator=generator).to(weight.device)
    x = torch.randn(rows, width, generator=generator).to(weight.device, weight.dtype)
    opposed = weight.clone()
    opposed[:, half : 2 * half] = -weight[:, :half][:, order]
    opposed[:, 2 * half :] = 0
    x[:, half : 2 * half] = x[:, :half][:, order]
    return x, opposed
