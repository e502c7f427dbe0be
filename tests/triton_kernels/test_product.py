"""Products of packed weights against plain ones: values, bits by row count, copies, refusals."""

from __future__ import annotations

import copy
import gc

import pytest
import torch
from torch.nn.functional import linear

from triton_kernels import product as products
from triton_kernels.launch import cpu_kernels
from triton_kernels.product import LARGE, Matrix, OneDnn, PackedWeight, Panels, packs, product

SHAPES = [(576, 1536), (3, 5), (130, 64), (1, 7)]
DTYPES = [torch.float32, torch.bfloat16]
# of this CPU
FORMS = [(OneDnn, dtype) for dtype in DTYPES if packs(dtype)]
FORMS += [(Panels, dtype) for dtype in DTYPES if cpu_kernels("product")]
CLOSE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def weight_of(shape, dtype):
    torch.manual_seed(0)
    return (torch.randn(shape) / shape[1] ** 0.5).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
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
    assert torch.equal(matrix(x.unflatten(0, (4, 10))), matrix(x).unflatten(0, (4, 10)))
    x = x.contiguous().requires_grad_()
    matrix(x).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand_as(x), atol=0.1, rtol=0)


@pytest.mark.parametrize(("form", "dtype"), FORMS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_from_two_rows_on_a_row_has_the_same_bits(shape, form, dtype):
    weight = weight_of(shape, dtype)
    packed, x = PackedWeight(weight, form), torch.randn(16, shape[1]).to(dtype)
    whole = product(x, packed)
    assert torch.equal(packed.form.unpacked(), weight)
    torch.testing.assert_close(
        whole.double(), x.double() @ weight.double().T, atol=CLOSE[dtype], rtol=0
    )
    for rows in range(1 if form is Panels else 2, 16):
        for first in (0, 16 - rows):
            here = slice(first, first + rows)
            assert torch.equal(product(x[here], packed), whole[here])


@pytest.mark.parametrize("threads", [2, 5])
def test_threads_change_no_bit(threads):
    if not cpu_kernels("product"):
        pytest.skip("Numba is not installed")
    packed = PackedWeight(weight_of((2000, 300), torch.bfloat16), Panels)
    x, before = torch.randn(9, 300).bfloat16(), torch.get_num_threads()
    one = product(x, packed)
    torch.set_num_threads(threads)
    try:
        assert torch.equal(product(x, packed), one)
    finally:
        torch.set_num_threads(before)


def test_no_rows_give_no_rows():
    for dtype in DTYPES:
        assert Matrix(weight_of((6, 4), dtype))(torch.zeros(0, 4, dtype=dtype)).shape == (0, 6)


def test_which_form_a_weight_takes(monkeypatch):
    small, large = torch.zeros(8, 8), torch.zeros(LARGE // 8, 8)
    ours = cpu_kernels("product")
    monkeypatch.setattr(products, "packs", lambda dtype: dtype == torch.float32)
    assert products.form_of(small) is (Panels if ours else OneDnn)
    assert products.form_of(large) is OneDnn
    assert products.form_of(large.bfloat16()) is (Panels if ours else None)
    assert products.form_of(small.half()) is None
    assert products.form_of(small.to("meta")) is None
    monkeypatch.setattr(products, "cpu_kernels", lambda name: None)
    assert products.form_of(small) is OneDnn
    monkeypatch.setattr(products, "packs", lambda dtype: False)
    weight, x = weight_of((6, 4), torch.float32), torch.randn(3, 4)
    matrix = Matrix(weight)
    assert matrix.weight is weight
    assert torch.equal(matrix(x), linear(x, weight))


def test_a_oneDNN_that_lacks_a_dtype_is_not_used(monkeypatch):
    def missing(*_):
        raise RuntimeError("bf16 path needs the cpu support")

    monkeypatch.setattr(products, "OneDnn", missing)
    assert not packs.__wrapped__(torch.float32)


@pytest.mark.parametrize(("form", "dtype"), FORMS, ids=str)
def test_the_packed_weight_goes_with_its_last_holder(form, dtype):
    packed = PackedWeight(weight_of((8, 8), dtype), form)
    other, number = copy.deepcopy(packed), packed.number
    del packed
    gc.collect()
    assert number in products._packed
    del other
    gc.collect()
    assert number not in products._packed


@pytest.mark.parametrize(("form", "dtype"), FORMS, ids=str)
def test_what_does_not_fit_is_refused_in_one_line(form, dtype):
    packed = PackedWeight(weight_of((8, 4), dtype), form)
    with pytest.raises(ValueError, match=r"x has shape \[2, 5\], expected \[\*, 4\]"):
        product(torch.zeros(2, 5, dtype=dtype), packed)
    with pytest.raises(ValueError, match=r"x is torch\.float64, expected"):
        product(torch.zeros(2, 4, dtype=torch.float64), packed)
