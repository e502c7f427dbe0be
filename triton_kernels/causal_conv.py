"""A short causal convolution per channel, then SiLU. Its state is a slot's last taps - 1 inputs,
oldest first."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import silu

from triton_kernels.checks import require
from triton_kernels.launch import UNFUSED, cpu_kernels, kernel, operation, row_by_row, tl
from triton_kernels.layout import HostGroup, host_groups

CHANNELS = 256  # of one program
WARPS = 2


@kernel
def causal_conv_verify_kernel(
    x_ptr,
    weight_ptr,
    states_ptr,
    starts_ptr,
    out_ptr,
    stride,
    channels,
    TAPS: tl.constexpr,
    CHANNEL_TILE: tl.constexpr,
):
    """Grid (channel tiles, slots). Every row sums its taps, oldest first: from the slot's past,
    then from the window."""
    past: tl.constexpr = TAPS - 1
    slot = tl.program_id(1)
    channel = tl.program_id(0) * CHANNEL_TILE + tl.arange(0, CHANNEL_TILE)
    known = channel < channels
    first, last = tl.load(starts_ptr + slot), tl.load(starts_ptr + slot + 1)
    state_ptr = states_ptr + slot.to(tl.int64) * (past * channels) + channel
    for row in range(first, last):
        total = tl.zeros_like(channel).to(tl.float32)
        for tap in tl.static_range(TAPS):
            line = row - first + tap + tl.zeros_like(channel)
            old = tl.load(state_ptr + line * channels, mask=known & (line < past), other=0.0)
            new = tl.load(
                x_ptr + (first + line - past) * stride + channel,
                mask=known & (line >= past),
                other=0.0,
            )
            total += tl.where(line < past, old, new) * tl.load(
                weight_ptr + tap * channels + channel, mask=known, other=0.0
            )
        tl.store(out_ptr + row * channels + channel, total / (1.0 + tl.exp(-total)), mask=known)


@kernel
def causal_conv_commit_kernel(
    states_ptr,
    inputs_ptr,
    starts_ptr,
    kept_ptr,
    inputs_layer: tl.int64,
    slots,
    channels,
    PAST: tl.constexpr,
    CHANNEL_TILE: tl.constexpr,
):
    """Grid (channel tiles, slots, layers). A line comes from further on, so in ascending order
    none is lost; a thread owns its channels."""
    slot, layer = tl.program_id(1), tl.program_id(2)
    channel = tl.program_id(0) * CHANNEL_TILE + tl.arange(0, CHANNEL_TILE)
    known = channel < channels
    first = tl.load(starts_ptr + slot)
    kept = tl.minimum(tl.load(starts_ptr + slot + 1) - first, tl.load(kept_ptr + slot))
    if kept > 0:
        state_ptr = states_ptr + (layer.to(tl.int64) * slots + slot) * (PAST * channels) + channel
        input_ptr = inputs_ptr + layer * inputs_layer + channel
        for line in tl.static_range(PAST):
            source = line + kept + tl.zeros_like(channel)
            old = tl.load(state_ptr + source * channels, mask=known & (source < PAST), other=0.0)
            new = tl.load(
                input_ptr + (first + source - PAST) * channels,
                mask=known & (source >= PAST),
                other=0.0,
            )
            tl.store(state_ptr + line * channels, tl.where(source < PAST, old, new), mask=known)


def _launch_verify(x: Tensor, weight: Tensor, states: Tensor, starts: Tensor) -> Tensor:
    _check_verify(x, weight, states, starts)
    for name, tensor in (("weight", weight), ("states", states), ("starts", starts)):
        require(name, tensor, shape=[None] * tensor.ndim, dtypes=[tensor.dtype], dense=True)
    require("x", x[:1], shape=[None, None], dtypes=[x.dtype], dense=True)
    (rows, channels), slots = x.shape, states.shape[0]
    out = torch.empty(rows, channels, dtype=x.dtype, device=x.device)
    if rows and slots:
        tile = {"TAPS": weight.shape[0], "CHANNEL_TILE": CHANNELS}
        causal_conv_verify_kernel[-(-channels // CHANNELS), slots](
            x,
            weight,
            states,
            starts,
            out,
            x.stride(0),
            channels,
            **tile,
            num_warps=WARPS,
            **UNFUSED,
        )
    return out


def _launch_commit(states: Tensor, inputs: Tensor, starts: Tensor, kept: Tensor) -> None:
    _check_commit(states, inputs, starts, kept)
    for name, tensor in (
        ("states", states),
        ("inputs", inputs),
        ("starts", starts),
        ("kept", kept),
    ):
        require(name, tensor, shape=[None] * tensor.ndim, dtypes=[tensor.dtype], dense=True)
    layers, slots, past, channels = states.shape
    if states.numel():
        tile = {"PAST": past, "CHANNEL_TILE": CHANNELS}
        causal_conv_commit_kernel[-(-channels // CHANNELS), slots, layers](
            states,
            inputs,
            starts,
            kept,
            inputs.stride(0),
            slots,
            channels,
            **tile,
            num_warps=WARPS,
            **UNFUSED,
        )


def causal_conv_verify_torch(x: Tensor, weight: Tensor, states: Tensor, starts: Tensor) -> Tensor:
    """Of a window's rows: [rows, channels] fp32. Changes nothing; padding rows give anything.

    x: [rows, channels], weight: [taps, channels], states: [slots, taps - 1, channels], all fp32.
    starts: [slots + 1] int32. Raises ValueError, one line, for a wrong shape, dtype or device.
    """
    _check_verify(x, weight, states, starts)
    rows, channels = x.shape
    taps, slots = weight.shape[0], states.shape[0]
    lines = torch.cat([states.reshape(-1, channels), x])
    source = _sources(host_groups(starts), rows, slots, taps, x.device)
    return _silu_of_sum(lines[source] * weight)


@lru_cache(maxsize=256)
def _sources(
    groups: tuple[HostGroup, ...], rows: int, slots: int, taps: int, device: torch.device
) -> Tensor:
    """[rows, taps] long: where the inputs of each row lie among the states' lines and then the
    window's."""
    past = taps - 1
    table = [[0] * taps for _ in range(rows)]
    for slot, first, count in groups:
        line = [slot * past + i for i in range(past)] + [
            slots * past + first + i for i in range(count)
        ]
        for i in range(count):
            table[first + i] = line[i : i + taps]
    return torch.tensor(table, dtype=torch.long, device=device)


