"""Attention over the slots' KV caches: of a window's rows, and of a chunk of a prompt."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from triton_kernels.checks import require
from triton_kernels.launch import cpu_kernels, operation, row_by_row
from triton_kernels.layout import Batch, batches, host_groups
from triton_kernels.split_attention import attend_splits

TILE = 4  # query rows of one product
BLOCK = 64  # keys of one product
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def window_attention_torch(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
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
    """Writes the rows' keys and values into the caches, then attends: [rows, heads, size], 0 in
    rows that do not count.

    q: [rows, heads, size]; k, v: [rows, kv heads, size], or both None: nothing is written, the
    caches hold all that is seen (another layer's, a target's); keys, values: [slots, kv heads,
    capacity, size], capacity a multiple of BLOCK; all of one dtype, fp32, bf16 or fp16. positions:
    [rows] int32, the cache row of each row. starts: [slots + 1] int32 as from `pack_window`;
    counts: [slots] int32, the first rows of each group that count (None: all).

    A group's positions follow one another. A row sees cache rows 0..position of its slot, with
    `sliding` only the last so many of them; what lies beyond may hold anything, NaN too. A value
    that is not finite is written as 0 or the largest number, because weight 0 must stay 0; its key
    is written as it is, and makes NaN of what sees it. Scores are scale * q k, with `softcap`
    c * tanh(score / c). Sums are fp32 and split by cache position alone.
    Raises ValueError, one line, for a wrong option, shape, dtype or device.
    """
    _check_window(q, k, v, keys, values, positions, starts, counts, sliding, softcap)
    rows, heads, size = q.shape
    kv_heads = keys.shape[1]
    share = heads // kv_heads
    out = torch.zeros_like(q)
    groups, places = host_groups(starts, counts), positions.tolist()
    begins = {group.slot: places[group.first] for group in groups}
    ends = {group.slot: begins[group.slot] + group.rows for group in groups}
    if k is not None and v is not None:
        for slot, first, count in groups:
            here = slice(begins[slot], ends[slot])
            keys[slot, :, here] = k[first : first + count].transpose(0, 1)
            values[slot, :, here] = v[first : first + count].transpose(0, 1).nan_to_num()

    # a row's bits must not depend on its company nor on keys past its own: products have one fixed
    # form, [share * TILE, size] by [size, BLOCK], and blocks that a row does not see add exact
    # zeros before and after those that it sees first block
    low = {
        slot: 0 if sliding is None else max(0, begin - sliding + 1) // BLOCK
        for slot, begin in begins.items()
    }
    queries = (q.float() * scale).view(rows, kv_heads, share, size)
    for batch in batches(
        groups,
        tuple(-(-ends[group.slot] // BLOCK) - low[group.slot] for group in groups),
        TILE,
        q.device,
    ):
        starts_at = [low[slot] * BLOCK for slot in batch.slots]
        seen_keys, seen_values = (_blocks(cache, batch, starts_at) for cache in (keys, values))
        for i, slot in enumerate(batch.slots):
            seen_values[i].flatten(1, 2)[:, ends[slot] - starts_at[i] :] = (
                0  # weight 0 times NaN is NaN
            )
        lines = torch.tensor(starts_at, device=q.device)[:, None] + torch.arange(
            batch.blocks * BLOCK, device=q.device
        )
        for table, held, at in batch.tiles:
            count = len(table)
            limits = positions[table][:, None, None, :, None]  # [T, 1, 1, TILE, 1]
            wanted = (
                queries[table]
                .permute(0, 2, 3, 1, 4)
                .reshape(count, kv_heads, 1, share * TILE, size)
            )
            # [T, kv heads, share * TILE, blocks, BLOCK]
            scores = (wanted @ seen_keys[:count].transpose(-1, -2)).transpose(2, 3)
            scores = scores.reshape(count, kv_heads, share, TILE, -1)
            if softcap is not None:
                scores = scores.div_(softcap).tanh_().mul_(softcap)
            line = lines[:count, None, None, None]  # [T, 1, 1, 1, blocks * BLOCK]
            unseen = line > limits
            if sliding is not None:
                unseen |= line <= limits - sliding
            weights = scores.masked_fill_(unseen, float("-inf")).softmax(-1)
            weights = weights.view(count, kv_heads, share * TILE, batch.blocks, BLOCK).transpose(
                2, 3
            )
            parts = (weights @ seen_values[:count]).unbind(2)
            sums = parts[0]
            for part in parts[1:]:
                sums = sums.add_(part)  # in order, whatever the length
            tiled = (
                sums.view(count, kv_heads, share, TILE, size)
                .permute(0, 3, 1, 2, 4)
                .reshape(-1, heads, size)
            )
            out[held] = tiled[at].to(q.dtype)
    return out


def _blocks(cache: Tensor, batch: Batch, starts_at: list[int]) -> Tensor:
    """[slots of the batch, kv heads, blocks, BLOCK, size] fp32, a copy from cache row
    starts_at[i] of the i-th slot on."""
    _, kv_heads, _, size = cache.shape
    length = batch.blocks * BLOCK
    copy = torch.empty(len(batch.slots), kv_heads, length, size, device=cache.device)
    for line, slot, start in zip(copy, batch.slots, starts_at, strict=True):
        line.copy_(cache[slot, :, start : start + length])
    return copy.unflatten(2, (-1, BLOCK))


def prefill_attention_torch(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    keys: Tensor,
    values: Tensor,
    slot: int,
    start: int,
    *,
    scale: float,
    sliding: int | None = None,
) -> Tensor:
    """A chunk of n prompt tokens at positions start..start+n-1 of one slot: written, then attended:
    [n, heads, size].

    q: [n, heads, size]; k, v: [n, kv heads, size], or both None; keys, values: [slots, kv heads,
    capacity, size]; all of one dtype, fp32, bf16 or fp16. A token sees rows 0 to its own, with
    `sliding` only the last so many of them. Raises ValueError, one line, for a wrong shape, dtype
    or device, and for tokens that do not fit the cache.
    """
    count, heads, _size = q.shape
    slots, kv_heads, capacity, _ = keys.shape
    _check(q, k, v, keys, values, sliding)
    if not (0 <= slot < slots and start >= 0 and start + count <= capacity):
        raise ValueError(
            f"tokens {start}..{start + count - 1} of slot {slot} do not fit {slots} slots of "
            f"{capacity}"
        )
    stop = start + count
    if k is not None and v is not None:
        keys[slot, :, start:stop] = k.transpose(0, 1)
        values[slot, :, start:stop] = v.transpose(0, 1)
    first = 0 if sliding is None else max(0, start - sliding + 1)
    line, own = (
        torch.arange(first, stop, device=q.device),
        torch.arange(start, stop, device=q.device)[:, None],
    )
    seen = line <= own
    if sliding is not None:
        seen &= line > own - sliding
    out = scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        keys[slot, None, :, first:stop],
        values[slot, None, :, first:stop],
        attn_mask=seen,
        scale=scale,
        enable_gqa=heads != kv_heads,
    )
    return out[0].transpose(0, 1)


def _check(
    q: Tensor, k: Tensor | None, v: Tensor | None, keys: Tensor, values: Tensor, sliding: int | None
) -> None:
    """Rows and caches that fit each other."""
    require("q", q, shape=[None, None, None], dtypes=FLOATS)
    slots, kv_heads, capacity, _ = keys.shape
    if (k is None) != (v is None):
        raise ValueError(
            f"{'v' if k is None else 'k'} is given alone, expected k and v, or neither"
        )
    for name, tensor in (("k", k), ("v", v)):
        if tensor is not None:
            require(
                name, tensor, shape=[q.shape[0], kv_heads, q.shape[2]], dtypes=[q.dtype], like=q
            )
    for name, tensor in (("keys", keys), ("values", values)):
        require(
            name, tensor, shape=[slots, kv_heads, capacity, q.shape[2]], dtypes=[q.dtype], like=q
        )
    if sliding is not None and sliding < 1:
        raise ValueError(f"sliding is {sliding}, expected at least 1, or None")


def _check_window(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    keys: Tensor,
    values: Tensor,
    positions: Tensor,
    starts: Tensor,
    counts: Tensor | None,
    sliding: int | None,
    softcap: float | None,
) -> None:
    _check(q, k, v, keys, values, sliding)
    slots, kv_heads, capacity, _ = keys.shape
    require("positions", positions, shape=[len(q)], dtypes=[torch.int32], like=q)
    require("starts", starts, shape=[slots + 1], dtypes=[torch.int32], like=q)
    if counts is not None:
        require("counts", counts, shape=[slots], dtypes=[torch.int32], like=q)
    if capacity % BLOCK or q.shape[1] % kv_heads:
        raise ValueError(
            f"capacity is {capacity} and heads {q.shape[1]}, expected multiples of {BLOCK} and of "
            f"{kv_heads} kv heads"
        )
    if softcap is not None and softcap <= 0:
        raise ValueError(f"softcap is {softcap}, expected above 0, or None")


def _launch(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
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


def _on_cpu(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
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
    tables = (positions, starts, *(() if counts is None else (counts,)))
    kernels = cpu_kernels("attention")
    if (
        kernels is None
        or q.dtype not in kernels.WORDS
        or not row_by_row(q, k, v)
        or not all(x.is_contiguous() for x in (keys, values, *tables))
    ):
        options: dict[str, Any] = {"scale": scale, "sliding": sliding, "softcap": softcap}
        return window_attention_torch(q, k, v, keys, values, positions, starts, counts, **options)
    _check_window(q, k, v, keys, values, positions, starts, counts, sliding, softcap)
    return kernels.window_attention_cpu(
        q, k, v, keys, values, positions, starts, counts, scale, sliding, softcap
    )


_operation = operation(
    "window_attention(Tensor q, Tensor? k, Tensor? v, Tensor(a!) keys, Tensor(b!) values, Tensor "
    "positions, Tensor starts, "
    "Tensor? counts, *, float scale, int? sliding=None, float? softcap=None) -> Tensor",
    cpu=_on_cpu,
    cuda=_launch,
)


def window_attention(
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
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
    """See `window_attention_torch`. One launch to a capture. On a GPU it also refuses other
    strides, more slots and more heads than its kernels read."""
    return _operation(
        q,
        k,
        v,
        keys,
        values,
        positions,
        starts,
        counts,
        scale=scale,
        sliding=sliding,
        softcap=softcap,
    )


prefill_attention = prefill_attention_torch
