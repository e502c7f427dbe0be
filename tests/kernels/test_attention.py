"""Attention twins against a literal softmax, on caches full of NaN wherever nothing was written."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.teacher import ints
from triton_kernels.attention import BLOCK, prefill_attention_torch, window_attention_torch

SLOTS = 3
SHAPES = [(4, 2, 16), (6, 3, 20), (3, 1, 7)]
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def literal(q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """One query row q [heads, size] over all of keys, values [kv heads, n, size]."""
    share = q.shape[0] // keys.shape[0]
    keys, values = (x.double().repeat_interleave(share, 0) for x in (keys, values))
    weights = (keys @ q.double()[:, :, None] * scale).softmax(1)  # [heads, n, 1]
    return (weights * values).sum(1)


class Case:
    """Caches that hold lengths[slot] rows, and a window of groups of `sizes` at them, then padding up to `bucket`."""

    def __init__(
        self, shape: tuple[int, int, int], lengths: list[int], sizes: list[int], bucket: int, dtype: torch.dtype, blocks: int = 3
    ) -> None:
        torch.manual_seed(0)
        heads, kv_heads, size = shape
        self.lengths, self.sizes, self.scale = lengths, sizes, size**-0.5
        self.q = torch.randn(bucket, heads, size).to(dtype)
        self.k, self.v = (torch.randn(bucket, kv_heads, size).to(dtype) for _ in range(2))
        self.keys, self.values = (torch.full((SLOTS, kv_heads, blocks * BLOCK, size), torch.nan, dtype=dtype) for _ in range(2))
        for slot, length in enumerate(lengths):
            self.keys[slot, :, :length] = torch.randn(kv_heads, length, size)
            self.values[slot, :, :length] = torch.randn(kv_heads, length, size)
        self.starts = ints([0, *torch.tensor(sizes).cumsum(0).tolist()])
        rows = [length + i for length, size in zip(lengths, sizes, strict=True) for i in range(size)]
        self.positions = ints(rows + [0] * (bucket - len(rows)))

    def run(self, counts: Tensor | None = None) -> Tensor:
        tensors = (self.q, self.k, self.v, self.keys, self.values, self.positions, self.starts, counts)
        return window_attention_torch(*tensors, scale=self.scale)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("sizes", [(1, 0, 0), (0, 4, 0), (2, 4, 2), (1, 1, 1), (0, 0, 8), (11, 0, 3), (0, 0, 0)], ids=str)
def test_a_window_is_written_and_attended(shape: tuple[int, int, int], sizes: tuple[int, ...], dtype: torch.dtype):
    case = Case(shape, [0, 62, 130], list(sizes), bucket=16, dtype=dtype)
    keys, values = case.keys.clone(), case.values.clone()
    out = case.run()
    assert not out[sum(sizes) :].any()
    row = 0
    for slot, (length, size) in enumerate(zip(case.lengths, sizes, strict=True)):
        for i in range(size):
            keys[slot, :, length + i], values[slot, :, length + i] = case.k[row], case.v[row]
            expected = literal(case.q[row], keys[slot, :, : length + i + 1], values[slot, :, : length + i + 1], case.scale)
            torch.testing.assert_close(out[row].double(), expected, atol=TOLERANCES[dtype], rtol=0)
            row += 1
    torch.testing.assert_close(case.keys, keys, equal_nan=True, atol=0, rtol=0)  # nothing else was written
    torch.testing.assert_close(case.values, values, equal_nan=True, atol=0, rtol=0)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_longer_slot_in_company_changes_no_bit(shape: tuple[int, int, int], dtype: torch.dtype):
    for length in (3, 250, 700):
        alone, beside = (Case(shape, [length, 1400, 0], [2, beside, 0], bucket=8, dtype=dtype, blocks=24) for beside in (0, 4))
        assert torch.equal(alone.run()[:2], beside.run()[:2])


def test_only_rows_that_count_are_written_and_seen():
    case, other = (Case(SHAPES[0], [5, 40, 9], [2, 4, 2], bucket=8, dtype=torch.float32) for _ in range(2))
    other.k[3:6] = other.v[3:6] = other.q[3:6] = torch.nan
    out = case.run(ints([2, 1, 0]))
    assert torch.equal(out, other.run(ints([2, 1, 0])))
    assert out[:3].any(2).all()
    assert not out[3:].any()
    assert case.keys[1, :, 41:].isnan().all()
    assert case.keys[2, :, 9:].isnan().all()


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 100), (37, 64), (150, 1)])
def test_a_chunk_of_a_prompt(start: int, count: int, dtype: torch.dtype):
    case = Case(SHAPES[1], [0, start, 0], [0, 0, 0], bucket=count, dtype=dtype)
    out = prefill_attention_torch(case.q, case.k, case.v, case.keys, case.values, 1, start, scale=case.scale)
    assert torch.equal(case.keys[1, :, start : start + count], case.k.transpose(0, 1))
    for i in range(count):
        expected = literal(case.q[i], case.keys[1, :, : start + i + 1], case.values[1, :, : start + i + 1], case.scale)
        torch.testing.assert_close(out[i].double(), expected, atol=TOLERANCES[dtype], rtol=0)


def test_refusals_name_the_tensor():
    case = Case(SHAPES[0], [1, 1, 1], [1, 1, 1], bucket=4, dtype=torch.float32)
    case.k = case.k.bfloat16()
    with pytest.raises(ValueError, match=r"k is torch\.bfloat16, expected torch\.float32"):
        case.run()
    case.k, case.keys = case.k.float(), case.keys[:, :, 1:]
    with pytest.raises(ValueError, match="values has shape"):
        case.run()
    case.values = case.values[:, :, 1:]
    with pytest.raises(ValueError, match="capacity is 191"):
        case.run()
    with pytest.raises(ValueError, match=r"tokens 190\.\.193 of slot 0 do not fit"):
        prefill_attention_torch(case.q, case.k, case.v, case.keys, case.values, 0, 190, scale=1.0)
