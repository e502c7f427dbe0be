"""A short causal convolution per channel, then SiLU. Its state is a slot's last taps - 1 inputs, oldest first."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import silu

from triton_kernels.checks import require
from triton_kernels.launch import operation
from triton_kernels.layout import Group, host_groups


def causal_conv_verify_torch(x: Tensor, weight: Tensor, states: Tensor, starts: Tensor) -> Tensor:
    """Of a window's rows: [rows, channels] fp32. Changes nothing; padding rows give anything.

    x: [rows, channels], weight: [taps, channels], states: [slots, taps - 1, channels], all fp32. starts: [slots + 1] int32.
    """
    rows, channels = x.shape
    taps, slots = weight.shape[0], states.shape[0]
    require("x", x, shape=[None, None], dtypes=[torch.float32])
    require("weight", weight, shape=[None, channels], dtypes=[torch.float32], like=x)
    require("states", states, shape=[None, taps - 1, channels], dtypes=[torch.float32], like=x)
    require("starts", starts, shape=[slots + 1], dtypes=[torch.int32], like=x)
    lines = torch.cat([states.reshape(-1, channels), x])
    source = _sources(host_groups(starts), rows, slots, taps, x.device)
    return _silu_of_sum(lines[source] * weight)


@lru_cache(maxsize=256)
def _sources(groups: tuple[Group, ...], rows: int, slots: int, taps: int, device: torch.device) -> Tensor:
    """[rows, taps] long: where the inputs of each row lie among the states' lines and then the window's."""
    past = taps - 1
    table = [[0] * taps for _ in range(rows)]
    for slot, first, count in groups:
        line = [slot * past + i for i in range(past)] + [slots * past + first + i for i in range(count)]
        for i in range(count):
            table[first + i] = line[i : i + taps]
    return torch.tensor(table, dtype=torch.long, device=device)


def _silu_of_sum(terms: Tensor) -> Tensor:
    """Over dim 1 of [rows, taps, channels].

    On a CPU the vectorised SiLU and the scalar one that ends a contiguous stretch differ in the last bit, so a row's bits
    would depend on its place: rows with a gap between them are walked one by one."""
    rows, _, channels = terms.shape
    gapped = torch.empty(rows, channels + 1, dtype=terms.dtype, device=terms.device)[:, :channels]
    return silu(torch.sum(terms, 1, out=gapped))


def causal_conv_commit_torch(states: Tensor, inputs: Tensor, starts: Tensor, kept: Tensor) -> None:
    """The first kept[slot] rows of each group become part of the states, in place, for all layers at once.

    states: [layers, slots, taps - 1, channels], inputs: [layers, rows, channels] of the window verified last, fp32.
    starts: [slots + 1], kept: [slots] int32.
    """
    layers, slots, _, channels = states.shape
    require("states", states, shape=[None, None, None, None], dtypes=[torch.float32])
    require("inputs", inputs, shape=[layers, None, channels], dtypes=[torch.float32], like=states)
    require("starts", starts, shape=[slots + 1], dtypes=[torch.int32], like=states)
    require("kept", kept, shape=[slots], dtypes=[torch.int32], like=states)
    for slot, first, rows in host_groups(starts, kept):
        line = torch.cat([states[:, slot], inputs[:, first : first + rows]], 1)
        states[:, slot] = line[:, rows:]


def causal_conv_prefill_torch(x: Tensor, weight: Tensor, state: Tensor) -> Tensor:
    """A chunk of a prompt: [n, channels] fp32. x: [n, channels], weight: [taps, channels], state: [taps - 1, channels], moved on."""
    count, channels = x.shape
    taps = weight.shape[0]
    require("x", x, shape=[None, None], dtypes=[torch.float32])
    require("weight", weight, shape=[None, channels], dtypes=[torch.float32], like=x)
    require("state", state, shape=[taps - 1, channels], dtypes=[torch.float32], like=x)
    line = torch.cat([state, x])
    state.copy_(line[count:])
    return _silu_of_sum(line.unfold(0, taps, 1).transpose(1, 2) * weight)


_verify = operation(
    "causal_conv_verify(Tensor x, Tensor weight, Tensor states, Tensor starts) -> Tensor",
    cpu=causal_conv_verify_torch,
    cuda=causal_conv_verify_torch,
)
_commit = operation(
    "causal_conv_commit(Tensor(a!) states, Tensor inputs, Tensor starts, Tensor kept) -> ()",
    cpu=causal_conv_commit_torch,
    cuda=causal_conv_commit_torch,
)


def causal_conv_verify(x: Tensor, weight: Tensor, states: Tensor, starts: Tensor) -> Tensor:
    """See `causal_conv_verify_torch`. One launch to a capture."""
    return _verify(x, weight, states, starts)


def causal_conv_commit(states: Tensor, inputs: Tensor, starts: Tensor, kept: Tensor) -> None:
    """See `causal_conv_commit_torch`. One launch to a capture."""
    _commit(states, inputs, starts, kept)


causal_conv_prefill = causal_conv_prefill_torch
