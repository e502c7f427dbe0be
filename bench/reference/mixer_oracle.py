"""What the operations inside a layer must give, by their definitions, in float64 and one row after
another. No torch operation computes anything here."""

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


def attend(
    q: Tensor, keys: Tensor, values: Tensor, *, scale: float, softcap: float | None = None
) -> Tensor:
    """One row over all that it sees: [heads, size] float64.

    q: [heads, size]; keys, values: [kv heads, n, size].
    """
    queries, seen_keys, seen_values = _doubles(q, keys, values)
    out = np.zeros_like(queries)
    share = len(queries) // len(seen_keys)
    for kv, (key, value) in enumerate(zip(seen_keys, seen_values, strict=True)):
        mine = slice(kv * share, (kv + 1) * share)
        scores = scale * (key @ queries[mine].T)  # [n, share]
        if softcap is not None:
            scores = softcap * np.tanh(scores / softcap)
        weights = np.exp(scores - scores.max(0))
        out[mine] = weights.T @ value / weights.sum(0)[:, None]
    return torch.from_numpy(out)


def attention(data: AttentionData) -> Tensor:
    """[rows, heads, size] float64, 0 in rows that do not count."""
    out = torch.zeros(data.q.shape, dtype=torch.float64)
    for slot, members in groups(data.starts, data.counts):
        before = int(data.positions[members[0]])
        rows = slice(members[0], members[-1] + 1)
        keys = _line(data.keys[slot], data.k, rows, before)
        values = _line(data.values[slot], data.v, rows, before)
        for end, row in enumerate(members, before + 1):
            seen = slice(0 if data.sliding is None else max(0, end - data.sliding), end)
            line = (keys[:, seen], values[:, seen])
            out[row] = attend(data.q[row], *line, scale=data.scale, softcap=data.softcap)
    return out


def _line(cache: Tensor, new: Tensor | None, rows: slice, before: int) -> Tensor:
    """[kv heads, n, size] float64: what the last of `rows` sees without a sliding window.

    cache: [kv heads, capacity, size] of the slot, `before` tokens long; new: [rows, kv heads, size]
    of the window, or None where the cache holds them already.
    """
    if new is None:
        return cache[:, : before + rows.stop - rows.start].double()
    return torch.cat([cache[:, :before], new[rows].transpose(0, 1)], 1).double()


def delta_rule(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """n rows of one slot: outputs and deltas [n, heads, value size], and the state after them, all
    float64.

    q, k: [n, key heads, key size]; v: [n, heads, value size]; decay, beta: [n, heads]; state:
    [heads, key size, value size], not changed.
    """
    qs, ks, vs, decays, betas, before = _doubles(q, k, v, decay, beta, state)
    out, deltas, after = np.zeros_like(vs), np.zeros_like(vs), before.copy()
    heads, key_heads = vs.shape[1], ks.shape[1]
    for head in range(heads):
        shared = head * key_heads // heads
        for row in range(len(vs)):
            faded = decays[row, head] * after[head]
            deltas[row, head] = betas[row, head] * (vs[row, head] - ks[row, shared] @ faded)
            after[head] = faded + np.outer(ks[row, shared], deltas[row, head])
            out[row, head] = qs[row, shared] @ after[head]
    return torch.from_numpy(out), torch.from_numpy(deltas), torch.from_numpy(after)


def delta_verify(data: DeltaData) -> list[Tensor]:
    """out and deltas [rows, heads, value size] float64 of the groups' rows, 0 elsewhere."""
    out, deltas = (torch.zeros(data.v.shape, dtype=torch.float64) for _ in range(2))
    for slot, members in groups(data.starts):
        here = slice(members[0], members[-1] + 1)
        q, k, v, decay, beta = (x[here] for x in (data.q, data.k, data.v, data.decay, data.beta))
        out[here], deltas[here], _ = delta_rule(q, k, v, decay, beta, data.states[slot])
    return [out, deltas]


def delta_commit(
    states: Tensor, keys: Tensor, deltas: Tensor, decays: Tensor, starts: Tensor, kept: Tensor
) -> list[Tensor]:
    """The states after the kept rows, float64. Shapes as `gated_delta_commit` takes them."""
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


def convolve(line: Tensor, weight: Tensor) -> Tensor:
    """Outputs [n, channels] float64 of all rows of a slot that have their whole past.

    line: [taps - 1 + n, channels], the slot's past and then its rows; weight: [taps, channels].
    """
    inputs, taps = _doubles(line, weight)
    totals = np.zeros((len(inputs) - len(taps) + 1, inputs.shape[1]))
    for row in range(len(totals)):
        totals[row] = sum(taps[tap] * inputs[row + tap] for tap in range(len(taps)))
    return torch.from_numpy(totals / (1 + np.exp(-totals)))


def conv_verify(data: ConvData) -> list[Tensor]:
    """[rows, channels] float64, 0 in rows of no group."""
    out = torch.zeros(data.x.shape, dtype=torch.float64)
    for slot, members in groups(data.starts):
        here = slice(members[0], members[-1] + 1)
        out[here] = convolve(torch.cat([data.states[slot], data.x[here]]), data.weight)
    return [out]


def conv_commit(states: Tensor, inputs: Tensor, starts: Tensor, kept: Tensor) -> list[Tensor]:
    """The last inputs of every slot after the kept rows, float64. Shapes as `causal_conv_commit`
    takes them."""
    after, rows = _doubles(states, inputs)
    after = after.copy()
    past = after.shape[2]
    for slot, members in groups(starts, kept):
        for layer in range(len(after)):
            line = [*after[layer, slot], *(rows[layer, row] for row in members)]
            after[layer, slot] = line[-past:]
    return [torch.from_numpy(after)]
