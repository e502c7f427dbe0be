"""The gated delta rule on a CPU: one head's state at a time, its value columns side by side.

The state moves on by three roundings, as in the twin; sums over the key's size are in its order.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from triton_kernels.cpu.jit import F32, compiled, entry, fma, tensor


@compiled
def move(state, key, decay, delta):
    """state = decay * state + key (x) delta."""
    for d in range(len(key)):
        line, factor = state[d], key[d]
        for j in range(len(delta)):
            line[j] = line[j] * decay + factor * delta[j]


@compiled
def read(state, by, out):
    """out = state^T by."""
    for j in range(len(out)):
        out[j] = F32(0)
    for d in range(len(by)):
        line, factor = state[d], by[d]
        for j in range(len(out)):
            out[j] = fma(line[j], factor, out[j])


@entry
def _verify(q_at, k_at, v_at, decay_at, beta_at, states_at, starts_at, deltas_at, out_at,
            strides, forms):  # fmt: skip
    rows, heads, value_size, key_heads, key_size, slots = forms
    q, k = (tensor(q_at, (rows, strides[0]), F32), tensor(k_at, (rows, strides[1]), F32))
    v = tensor(v_at, (rows, strides[2]), F32)
    decays, betas = tensor(decay_at, (rows, heads), F32), tensor(beta_at, (rows, heads), F32)
    states = tensor(states_at, (slots, heads, key_size, value_size), F32)
    starts = tensor(starts_at, (slots + 1,), np.int32)
    deltas = tensor(deltas_at, (rows, heads, value_size), F32)
    out = tensor(out_at, (rows, heads, value_size), F32)
    state, fetch = np.empty((key_size, value_size), F32), np.empty(key_size, F32)
    for slot in range(slots):
        if starts[slot] == starts[slot + 1]:
            continue
        for head in range(heads):
            for d in range(key_size):
                for j in range(value_size):
                    state[d, j] = states[slot, head, d, j]
            at = head * key_heads // heads * key_size
            for row in range(starts[slot], starts[slot + 1]):
                decay, beta, delta = decays[row, head], betas[row, head], deltas[row, head]
                key, value = k[row, at : at + key_size], v[row, head * value_size :]
                for d in range(key_size):
                    fetch[d] = key[d] * (decay * beta)
                read(state, fetch, delta)
                for j in range(value_size):
                    delta[j] = value[j] * beta - delta[j]
                move(state, key, decay, delta)
                read(state, q[row, at : at + key_size], out[row, head])


@entry
def _commit(states_at, keys_at, deltas_at, decays_at, starts_at, kept_at, forms):
    layers, slots, heads, key_size, value_size, rows, key_heads = forms
    states = tensor(states_at, (layers, slots, heads, key_size, value_size), F32)
    keys = tensor(keys_at, (layers, rows, key_heads, key_size), F32)
    deltas = tensor(deltas_at, (layers, rows, heads, value_size), F32)
    decays = tensor(decays_at, (layers, rows, heads), F32)
    starts, kept = tensor(starts_at, (slots + 1,), np.int32), tensor(kept_at, (slots,), np.int32)
    for layer in range(layers):
        for slot in range(slots):
            first = starts[slot]
            last = min(starts[slot + 1], first + kept[slot])
            for head in range(heads):
                for row in range(first, last):
                    key = keys[layer, row, head * key_heads // heads]
                    delta = deltas[layer, row, head]
                    move(states[layer, slot, head], key, decays[layer, row, head], delta)


def gated_delta_verify_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    beta: Tensor,
    states: Tensor,
    starts: Tensor,
    *,
    deltas: Tensor,
) -> Tensor:
    """As `gated_delta_verify_torch`, whose checks come first. Every tensor lies row by row, of q, k
    and v each row by itself."""
    out = torch.zeros(v.shape)
    tensors = (q, k, v, decay, beta, states, starts, deltas, out)
    forms = (*v.shape, *k.shape[1:], len(states))
    strides = (q.stride(0), k.stride(0), v.stride(0))
    _verify(*(x.data_ptr() for x in tensors), strides, forms)
    return out


def gated_delta_commit_cpu(
    states: Tensor, keys: Tensor, deltas: Tensor, decays: Tensor, starts: Tensor, kept: Tensor
) -> None:
    """As `gated_delta_commit_torch`, whose checks come first. Every tensor lies row by row."""
    tensors = (states, keys, deltas, decays, starts, kept)
    _commit(*(x.data_ptr() for x in tensors), (*states.shape, *keys.shape[1:3]))
