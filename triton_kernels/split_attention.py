"""A window's attention on a GPU: keys and values are read once for all rows of a group and all
query heads of a KV head.

A slot's cache is cut into splits of a fixed length. A program attends for all rows of a group (up
to 8) and all query heads of a KV head to one split after another; a second kernel merges a row's
splits in order. Borders are places in the cache, sums inside a split run block after block, and
blocks that a row does not see change nothing: a row's bits depend on its own past alone, not on its
group, its company, or how many programs there are. The program whose split they fall into writes
the window's own keys and values to the cache, in the same launch, before it reads them back.
"""

from __future__ import annotations

import torch
from torch import Tensor

from triton_kernels.checks import require
from triton_kernels.launch import MOST_SLOTS, SLOT_TILE, constant, jit, kernel, power_of_two, tl

SPLIT = 512  # cache rows whose keys one program reads at a stretch
MOST_PROGRAMS = 128  # of one slot and KV head; they share its splits
# of one program: rows of a group, rows times query heads, their size
MOST_ROWS, MOST_QUERIES, QUERY_BYTES = (
    8,
    128,
    1 << 15,
)
# of a product's keys, or values, at most; fp32 has no matrix instructions and would spill
BLOCK_BYTES = {
    2: 1 << 14,
    4: 1 << 13,
}
BLOCK_SCORES = 1 << 12  # of a product, at most
# of loads under way; an AMD multiprocessor has 64 KB to hold them
STAGES = 2 if torch.version.hip else 3
NEW = constant(8)  # window rows that are written at a time
MERGED = constant(16)  # splits that are merged at a time
LOG2E = constant(1.4426950408889634)


@jit
def finite(value, LARGEST: tl.constexpr):
    """What may have weight 0: 0 for NaN, the largest numbers for the infinities."""
    number = value.to(tl.float32)
    return tl.minimum(tl.maximum(tl.where(number != number, 0.0, number), -LARGEST), LARGEST).to(
        value.dtype
    )


