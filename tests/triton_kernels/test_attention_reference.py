"""The twins against plain float64, on windows that hypothesis makes up."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.inputs.mixers import AttentionData, attention_data, random_delta, to
from bench.reference import mixer_oracle
from triton_kernels.attention import window_attention_torch
from triton_kernels.gated_delta import gated_delta_verify_torch
from triton_kernels.gated_delta_commit import gated_delta_commit_torch

# of the largest value; see docs/kernels.md
ERROR = {
    torch.float32: 4e-6,
    torch.bfloat16: 1e-2,
    torch.float16: 2e-3,
}


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
    want = mixer_oracle.attention(data)
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
        want = mixer_oracle.attention(data)
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
    before = to(data, "cpu")
    out = gated_delta_verify_torch(*data.verify_arguments(), deltas=data.deltas)
    states, *rest = data.commit_arguments()
    gated_delta_commit_torch(states, *rest)
    want, deltas = mixer_oracle.delta_verify(before)
    real = int(data.starts[-1])
    torch.testing.assert_close(out[:real].double(), want[:real], atol=1e-5, rtol=0)
    torch.testing.assert_close(data.deltas[:real].double(), deltas[:real], atol=1e-5, rtol=0)
    rows = (before.q, before.k, before.v, before.decay, before.beta)
    for slot, (first, end) in enumerate(pairwise(data.starts.tolist())):
        kept = slice(first, min(end, first + int(data.kept[slot])))
        *_, after = mixer_oracle.delta_rule(*(x[kept] for x in rows), before.states[slot])
        torch.testing.assert_close(states[0, slot].double(), after, atol=1e-5, rtol=0)
