"""Window attention on a CPU: of one slot and one kv head at a time, block by block of its cache.

A block's keys and values are widened to fp32 once for all query rows that share them. Products run
over keys (scores) and over the head's size (values) side by side, never across, so each sum has
one order: that of the head's size, and that of cache rows.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from triton_kernels.cpu.jit import (
    F32,
    WORDS,
    as_float,
    compiled,
    entry,
    exp,
    finite,
    fma,
    rounded,
    tensor,
)

BLOCK = 64  # cache rows


@compiled
def store(rows, cache, slot, first, count, begin, clean):
    """Window rows first .. first + count - 1 into cache rows begin, ..."""
    kv_heads, size = cache.shape[1], cache.shape[3]
    for i in range(count):
        for head in range(kv_heads):
            line, place = rows[first + i], cache[slot, head, begin + i]
            for d in range(size):
                word = line[head * size + d]
                place[d] = finite(word) if clean else word


@compiled
def score(queries, keys, scores, column, count):
    """scores[n, column : column + BLOCK] = queries[n] . keys, keys [size, BLOCK]."""
    size = len(keys)
    whole = size - size % 4
    for n in range(count):
        q, sums = queries[n], scores[n, column : column + BLOCK]
        for j in range(BLOCK):
            sums[j] = F32(0)
        for d in range(0, whole, 4):
            a, b, c, e = q[d], q[d + 1], q[d + 2], q[d + 3]
            k0, k1, k2, k3 = keys[d], keys[d + 1], keys[d + 2], keys[d + 3]
            for j in range(BLOCK):
                sums[j] = fma(e, k3[j], fma(c, k2[j], fma(b, k1[j], fma(a, k0[j], sums[j]))))
        for d in range(whole, size):
            a, k0 = q[d], keys[d]
            for j in range(BLOCK):
                sums[j] = fma(a, k0[j], sums[j])


@compiled
def capped(line, low, high, softcap):
    """softcap * tanh(score / softcap)."""
    for j in range(low, high):
        x = line[j] / softcap
        e = exp(-F32(2) * abs(x))
        tanh = (F32(1) - e) / (F32(1) + e)
        line[j] = softcap * (tanh if x >= F32(0) else -tanh)


@compiled
def weigh(line, low, high, lanes):
    """Scores low .. high - 1 become e^(score - the largest), all others of the line 0; their
    sum, lane by lane and then in halves."""
    for j in range(BLOCK):
        lanes[j] = F32(-np.inf)
    top = F32(-np.inf)
    for j in range(low, high):
        top = line[j] if line[j] > top else top
    for j in range(low, high):
        line[j] = exp(line[j] - top)
    for j in range(low):
        line[j] = F32(0)
    for j in range(high, len(line)):
        line[j] = F32(0)
    for j in range(BLOCK):
        lanes[j] = F32(0)
    for column in range(0, len(line), BLOCK):
        part = line[column : column + BLOCK]
        for j in range(BLOCK):
            lanes[j] += part[j]
    half = BLOCK // 2
    while half:
        for j in range(half):
            lanes[j] += lanes[half + j]
        half //= 2
    return lanes[0]


@compiled
def mix(weights, values, sums, low, high):
    """sums += weights[j] * values[j] for j of low .. high - 1, in order."""
    size = len(sums)
    j = low
    while j + 4 <= high:
        a, b, c, e = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
        v0, v1, v2, v3 = values[j], values[j + 1], values[j + 2], values[j + 3]
        for d in range(size):
            sums[d] = fma(e, v3[d], fma(c, v2[d], fma(b, v1[d], fma(a, v0[d], sums[d]))))
        j += 4
    while j < high:
        a, v0 = weights[j], values[j]
        for d in range(size):
            sums[d] = fma(a, v0[d], sums[d])
        j += 1


@entry
def _attend(
    kind, q_at, k_at, v_at, keys_at, values_at, positions_at, starts_at, counts_at, out_at,
    strides, forms, scale, sliding, softcap,
):  # fmt: skip
    rows, heads, size, slots, kv_heads, capacity = forms
    share = heads // kv_heads
    q = tensor(q_at, (rows, strides[0]), kind)
    keys = tensor(keys_at, (slots, kv_heads, capacity, size), kind)
    values = tensor(values_at, (slots, kv_heads, capacity, size), kind)
    out = tensor(out_at, (rows, heads, size), kind)
    positions = tensor(positions_at, (rows,), np.int32)
    starts = tensor(starts_at, (slots + 1,), np.int32)
    block_keys, block_values = np.empty((size, BLOCK), F32), np.empty((BLOCK, size), F32)
    lanes = np.empty(BLOCK, F32)
    for slot in range(slots):
        first = starts[slot]
        count = starts[slot + 1] - first
        if counts_at:
            count = min(count, tensor(counts_at, (slots,), np.int32)[slot])
        if count <= 0:
            continue
        begin = positions[first]
        end = begin + count
        if begin < 0 or end > capacity:
            raise ValueError("a row lies outside its slot's cache")
        if k_at:
            store(tensor(k_at, (rows, strides[1]), kind), keys, slot, first, count, begin, False)
            store(tensor(v_at, (rows, strides[2]), kind), values, slot, first, count, begin, True)
        base = max(0, begin - sliding + 1) // BLOCK * BLOCK if sliding else 0
        width = -(-(end - base) // BLOCK) * BLOCK
        members = count * share
        queries = np.empty((members, size), F32)
        scores, sums = np.empty((members, width), F32), np.zeros((members, size), F32)
        totals = np.empty(members, F32)
        for head in range(kv_heads):
            for n in range(members):
                line, at = q[first + n // share], (head * share + n % share) * size
                for d in range(size):
                    queries[n, d] = as_float(line[at + d]) * scale
                    sums[n, d] = F32(0)
            for column in range(0, width, BLOCK):
                for j in range(BLOCK):
                    line = keys[slot, head, base + column + j]
                    for d in range(size):
                        block_keys[d, j] = as_float(line[d])
                score(queries, block_keys, scores, column, members)
            for n in range(members):
                high = begin + n // share + 1
                low = max(0, high - sliding) if sliding else 0
                if softcap > F32(0):
                    capped(scores[n], low - base, high - base, softcap)
                totals[n] = weigh(scores[n], low - base, high - base, lanes)
            for column in range(0, width, BLOCK):
                for j in range(min(BLOCK, end - base - column)):
                    line = values[slot, head, base + column + j]
                    for d in range(size):
                        block_values[j, d] = as_float(line[d])
                for n in range(members):
                    high = begin + n // share + 1
                    low = max(0, high - sliding) if sliding else 0
                    from_row = max(0, low - base - column)
                    to_row = min(BLOCK, high - base - column)
                    weights = scores[n, column : column + BLOCK]
                    mix(weights, block_values, sums[n], from_row, to_row)
            for n in range(members):
                place = out[first + n // share, head * share + n % share]
                for d in range(size):
                    place[d] = rounded(sums[n, d] / totals[n], place[d])


def window_attention_cpu(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    starts: Tensor,
    counts: Tensor | None,
    scale: float,
    sliding: int | None,
    softcap: float | None,
) -> Tensor:
    """As `window_attention_torch`, whose checks come first. fp32 or bf16; every tensor lies row by
    row, of q, k and v each row by itself."""
    rows, heads, size = q.shape
    slots, kv_heads, capacity, _ = keys.shape
    out = torch.zeros(q.shape, dtype=q.dtype)
    strides = (
        q.stride(0),
        k.stride(0) if k is not None else 0,
        v.stride(0) if v is not None else 0,
    )
    _attend(
        WORDS[q.dtype],
        *(0 if x is None else x.data_ptr() for x in (q, k, v, keys, values)),
        positions.data_ptr(),
        starts.data_ptr(),
        0 if counts is None else counts.data_ptr(),
        out.data_ptr(),
        strides,
        (rows, heads, size, slots, kv_heads, capacity),
        F32(scale),
        sliding or 0,
        F32(softcap or 0),
    )
    return out
