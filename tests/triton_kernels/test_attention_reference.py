"""The twins against plain float64, on windows that hypothesis makes up."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bench.inputs.mixers import AttentionData, attention_data, random_delta, to
from tests.triton_kernels.test_gated_delta import Rows, literal
from triton_kernels.attention import window_attention_torch
from triton_kernels.gated_delta import gated_delta_commit_torch, gated_delta_verify_torch

# of the largest value; see docs/kernels.md
ERROR = {
    torch.float32: 4e-6,
    torch.bfloat16: 1e-2,
    torch.float16: 2e-3,
}


def reference(data: AttentionData) -> Tensor:
    """[rows, heads, size] in float64: row by row, over all that a row sees and nothing else."""
    out = torch.zeros(data.q.shape, dtype=torch.float64)
    share = data.q.shape[1] // data.k.shape[1]
    for slot, first, rows in data.groups():
        for row in range(first, first + rows):
            length = int(data.positions[first])
            keys = torch.cat(
                [data.keys[slot, :, :length], data.k[first : row + 1].transpose(0, 1)], 1
            )
            values = torch.cat(
                [data.values[slot, :, :length], data.v[first : row + 1].transpose(0, 1)], 1
            )
            seen = slice(-data.sliding if data.sliding else None, None)
            keys, values = (x[:, seen].double().repeat_interleave(share, 0) for x in (keys, values))
            scores = (keys @ data.q[row].double()[:, :, None])[..., 0] * data.scale  # [heads, n]
            if data.softcap:
                scores = data.softcap * torch.tanh(scores / data.softcap)
            out[row] = (scores.softmax(1)[..., None] * values).sum(1)
    return out


@st.composite
def attention_windows(draw: st.DrawFn) -> AttentionData:
    """Lengths from 0, groups of 0 to 8 rows, sliding windows shorter than a group, huge numbers
    beyond every length."""
    dtype = draw(st.sampled_from(list(ERROR)))
    slots = draw(st.integers(1, 3))
    sizes = [draw(st.integers(0, 8)) for _ in range(slots)]
    return attention_data(
        draw(st.integers(0, 99)),
        lengths=[
            draw(st.sampled_from((0, 1, 63, 64, 100, 130)) | st.integers(0, 200))
            for _ in range(slots)
        ],
        sizes=sizes,
        bucket=sum(sizes) + draw(st.integers(1, 2)),
        shape=draw(st.sampled_from(((4, 2, 16), (6, 3, 20), (3, 1, 7)))),
        dtype=dtype,
        counts=draw(st.none() | st.just([draw(st.integers(0, 9)) for _ in sizes])),
        sliding=draw(st.none() | st.integers(1, 80)),
        softcap=draw(st.none() | st.sampled_from((0.5, 30.0))),
        poison=draw(st.sampled_from((torch.nan, torch.finfo(dtype).max, -torch.finfo(dtype).max))),
    )


@settings(max_examples=120, deadline=None)
@given(attention_windows())
def test_attention(data: AttentionData):
    want = reference(data)
    out = window_attention_torch(*data.tensors(), **data.options)
    torch.testing.assert_close(
        out.double(), want, atol=ERROR[out.dtype] * max(1.0, float(data.v.abs().max())), rtol=0
    )


@pytest.mark.parametrize("only", range(3))
def test_all_slots_empty_but_one(only: int):
    sizes = [2 if slot == only else 0 for slot in range(3)]
    for length in (0, 1, 200):
        data = attention_data(
            length, lengths=[length] * 3, sizes=sizes, poison=torch.finfo(torch.float32).max
        )
        want = reference(data)
        torch.testing.assert_close(
            window_attention_torch(*data.tensors(), **data.options).double(),
            want,
            atol=4e-6,
            rtol=0,
        )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_delta_rule(seed: int):
    """Verify and commit of groups of 0 to 8 rows: the outputs, and the states that the kept rows
    leave."""
    data = random_delta(seed)
    twin = to(data, "cpu")
    rows = Rows(*(x.double() for x in data.verify_arguments()[:5]))
    out = gated_delta_verify_torch(*data.verify_arguments(), deltas=data.deltas)
    states, *rest = data.commit_arguments()
    gated_delta_commit_torch(states, *rest)
    for slot, (first, stop) in enumerate(
        zip(data.starts.tolist(), data.starts.tolist()[1:], strict=False)
    ):
        here = list(range(first, stop))
        want, _ = literal(rows, twin.states[slot], here)
        torch.testing.assert_close(out[first:stop].double(), want.double(), atol=1e-5, rtol=0)
        _, after = literal(rows, twin.states[slot], here[: int(data.kept[slot])])
        torch.testing.assert_close(states[0, slot].double(), after, atol=1e-5, rtol=0)
