"""Attention over the slots' KV caches: of a window's rows, and of a chunk of a prompt."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from triton_kernels.checks import require
from triton_kernels.launch import operation
from triton_kernels.layout import Batch, batches, host_groups
from triton_kernels.split_attention import attend_splits

TILE = 4  # query rows of one product
BLOCK = 64  # keys of one product
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def window_attention_torch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    starts: Tensor,
    counts: Tensor | None = None,
    *,
    scale: float,
    sliding: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Writes the rows' keys and values into the caches, then attends: [rows, heads, size], 0 in rows that do not count.

    q: [rows, heads, size]; k, v: [rows, kv heads, size]; keys, values: [slots, kv heads, capacity, size], capacity a multiple
    of BLOCK; all of one dtype. positions: [rows] int32, the cache row of each row. starts: [slots + 1] int32 as from
    `pack_window`; counts: [slots] int32, the first rows of each group that count (None: all). A group's positions follow one
    another. A row sees cache rows 0..position of its slot, with `sliding` only the last so many of them; what lies beyond may
    hold anything, NaN too. A value that is not finite is written as 0 or the largest number, because weight 0 must stay 0; its
    key is written as it is, and makes NaN of what sees it. Scores are scale * q k, with `softcap` c * tanh(score / c). Sums
    are fp32 and split by cache position alone.
    """
    _check_window(q, k, v, keys, values, positions, starts, counts, sliding, softcap)
    rows, heads, size = q.shape
    kv_heads = keys.shape[1]
    share = heads // kv_heads
    out = torch.zeros_like(q)
    groups, places = host_groups(starts, counts), positions.tolist()
    ends = {group.slot: places[group.first] + group.rows for group in groups}
    for slot, first, count in groups:
        here = slice(ends[slot] - count, ends[slot])
        keys[slot, :, here] = k[first : first + count].transpose(0, 1)
        values[slot, :, here] = v[first : first + count].transpose(0, 1).nan_to_num()

    # a row's bits must not depend on its company nor on keys past its own: products have one fixed form, [share * TILE, size]
    # by [size, BLOCK], and blocks that a row does not see add exact zeros after those that it sees
    queries = (q.float() * scale).view(rows, kv_heads, share, size)
    for batch in batches(groups, tuple(-(-ends[group.slot] // BLOCK) for group in groups), TILE, q.device):
        seen_keys, seen_values = (_blocks(cache, batch) for cache in (keys, values))
        for i, slot in enumerate(batch.slots):
            seen_values[i].flatten(1, 2)[:, ends[slot] :] = 0  # weight 0 times NaN is NaN
        line = torch.arange(batch.blocks * BLOCK, device=q.device)
        for table, held, at in batch.tiles:
            count = len(table)
            limits = positions[table][:, None, None, :, None]  # [T, 1, 1, TILE, 1]
            wanted = queries[table].permute(0, 2, 3, 1, 4).reshape(count, kv_heads, 1, share * TILE, size)
            scores = (wanted @ seen_keys[:count].transpose(-1, -2)).transpose(2, 3)  # [T, kv heads, share * TILE, blocks, BLOCK]
            scores = scores.reshape(count, kv_heads, share, TILE, -1)
            if softcap is not None:
                scores = scores.div_(softcap).tanh_().mul_(softcap)
            unseen = line > limits
            if sliding is not None:
                unseen |= line <= limits - sliding
            weights = scores.masked_fill_(unseen, float("-inf")).softmax(-1)
            weights = weights.view(count, kv_heads, share * TILE, batch.blocks, BLOCK).transpose(2, 3)
            parts = (weights @ seen_values[:count]).unbind(2)
            sums = parts[0]
            for part in parts[1:]:
                sums = sums.add_(part)  # in order, whatever the length
            tiled = sums.view(count, kv_heads, share, TILE, size).permute(0, 3, 1, 2, 4).reshape(-1, heads, size)
            out[held] = tiled[at].to(q.dtype)
    return out


def _blocks(cache: Tensor, batch: Batch) -> Tensor:
    """[slots of the batch, kv heads, blocks, BLOCK, size] fp32, a copy."""
    _, kv_heads, _, size = cache.shape
    length = batch.blocks * BLOCK
    copy = torch.empty(len(batch.slots), kv_heads, length, size, device=cache.device)
    for line, slot in zip(copy, batch.slots, strict=True):
        line.copy_(cache[slot, :, :length])
    return copy.unflatten(2, (-1, BLOCK))


def prefill_attention_torch(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slot: int, start: int, *, scale: float
) -> Tensor:
    """A chunk of n prompt tokens at positions start..start+n-1 of one slot: written, then attended: [n, heads, size].

    q: [n, heads, size]; k, v: [n, kv heads, size]; keys, values: [slots, kv heads, capacity, size]; all of one dtype.
    """
    count, heads, _size = q.shape
    slots, kv_heads, capacity, _ = keys.shape
    _check(q, k, v, keys, values)
    if not (0 <= slot < slots and start >= 0 and start + count <= capacity):
        raise ValueError(f"tokens {start}..{start + count - 1} of slot {slot} do not fit {slots} slots of {capacity}")
    stop = start + count
    keys[slot, :, start:stop] = k.transpose(0, 1)
    values[slot, :, start:stop] = v.transpose(0, 1)
    seen = torch.arange(stop, device=q.device) <= torch.arange(start, stop, device=q.device)[:, None]
    out = scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys[slot, None, :, :stop],
        values[slot, None, :, :stop],
        attn_mask=seen,
        scale=scale,
        enable_gqa=heads != kv_heads,
    )
    return out[0].transpose(0, 1)


def _check(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> None:
    """Rows and caches that fit each other."""
    require("q", q, shape=[None, None, None], dtypes=FLOATS)
    slots, kv_heads, capacity, _ = keys.shape
    for name, tensor in (("k", k), ("v", v)):
        require(name, tensor, shape=[q.shape[0], kv_heads, q.shape[2]], dtypes=[q.dtype], like=q)
    for name, tensor in (("keys", keys), ("values", values)):
        require(name, tensor, shape=[slots, kv_heads, capacity, q.shape[2]], dtypes=[q.dtype], like=q)


def _check_window(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    starts: Tensor,
    counts: Tensor | None,
    sliding: int | None,
    softcap: float | None,
) -> None:
    _check(q, k, v, keys, values)
    slots, kv_heads, capacity, _ = keys.shape
    require("positions", positions, shape=[len(q)], dtypes=[torch.int32], like=q)
    require("starts", starts, shape=[slots + 1], dtypes=[torch.int32], like=q)
    if counts is not None:
        require("counts", counts, shape=[slots], dtypes=[torch.int32], like=q)
    if capacity % BLOCK or q.shape[1] % kv_heads:
        raise ValueError(f"capacity is {capacity} and heads {q.shape[1]}, expected multiples of {BLOCK} and of {kv_heads} kv heads")
    if (sliding is not None and sliding < 1) or (softcap is not None and softcap <= 0):
        raise ValueError(f"sliding is {sliding} and softcap {softcap}, expected at least 1 and above 0, or None")


def _launch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    starts: Tensor,
    counts: Tensor | None = None,
    *,
    scale: float,
    sliding: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    _check_window(q, k, v, keys, values, positions, starts, counts, sliding, softcap)
    return attend_splits(q, k, v, keys, values, positions, starts, counts, scale, sliding, softcap)


_operation = operation(
    "window_attention(Tensor q, Tensor k, Tensor v, Tensor(a!) keys, Tensor(b!) values, Tensor positions, Tensor starts, "
    "Tensor? counts, *, float scale, int? sliding=None, float? softcap=None) -> Tensor",
    cpu=window_attention_torch,
    cuda=_launch,
)


def window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    starts: Tensor,
    counts: Tensor | None = None,
    *,
    scale: float,
    sliding: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """See `window_attention_torch`. One launch to a capture."""
    return _operation(q, k, v, keys, values, positions, starts, counts, scale=scale, sliding=sliding, softcap=softcap)


prefill_attention = prefill_attention_torch
