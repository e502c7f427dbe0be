"""Convolution twins against a literal loop."""

from __future__ import annotations

import pytest
import torch

from bench.reference import mixer_oracle
from tests.support.teacher import ints
from triton_kernels.causal_conv import (
    causal_conv_commit_torch,
    causal_conv_prefill_torch,
    causal_conv_verify_torch,
)

SLOTS = 3


@pytest.mark.parametrize(("taps", "channels"), [(4, 32), (3, 19), (2, 1)])
@pytest.mark.parametrize(
    "sizes", [(1, 0, 0), (0, 4, 0), (2, 4, 2), (1, 1, 1), (0, 0, 8), (0, 0, 0)], ids=str
)
def test_a_window_and_its_commit(taps: int, channels: int, sizes: tuple[int, ...]):
    torch.manual_seed(0)
    x, weight, states = (
        torch.randn(8, channels),
        torch.randn(taps, channels),
        torch.randn(SLOTS, taps - 1, channels),
    )
    before = states.clone()
    starts = ints([0, *torch.tensor(sizes).cumsum(0).tolist()])
    out = causal_conv_verify_torch(x, weight, states, starts)
    assert torch.equal(states, before)
    kept = [min(size, wanted) for size, wanted in zip(sizes, (1, 3, 5), strict=True)]
    layers, inputs = torch.stack([states, states]), torch.stack([x, 2 * x])
    causal_conv_commit_torch(layers, inputs, starts, ints(kept))
    for slot, (first, size) in enumerate(zip(starts.tolist(), sizes, strict=False)):
        line = torch.cat([before[slot], x[first : first + size]])
        if size:
            torch.testing.assert_close(
                out[first : first + size].double(),
                mixer_oracle.convolve(line, weight),
                atol=1e-5,
                rtol=0,
            )
        assert torch.equal(layers[0, slot], line[kept[slot] : kept[slot] + taps - 1])
        assert torch.equal(
            layers[1, slot],
            torch.cat([before[slot], 2 * x[first : first + size]])[
                kept[slot] : kept[slot] + taps - 1
            ],
        )


@pytest.mark.parametrize("channels", [1, 19, 33])
def test_a_row_has_the_same_bits_anywhere_in_a_window(channels: int):
    torch.manual_seed(1)
    weight, states, row = (
        torch.randn(4, channels),
        torch.randn(8, 3, channels),
        torch.randn(channels),
    )
    states[:] = states[0]
    out = causal_conv_verify_torch(row.expand(8, -1).contiguous(), weight, states, ints(range(9)))
    assert torch.equal(out, out[:1].expand(8, -1))


@pytest.mark.parametrize("count", [1, 2, 40])
def test_a_prompt_in_one_or_two_chunks(count: int):
    torch.manual_seed(2)
    x, weight = torch.randn(count + 3, 19), torch.randn(4, 19)
    whole, chunked = torch.zeros(3, 19), torch.zeros(3, 19)
    out = causal_conv_prefill_torch(x, weight, whole)
    torch.testing.assert_close(
        out.double(),
        mixer_oracle.convolve(torch.cat([torch.zeros(3, 19), x]), weight),
        atol=1e-5,
        rtol=0,
    )
    parts = [causal_conv_prefill_torch(part, weight, chunked) for part in (x[:count], x[count:])]
    torch.testing.assert_close(torch.cat(parts), out, atol=1e-6, rtol=0)
    assert torch.equal(whole, x[-3:])
    assert torch.equal(chunked, whole)


def test_refusals_name_the_tensor():
    x, weight = torch.zeros(2, 5), torch.zeros(4, 5)
    with pytest.raises(ValueError, match=r"states has shape \[1, 2, 5\], expected \[\*, 3, 5\]"):
        causal_conv_verify_torch(x, weight, torch.zeros(1, 2, 5), ints([0, 2]))
    with pytest.raises(ValueError, match=r"x is torch\.bfloat16, expected torch\.float32"):
        causal_conv_prefill_torch(x.bfloat16(), weight, torch.zeros(3, 5))
