"""What the operations inside a layer must give, by their definitions, in float64 and one row
after another. No torch operation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from bench.inputs.mixers import AttentionData, ConvData, DeltaData

Array = np.ndarray


def groups(starts: Tensor, counts: Tensor | None = None) -> Iterator[tuple[int, range]]:
    """(slot, its rows), of the first counts[slot] rows where counts are given."""
    for slot, (first, end) in enumerate(pairwise(starts.tolist())):
        last = end if counts is None else min(end, first + int(counts[slot]))
        if last > first:
            yield slot, range(first, last)


def _doubles(*tensors: Tensor) -> list[Array]:
    return [tensor.double().numpy() for tensor in tensors]


def attention(data: AttentionData) -> list[Tensor]:
    """out [rows, heads, size], 0 in rows of no group. Without a sliding window or a cap."""
    if data.k is None or data.v is None:
        raise ValueError(
            "k or v is None, expected the window's own: the oracle reads the caches before them"
        )
    q, k, v = _doubles(data.q, data.k, data.v)
    rows, heads, size = q.shape
    kv_heads = k.shape[1]
    out = np.zeros((rows, heads, size))
    share = heads // kv_heads
    for slot, members in groups(data.starts):
        before = int(data.positions[members[0]])
        past_keys, past_values = _doubles(
            data.keys[slot, :, :before], data.values[slot, :, :before]
        )
        for kv in range(kv_heads):
            mine = slice(kv * share, (kv + 1) * share)
            keys, values = (
                np.concatenate([past[kv], new[members, kv]])
                for past, new in ((past_keys, k), (past_values, v))
            )
            for place, row in enumerate(members):
                seen = before + place + 1
                scores = data.scale * (keys[:seen] @ q[row, mine].T)  # [seen, share]
                weights = np.exp(scores - scores.max(0))
                out[row, mine] = weights.T @ values[:seen] / weights.sum(0)[:, None]
    return [torch.from_numpy(out), *(torch.from_numpy(new) for new in (k, v))]


def delta_verify(data: DeltaData) -> list[Tensor]:
    """out and deltas [rows, heads, value size] of the groups' rows, 0 elsewhere."""
    q, k, v, decay, beta, states = _doubles(
        data.q, data.k, data.v, data.decay, data.beta, data.states
    )
    out, deltas = np.zeros_like(v), np.zeros_like(v)
    heads, key_heads = v.shape[1], k.shape[1]
    for slot, members in groups(data.starts):
        for head in range(heads):
            shared, state = head * key_heads // heads, states[slot, head]
            for row in members:
                state = decay[row, head] * state
                deltas[row, head] = beta[row, head] * (v[row, head] - k[row, shared] @ state)
                state = state + np.outer(k[row, shared], deltas[row, head])
                out[row, head] = q[row, shared] @ state
    return [torch.from_numpy(out), torch.from_numpy(deltas)]


def delta_commit(
    states: Tensor, keys: Tensor, deltas: Tensor, decays: Tensor, starts: Tensor, kept: Tensor
) -> list[Tensor]:
    """The states after the kept rows. Shapes as `gated_delta_commit` takes them."""
    after, k, d, decay = _doubles(states, keys, deltas, decays)
    after = after.copy()
    layers, _, heads = states.shape[:3]
    for slot, members in groups(starts, kept):
        for layer in range(layers):
            for head in range(heads):
                shared = head * k.shape[2] // heads
                for row in members:
                    after[layer, slot, head] = decay[layer, row, head] * after[
                        layer, slot, head
                    ] + np.outer(k[layer, row, shared], d[layer, row, head])
    return [torch.from_numpy(after)]


def conv_verify(data: ConvData) -> list[Tensor]:
    """[rows, channels], 0 in rows of no group."""
    x, weight, states = _doubles(data.x, data.weight, data.states)
    out, taps = np.zeros_like(x), len(weight)
    for slot, members in groups(data.starts):
        line = np.concatenate([states[slot], x[members[0] : members[-1] + 1]])
        for place, row in enumerate(members):
            total = sum(weight[tap] * line[place + tap] for tap in range(taps))
            out[row] = total / (1 + np.exp(-total))
    return [torch.from_numpy(out)]


def conv_commit(states: Tensor, inputs: Tensor, starts: Tensor, kept: Tensor) -> list[Tensor]:
    """The last inputs of every slot after the kept rows."""
    after, rows = _doubles(states, inputs)
    after = after.copy()
    past = after.shape[2]
    for slot, members in groups(starts, kept):
        for layer in range(len(after)):
            after[layer, slot] = [*after[layer, slot], *(rows[layer, row] for row in members)][
                -past:
            ]
    return [torch.from_numpy(after)]
