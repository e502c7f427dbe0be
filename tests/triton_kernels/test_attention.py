"""Attention twins against a literal softmax, on caches full of NaN wherever nothing was written."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor

from bench.reference import mixer_oracle
from tests.support.teacher import ints
from triton_kernels.attention import BLOCK, prefill_attention_torch, window_attention_torch

SLOTS = 3
SHAPES = [(4, 2, 16), (6, 3, 20), (3, 1, 7)]
SLIDING = [1, 3, 64, 100]
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


class Case:
    """Caches that hold lengths[slot] rows, and a window of groups of `sizes` at them, then
    padding up to `bucket`."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        lengths: list[int],
        sizes: list[int],
        bucket: int,
        dtype: torch.dtype,
        blocks: int = 3,
    ) -> None:
        torch.manual_seed(0)
        heads, kv_heads, size = shape
        self.lengths, self.sizes, self.scale = lengths, sizes, size**-0.5
        self.q = torch.randn(bucket, heads, size).to(dtype)
        self.k, self.v = (torch.randn(bucket, kv_heads, size).to(dtype) for _ in range(2))
        self.keys, self.values = (
            torch.full((SLOTS, kv_heads, blocks * BLOCK, size), torch.nan, dtype=dtype)
            for _ in range(2)
        )
        for slot, length in enumerate(lengths):
            self.keys[slot, :, :length] = torch.randn(kv_heads, length, size)
            self.values[slot, :, :length] = torch.randn(kv_heads, length, size)
        self.starts = ints([0, *torch.tensor(sizes).cumsum(0).tolist()])
        rows = [
            length + i for length, size in zip(lengths, sizes, strict=True) for i in range(size)
        ]
        self.positions = ints(rows + [0] * (bucket - len(rows)))

    def run(
        self, counts: Tensor | None = None, *, writes: bool = True, sliding: int | None = None
    ) -> Tensor:
        new = (self.k, self.v) if writes else (None, None)
        tensors = (self.q, *new, self.keys, self.values, self.positions, self.starts, counts)
        return window_attention_torch(*tensors, scale=self.scale, sliding=sliding)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "sizes", [(1, 0, 0), (0, 4, 0), (2, 4, 2), (1, 1, 1), (0, 0, 8), (11, 0, 3), (0, 0, 0)], ids=str
)
def test_a_window_is_written_and_attended(
    shape: tuple[int, int, int], sizes: tuple[int, ...], dtype: torch.dtype
):
    case = Case(shape, [0, 62, 130], list(sizes), bucket=16, dtype=dtype)
    keys, values = case.keys.clone(), case.values.clone()
    out = case.run()
    assert not out[sum(sizes) :].any()
    row = 0
    for slot, (length, size) in enumerate(zip(case.lengths, sizes, strict=True)):
        for i in range(size):
            keys[slot, :, length + i], values[slot, :, length + i] = case.k[row], case.v[row]
            expected = mixer_oracle.attend(
                case.q[row],
                keys[slot, :, : length + i + 1],
                values[slot, :, : length + i + 1],
                scale=case.scale,
            )
            torch.testing.assert_close(out[row].double(), expected, atol=TOLERANCES[dtype], rtol=0)
            row += 1
    # nothing else was written
    torch.testing.assert_close(case.keys, keys, equal_nan=True, atol=0, rtol=0)
    torch.testing.assert_close(case.values, values, equal_nan=True, atol=0, rtol=0)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_longer_slot_in_company_changes_no_bit(shape: tuple[int, int, int], dtype: torch.dtype):
    for length in (3, 250, 700):
        alone, beside = (
            Case(shape, [length, 1400, 0], [2, beside, 0], bucket=8, dtype=dtype, blocks=24)
            for beside in (0, 4)
        )
        assert torch.equal(alone.run()[:2], beside.run()[:2])


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("sliding", SLIDING)
def test_a_sliding_window_sees_the_last_rows_only(sliding: int, dtype: torch.dtype):
    """What lies before it may be NaN: with weight 0 it would still show."""
    case = Case(SHAPES[1], [0, 62, 130], [2, 4, 2], bucket=8, dtype=dtype)
    for slot, length in enumerate(case.lengths):
        case.keys[slot, :, : max(0, length - sliding + 1)] = torch.nan
    out = case.run(sliding=sliding)
    row = 0
    for slot, (length, size) in enumerate(zip(case.lengths, case.sizes, strict=True)):
        for own in range(length, length + size):
            seen = slice(max(0, own - sliding + 1), own + 1)
            expected = mixer_oracle.attend(
                case.q[row], case.keys[slot, :, seen], case.values[slot, :, seen], scale=case.scale
            )
            torch.testing.assert_close(out[row].double(), expected, atol=TOLERANCES[dtype], rtol=0)
            row += 1


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("sliding", [None, *SLIDING])
def test_a_row_has_the_same_bits_alone_as_behind_rows_that_see_more_blocks(
    sliding: int | None, dtype: torch.dtype
):
    """A group's blocks begin where its first row's window does: later rows of it see fewer of
    them."""
    for length in (60, 127, 163):
        group, alone = (
            Case(SHAPES[0], [length, 5, 0], [8, 0, 0], bucket=8, dtype=dtype, blocks=4)
            for _ in range(2)
        )
        together = group.run(sliding=sliding)
        for row in range(8):
            alone.q[0], alone.k[0], alone.v[0] = group.q[row], group.k[row], group.v[row]
            alone.positions[0], alone.starts = length + row, ints([0, 1, 1, 1])
            assert torch.equal(alone.run(sliding=sliding)[0], together[row])


