"""Products of packed weights against plain ones: values, bits by row count, copies, refusals."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
from torch.nn.functional import linear

from triton_kernels import product as products
from triton_kernels.product import Matrix, PackedWeight, packs, product

SHAPES = [(576, 1536), (3, 5), (130, 64), (1, 7)]
PACKED = [dtype for dtype in (torch.float32, torch.bfloat16) if packs(dtype)]
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def weight_of(shape, dtype):
    torch.manual_seed(0)
    return (torch.randn(shape) / shape[1] ** 0.5).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_matrix_gives_its_weight_s_products_and_its_weight(shape, dtype):
    weight = weight_of(shape, dtype)
    matrix = Matrix(weight)
    assert (len(matrix), matrix.shape, matrix.dtype) == (shape[0], weight.shape, dtype)
    for rows in (1, 2, 5, 16, 40):
        x = torch.randn(rows, 2 * shape[1]).to(dtype)[:, : shape[1]]
        torch.testing.assert_close(matrix(x), linear(x, weight), atol=CLOSE[dtype], rtol=0)
    assert torch.equal(matrix.weight, weight)
    assert torch.equal(copy.deepcopy(matrix)(x), matrix(x))


@pytest.mark.parametrize("dtype", PACKED, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_from_two_rows_on_a_row_has_the_same_bits(shape, dtype):
    matrix, x = Matrix(weight_of(shape, dtype)), torch.randn(16, shape[1]).to(dtype)
    whole = matrix(x)
    for rows in range(2, 16):
        for first in (0, 16 - rows):
            assert torch.equal(matrix(x[first : first + rows]), whole[first : first + rows])


@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_the_packed_weight_goes_with_its_last_holder(dtype):
    matrix = Matrix(weight_of((8, 8), dtype))
    other = copy.deepcopy(matrix)
    number = matrix._packed.number
    del matrix
    gc.collect()
    assert number in products._packed
    del other
    gc.collect()
    assert number not in products._packed


@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_what_does_not_fit_is_refused_in_one_line(dtype):
    packed = PackedWeight(weight_of((8, 4), dtype))
    with pytest.raises(ValueError, match=r"x has shape \[2, 5\], expected \[\*, 4\]"):
        product(torch.zeros(2, 5, dtype=dtype), packed)
    with pytest.raises(ValueError, match=r"x is torch\.float64, expected"):
        product(torch.zeros(2, 4, dtype=torch.float64), packed)


def test_where_packed_products_are_missing_they_are_plain(monkeypatch):
    def missing(*_):
        raise RuntimeError("bf16 path needs the cpu support")

    monkeypatch.setattr(products, "PackedWeight", missing)
    assert not packs.__wrapped__(torch.float32)
    monkeypatch.setattr(products, "packs", packs.__wrapped__)
    weight = weight_of((6, 4), torch.float32)
    matrix, x = Matrix(weight), torch.randn(3, 4)
    assert matrix.weight is weight
    assert torch.equal(matrix(x), linear(x, weight))
