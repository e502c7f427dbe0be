"""The causal convolution on a CPU, its channels side by side."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from triton_kernels.cpu.jit import F32, compiled, entry, exp, tensor


@compiled
def silu(line):
    """In place."""
    for c in range(len(line)):
        x = line[c]
        small = exp(-abs(x))
        line[c] = (x if x >= F32(0) else x * small) / (F32(1) + small)


@entry
def _verify(x_at, weight_at, states_at, starts_at, out_at, stride, forms):
    rows, channels, taps, slots = forms
    x, weight = tensor(x_at, (rows, stride), F32), tensor(weight_at, (taps, channels), F32)
    states = tensor(states_at, (slots, taps - 1, channels), F32)
    starts = tensor(starts_at, (slots + 1,), np.int32)
    out = tensor(out_at, (rows, channels), F32)
    for slot in range(slots):
        first = starts[slot]
        for row in range(first, starts[slot + 1]):
            sums = out[row]
            for tap in range(taps):
                back = row - first + tap - (taps - 1)  # of the group's rows; below 0: of the past
                source = x[first + back] if back >= 0 else states[slot, taps - 1 + back]
                factors = weight[tap]
                for c in range(channels):
                    sums[c] += source[c] * factors[c]
            silu(sums)


@entry
def _commit(states_at, inputs_at, starts_at, kept_at, layer_stride, forms):
    layers, slots, past, channels = forms
    states = tensor(states_at, (layers, slots, past, channels), F32)
    inputs = tensor(inputs_at, (layers, layer_stride), F32)
    starts, kept = tensor(starts_at, (slots + 1,), np.int32), tensor(kept_at, (slots,), np.int32)
    for layer in range(layers):
        for slot in range(slots):
            first = starts[slot]
            count = min(starts[slot + 1] - first, kept[slot])
            if count <= 0:
                continue
            for line in range(past):
                source = line + count  # of the past and then the kept rows
                for c in range(channels):
                    states[layer, slot, line, c] = (
                        states[layer, slot, source, c]
                        if source < past
                        else inputs[layer, (first + source - past) * channels + c]
                    )


def causal_conv_verify_cpu(x: Tensor, weight: Tensor, states: Tensor, starts: Tensor) -> Tensor:
    """As `causal_conv_verify_torch`, whose checks come first. Every tensor lies row by row, of x
    each row by itself; padding rows give 0."""
    out = torch.zeros(x.shape)
    tensors = (x, weight, states, starts, out)
    forms = (*x.shape, len(weight), len(states))
    _verify(*(each.data_ptr() for each in tensors), x.stride(0), forms)
    return out


def causal_conv_commit_cpu(states: Tensor, inputs: Tensor, starts: Tensor, kept: Tensor) -> None:
    """As `causal_conv_commit_torch`, whose checks come first. Every tensor lies row by row, of
    inputs each layer by itself."""
    tensors = (states, inputs, starts, kept)
    _commit(*(each.data_ptr() for each in tensors), inputs.stride(0), tuple(states.shape))