def _silu_of_sum(terms: Tensor) -> Tensor:
    """Over dim 1 of [rows, taps, channels].

    On a CPU the vectorised SiLU and the scalar one that ends a contiguous stretch differ in the
    last bit, so a row's bits would depend on its place: rows with a gap between them are walked
    one by one."""
    rows, _, channels = terms.shape
    gapped = torch.empty(rows, channels + 1, dtype=terms.dtype, device=terms.device)[:, :channels]
    return silu(torch.sum(terms, 1, out=gapped))


def causal_conv_commit_torch(states: Tensor, inputs: Tensor, starts: Tensor, kept: Tensor) -> None:
    """The first kept[slot] rows of each group become part of the states, in place, for all layers
    at once.

    states: [layers, slots, taps - 1, channels], inputs: [layers, rows, channels] of the window
    verified last, fp32. starts: [slots + 1], kept: [slots] int32. Raises ValueError, one line, for
    a wrong shape, dtype or device.
    """
    _check_commit(states, inputs, starts, kept)
    for slot, first, rows in host_groups(starts, kept):
        line = torch.cat([states[:, slot], inputs[:, first : first + rows]], 1)
        states[:, slot] = line[:, rows:]


def causal_conv_prefill_torch(x: Tensor, weight: Tensor, state: Tensor) -> Tensor:
    """A chunk of a prompt: [n, channels] fp32.

    x: [n, channels], weight: [taps, channels], state: [taps - 1, channels], moved on in place, all
    fp32. Raises ValueError, one line, for a wrong shape, dtype or device.
    """
    count, channels = x.shape
    taps = weight.shape[0]
    require("x", x, shape=[None, None], dtypes=[torch.float32])
    require("weight", weight, shape=[None, channels], dtypes=[torch.float32], like=x)
    require("state", state, shape=[taps - 1, channels], dtypes=[torch.float32], like=x)
    line = torch.cat([state, x])
    state.copy_(line[count:])
    return _silu_of_sum(line.unfold(0, taps, 1).transpose(1, 2) * weight)


def _check_verify(x: Tensor, weight: Tensor, states: Tensor, starts: Tensor) -> None:
    require("x", x, shape=[None, None], dtypes=[torch.float32])
    channels = x.shape[1]
    require("weight", weight, shape=[None, channels], dtypes=[torch.float32], like=x)
    require(
        "states",
        states,
        shape=[None, weight.shape[0] - 1, channels],
        dtypes=[torch.float32],
        like=x,
    )
    require("starts", starts, shape=[states.shape[0] + 1], dtypes=[torch.int32], like=x)


def _check_commit(states: Tensor, inputs: Tensor, starts: Tensor, kept: Tensor) -> None:
    require("states", states, shape=[None, None, None, None], dtypes=[torch.float32])
    layers, slots, _, channels = states.shape
    require("inputs", inputs, shape=[layers, None, channels], dtypes=[torch.float32], like=states)
    require("starts", starts, shape=[slots + 1], dtypes=[torch.int32], like=states)
    require("kept", kept, shape=[slots], dtypes=[torch.int32], like=states)


def _verify_on_cpu(x: Tensor, weight: Tensor, states: Tensor, starts: Tensor) -> Tensor:
    kernels = cpu_kernels("causal_conv")
    dense = row_by_row(x) and all(each.is_contiguous() for each in (weight, states, starts))
    if kernels is None or not dense:
        return causal_conv_verify_torch(x, weight, states, starts)
    _check_verify(x, weight, states, starts)
    return kernels.causal_conv_verify_cpu(x, weight, states, starts)


def _commit_on_cpu(states: Tensor, inputs: Tensor, starts: Tensor, kept: Tensor) -> None:
    kernels = cpu_kernels("causal_conv")
    dense = row_by_row(inputs) and all(x.is_contiguous() for x in (states, starts, kept))
    if kernels is None or not dense:
        return causal_conv_commit_torch(states, inputs, starts, kept)
    _check_commit(states, inputs, starts, kept)
    return kernels.causal_conv_commit_cpu(states, inputs, starts, kept)


_verify = operation(
    "causal_conv_verify(Tensor x, Tensor weight, Tensor states, Tensor starts) -> Tensor",
    cpu=_verify_on_cpu,
    cuda=_launch_verify,
)
_commit = operation(
    "causal_conv_commit(Tensor(a!) states, Tensor inputs, Tensor starts, Tensor kept) -> ()",
    cpu=_commit_on_cpu,
    cuda=_launch_commit,
)


def causal_conv_verify(x: Tensor, weight: Tensor, states: Tensor, starts: Tensor) -> Tensor:
    """See `causal_conv_verify_torch`. One launch to a capture."""
    return _verify(x, weight, states, starts)


def causal_conv_commit(states: Tensor, inputs: Tensor, starts: Tensor, kept: Tensor) -> None:
    """See `causal_conv_commit_torch`. One launch to a capture."""
    _commit(states, inputs, starts, kept)


causal_conv_prefill = causal_conv_prefill_torch