@pytest.mark.parametrize("sliding", [None, *SLIDING])
def test_rows_without_keys_of_their_own_read_what_is_there_and_write_nothing(sliding: int | None):
    """As a layer that shares another's cache does, in the same window."""
    case = Case(SHAPES[0], [5, 62, 130], [2, 4, 2], bucket=8, dtype=torch.float32)
    expected = case.run(sliding=sliding)
    before = [case.keys.clone(), case.values.clone()]
    assert torch.equal(case.run(writes=False, sliding=sliding), expected)
    for cache, old in zip((case.keys, case.values), before, strict=True):
        torch.testing.assert_close(cache, old, equal_nan=True, atol=0, rtol=0)


def test_p11_after_a_rejection_a_sliding_window_sees_the_kept_rows_and_those_before():
    """window 4, n = 6, a group of 4 at 6..9 of which two rows are kept: the row at 8 sees 5, 6,
    7, 8."""
    case = Case((1, 1, 16), [6, 0, 0], [4, 0, 0], bucket=8, dtype=torch.float32)
    case.run(sliding=4)
    case.positions[0], case.starts = 8, ints([0, 1, 1, 1])
    expected = deepcopy(case).run(sliding=4)[0]
    found = []
    for place in range(12):
        changed = deepcopy(case)
        changed.values[0, :, place] += 1.0
        changed.v[0] += float(place == 8)  # its own row is written anew
        found += [place] * bool((changed.run(sliding=4)[0] != expected).any())
    assert found == [5, 6, 7, 8]


def test_only_rows_that_count_are_written_and_seen():
    case, other = (
        Case(SHAPES[0], [5, 40, 9], [2, 4, 2], bucket=8, dtype=torch.float32) for _ in range(2)
    )
    other.k[3:6] = other.v[3:6] = other.q[3:6] = torch.nan
    out = case.run(ints([2, 1, 0]))
    assert torch.equal(out, other.run(ints([2, 1, 0])))
    assert out[:3].any(2).all()
    assert not out[3:].any()
    assert case.keys[1, :, 41:].isnan().all()
    assert case.keys[2, :, 9:].isnan().all()


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 100), (37, 64), (150, 1)])
@pytest.mark.parametrize("sliding", [None, *SLIDING])
def test_a_chunk_of_a_prompt(sliding: int | None, start: int, count: int, dtype: torch.dtype):
    case = Case(SHAPES[1], [0, start, 0], [0, 0, 0], bucket=count, dtype=dtype)
    if sliding is not None:
        case.keys[1, :, : max(0, start - sliding + 1)] = torch.nan
    options = {"scale": case.scale, "sliding": sliding}
    out = prefill_attention_torch(
        case.q, case.k, case.v, case.keys, case.values, 1, start, **options
    )
    assert torch.equal(case.keys[1, :, start : start + count], case.k.transpose(0, 1))
    for i, own in enumerate(range(start, start + count)):
        seen = slice(0 if sliding is None else max(0, own - sliding + 1), own + 1)
        expected = mixer_oracle.attend(
            case.q[i], case.keys[1, :, seen], case.values[1, :, seen], scale=case.scale
        )
        torch.testing.assert_close(out[i].double(), expected, atol=TOLERANCES[dtype], rtol=0)
    before = [case.keys.clone(), case.values.clone()]
    assert torch.equal(
        prefill_attention_torch(case.q, None, None, case.keys, case.values, 1, start, **options),
        out,
    )
    for cache, old in zip((case.keys, case.values), before, strict=True):
        torch.testing.assert_close(cache, old, equal_nan=True, atol=0, rtol=0)


def test_refusals_name_the_tensor():
    case = Case(SHAPES[0], [1, 1, 1], [1, 1, 1], bucket=4, dtype=torch.float32)
    case.k = case.k.bfloat16()
    with pytest.raises(ValueError, match=r"k is torch\.bfloat16, expected torch\.float32"):
        case.run()
    with pytest.raises(ValueError, match="k is given alone, expected k and v, or neither"):
        prefill_attention_torch(case.q, case.k, None, case.keys, case.values, 0, 0, scale=1.0)
    with pytest.raises(ValueError, match="sliding is 0, expected at least 1"):
        case.run(writes=False, sliding=0)
    case.k, case.keys = case.k.float(), case.keys[:, :, 1:]
    with pytest.raises(ValueError, match="values has shape"):
        case.run()
    case.values = case.values[:, :, 1:]
    with pytest.raises(ValueError, match="capacity is 191"):
        case.run()
    with pytest.raises(ValueError, match=r"tokens 190\.\.193 of slot 0 do not fit"):
        prefill_attention_torch(case.q, case.k, case.v, case.keys, case.values, 0, 190, scale=1.0)