@kernel
def window_attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    keys_ptr,
    values_ptr,
    positions_ptr,
    starts_ptr,
    counts_ptr,
    sums_ptr,
    bests_ptr,
    totals_ptr,
    q_stride,
    k_stride,
    v_stride,
    rows,
    slots,
    kv_heads,
    capacity,
    sliding,
    scale,
    softcap,
    SHARE: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_TILE: tl.constexpr,
    ROWS: tl.constexpr,
    QUERIES: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
    LARGEST: tl.constexpr,
    COUNTED: tl.constexpr,
    SLIDES: tl.constexpr,
    CAPPED: tl.constexpr,
    WRITES: tl.constexpr,
):
    """Grid (programs, kv heads, slots * tiles of ROWS rows of a group). Leaves best, total and
    sums of every row, head and split."""
    slot, kv_head = tl.program_id(2) % slots, tl.program_id(1)
    group = tl.load(starts_ptr + slot)
    count = tl.load(starts_ptr + slot + 1) - group
    if COUNTED:
        count = tl.minimum(count, tl.load(counts_ptr + slot))
    before = tl.program_id(2) // slots * ROWS  # rows of the group in other tiles
    count = tl.minimum(count - before, ROWS)
    if count > 0:
        written = tl.load(positions_ptr + group)  # the cache holds what lies before
        begin = written + before
        end = begin + count
        lowest = 0
        if SLIDES:
            lowest = tl.maximum(begin - sliding + 1, 0)
        query = tl.arange(0, QUERIES)
        row = query // SHARE
        real = (row < count) & (query < ROWS * SHARE)
        position = begin + row
        dim = tl.arange(0, SIZE_TILE)
        inside = dim < SIZE
        # no argument is specialised: the compiler is told what is aligned, for wide loads
        cached = (slot.to(tl.int64) * kv_heads + kv_head) * capacity * SIZE
        keys_ptr, values_ptr = keys_ptr + cached, values_ptr + cached
        q_ptr += ((group + before) * q_stride + kv_head * SHARE) * SIZE
        k_ptr += (group * k_stride + kv_head) * SIZE
        v_ptr += (group * v_stride + kv_head) * SIZE
        if SIZE * keys_ptr.dtype.element_ty.primitive_bitwidth % 128 == 0:
            keys_ptr, values_ptr = tl.multiple_of(keys_ptr, 16), tl.multiple_of(values_ptr, 16)
            q_ptr, k_ptr, v_ptr = (
                tl.multiple_of(q_ptr, 16),
                tl.multiple_of(k_ptr, 16),
                tl.multiple_of(v_ptr, 16),
            )
        q_place = (row * q_stride + query % SHARE)[:, None] * SIZE + dim[None]
        q = tl.load(q_ptr + q_place, mask=real[:, None] & inside[None], other=0.0)
        for split in range(
            lowest // SPLIT + tl.program_id(0), (end - 1) // SPLIT + 1, tl.num_programs(0)
        ):
            start = tl.maximum(split * SPLIT, lowest // BLOCK * BLOCK)
            stop = tl.minimum(split * SPLIT + SPLIT, end)
            if WRITES:
                for some in range(tl.maximum(start, written), stop, NEW):
                    place = some + tl.arange(0, NEW)
                    new = (place < stop)[:, None] & inside[None]
                    source = (place - written)[:, None] * SIZE
                    offsets = place[:, None] * SIZE + dim[None]
                    tl.store(
                        keys_ptr + offsets,
                        tl.load(k_ptr + source * k_stride + dim[None], mask=new),
                        mask=new,
                    )
                    value = tl.load(v_ptr + source * v_stride + dim[None], mask=new, other=0.0)
                    tl.store(values_ptr + offsets, finite(value, LARGEST), mask=new)
                tl.debug_barrier()
            best = tl.full([QUERIES], float("-inf"), tl.float32)
            total = tl.zeros([QUERIES], tl.float32)
            sums = tl.zeros([QUERIES, SIZE_TILE], tl.float32)
            for block in range(start, stop, BLOCK):
                place = block + tl.arange(0, BLOCK)
                offsets = place[:, None] * SIZE + dim[None]
                key = tl.load(keys_ptr + offsets, mask=inside[None], other=0.0)
                value = tl.load(
                    values_ptr + offsets, mask=(place < end)[:, None] & inside[None], other=0.0
                )
                score = tl.dot(q, tl.trans(key), input_precision="ieee") * scale
                if CAPPED:  # softcap * tanh(score / softcap)
                    score = softcap * (1.0 - 2.0 / (tl.exp2(score * (2.0 * LOG2E / softcap)) + 1.0))
                seen = place[None] <= position[:, None]
                if SLIDES:
                    seen &= place[None] > position[:, None] - sliding
                score = tl.where(seen, score * LOG2E, float("-inf"))
                now = tl.maximum(best, tl.max(score, 1))
                base = tl.where(now == float("-inf"), 0.0, now)  # nothing seen yet
                weight, fade = tl.exp2(score - base[:, None]), tl.exp2(best - base)
                sums = tl.dot(
                    weight.to(value.dtype), value, sums * fade[:, None], input_precision="ieee"
                )
                total = total * fade + tl.sum(weight, 1)
                best = now
            left = (
                (split * rows + group + before + row) * (kv_heads * SHARE)
                + kv_head * SHARE
                + query % SHARE
            )
            tl.store(bests_ptr + left, best, mask=real)
            tl.store(totals_ptr + left, total, mask=real)
            tl.store(
                sums_ptr + left[:, None] * SIZE + dim[None], sums, mask=real[:, None] & inside[None]
            )


@kernel
def merge_splits_kernel(
    sums_ptr,
    bests_ptr,
    totals_ptr,
    positions_ptr,
    starts_ptr,
    counts_ptr,
    out_ptr,
    slots,
    sliding,
    SIZE: tl.constexpr,
    SIZE_TILE: tl.constexpr,
    SPLIT: tl.constexpr,
    COUNTED: tl.constexpr,
    SLIDES: tl.constexpr,
):
    """Grid (rows, heads). The splits that a row sees, in order; 0 in rows that do not count."""
    row = tl.program_id(0)
    each = tl.arange(0, SLOT_TILE)
    slot = tl.sum(
        ((tl.load(starts_ptr + each + 1, mask=each < slots, other=0) <= row) & (each < slots)).to(
            tl.int32
        ),
        0,
    )
    counts = slot < slots
    if COUNTED and counts:
        counts = row - tl.load(starts_ptr + slot) < tl.load(counts_ptr + slot)
    dim = tl.arange(0, SIZE_TILE)
    best, total = float("-inf"), 0.0
    sums = tl.zeros([SIZE_TILE], tl.float32)
    place = row * tl.num_programs(1) + tl.program_id(1)
    lines = tl.num_programs(0) * tl.num_programs(1)
    sums_ptr += place * SIZE
    if SIZE % 4 == 0:
        sums_ptr = tl.multiple_of(sums_ptr, 16)
    if counts:
        position = tl.load(positions_ptr + row)
        lowest = 0
        if SLIDES:
            lowest = tl.maximum(position - sliding + 1, 0) // SPLIT
        last = position // SPLIT
        for at in range(lowest, last + 1, MERGED):
            split = at + tl.arange(0, MERGED)
            left = split.to(tl.int64) * lines
            seen = split <= last
            bests = tl.load(bests_ptr + place + left, mask=seen, other=float("-inf"))
            totals = tl.load(totals_ptr + place + left, mask=seen, other=0.0)
            parts = tl.load(
                sums_ptr + left[:, None] * SIZE + dim[None],
                mask=seen[:, None] & (dim < SIZE)[None],
                other=0.0,
            )
            now = tl.maximum(best, tl.max(bests, 0))
            base = tl.where(now == float("-inf"), 0.0, now)
            fade, fades = tl.exp2(best - base), tl.exp2(bests - base)
            total = total * fade + tl.sum(totals * fades, 0)
            sums = sums * fade + tl.sum(parts * fades[:, None], 0)
            best = now
        sums /= total
    tl.store(out_ptr + place * SIZE + dim, sums.to(out_ptr.dtype.element_ty), mask=dim < SIZE)


def attend_splits(
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
    """See `window_attention_torch`. Also refuses what only the kernels cannot read: other
    strides, too many slots or heads."""
    (rows, heads, size), (slots, kv_heads, capacity, _) = q.shape, keys.shape
    share = heads // kv_heads
    tables = {"positions": positions, "starts": starts, "counts": counts}
    for name, tensor in (tables | {"keys": keys, "values": values}).items():
        if tensor is not None:
            require(name, tensor, shape=[None] * tensor.ndim, dtypes=[tensor.dtype], dense=True)
    tile = max(16, power_of_two(size))
    most = min(MOST_QUERIES, QUERY_BYTES // (tile * q.element_size()))
    if slots > MOST_SLOTS or share > most:
        raise ValueError(
            f"{slots} slots and {share} heads a KV head, expected at most {MOST_SLOTS} and {most}"
        )
    new_keys, new_values = (q if x is None else x for x in (k, v))  # never read where None
    heads_of = {"q": q, "k": new_keys, "v": new_values, "keys": keys, "values": values}
    for name, tensor in heads_of.items():
        aligned = tensor.data_ptr() % 16 == 0 or size * q.element_size() % 16
        if not aligned or tensor.stride()[-2:] != (size, 1) or tensor.stride(0) % size:
            raise ValueError(
                f"{name} has strides {list(tensor.stride())}, expected whole heads of {size} from "
                "a 16-byte border on"
            )
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device) if slots else torch.zeros_like(q)
    if not rows or not slots:
        return out
    group, splits = min(MOST_ROWS, most // share), -(-capacity // SPLIT)
    queries = max(16, power_of_two(group * share))
    if splits * rows * heads * size >= 1 << 31:
        raise ValueError(
            f"capacity is {capacity}: {splits} splits of {rows} rows and {heads} heads are more "
            "than 32 bits can count"
        )
    sums = torch.empty(splits, rows, heads, size, dtype=torch.float32, device=q.device)
    stats = torch.empty(2, splits, rows, heads, dtype=torch.float32, device=q.device)
    chosen = {
        "SIZE": size,
        "SIZE_TILE": tile,
        "SPLIT": SPLIT,
        "COUNTED": counts is not None,
        "SLIDES": sliding is not None,
    }
    sight = sliding or capacity  # a row sees itself and what lies before, `sight` cache rows in all
    counted = starts if counts is None else counts  # never read where None
    window_attention_kernel[min(splits, MOST_PROGRAMS), kv_heads, slots * -(-rows // group)](
        q,
        new_keys,
        new_values,
        keys,
        values,
        positions,
        starts,
        counted,
        sums,
        *stats,
        *(x.stride(0) // size for x in (q, new_keys, new_values)),
        rows,
        slots,
        kv_heads,
        capacity,
        sight,
        scale,
        softcap or 1.0,
        SHARE=share,
        ROWS=group,
        QUERIES=queries,
        BLOCK=max(
            16,
            min(
                64,
                BLOCK_BYTES[q.element_size()] // (tile * q.element_size()),
                BLOCK_SCORES // queries,
            ),
        ),
        LARGEST=torch.finfo(q.dtype).max,
        CAPPED=softcap is not None,
        WRITES=k is not None,
        **chosen,
        enable_fp_fusion=True,
        num_warps=4 if queries < 64 and q.element_size() == 2 else 8,
        num_stages=STAGES if tile <= 128 else 2,
    )
    options = {"enable_fp_fusion": True, "num_warps": max(1, tile // 32)}
    merge_splits_kernel[rows, heads](
        sums, *stats, positions, starts, counted, out, slots, sight, **chosen, **options
    )
    return out
