"""Picks: the target's own choice after each row of a window."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from triton_kernels.checks import require
from triton_kernels.launch import constant, jit, kernel, operation, scratch, tl

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
WIDEST_LOAD, CHUNK = 16, 16384  # bytes: of one load, of one program
WARPS = 8
VECTOR_BYTES = constant(WIDEST_LOAD)
CHUNK_VECTORS = constant(CHUNK // WIDEST_LOAD)
MOST_INT = constant(2**31 - 1)
LEAST_INT = constant(-(2**31))
LEAST_KEY = constant(-(2**63))
FAULTY = constant(2**31 - 1)  # upper half of the key of a row with a NaN
NOTHING = constant(-0x7F800000)  # upper half of the key of -inf


class Picks(NamedTuple):
    ids: Tensor  # [rows] int32; 0 where the row is faulty
    faults: Tensor  # [rows] bool


@jit
def best_of(value, column, banned_ptr, banned):
    """The order key of a tile, 64 bits: value above, lowest column below; the largest key wins.

    NaN is above all other values, also in a banned column; -0.0 equals +0.0.
    """
    value = value.to(tl.float32)
    nan = value != value
    for i in range(banned):
        value = tl.where(column == tl.load(banned_ptr + i), float("-inf"), value)
    bits = value.to(tl.int32, bitcast=True)
    order = tl.where(bits < 0, LEAST_INT - bits, bits)  # ascends with the value; both zeros give 0
    order = tl.where(nan, FAULTY, order)
    best = tl.max(tl.max(order, 1), 0)
    lowest = tl.min(tl.min(tl.where(order == best, column, MOST_INT), 1), 0)
    # columns before the row make this exceed 31 bits
    return (best.to(tl.int64) << 32) | (MOST_INT - lowest.to(tl.int64))


@jit
def best_of_chunk(logits_ptr, row, stride, vocab, chunk, banned_ptr, banned):
    """The order key of one chunk of a row, by aligned 16-byte loads whatever the row's address and
    length.

    A row is read from the last 16-byte border before it; vectors that cross its ends are left to
    one narrow load of its first and last columns, by the first chunk's program.
    """
    bytes: tl.constexpr = logits_ptr.dtype.element_ty.primitive_bitwidth // 8
    vector: tl.constexpr = VECTOR_BYTES // bytes
    row_ptr = logits_ptr + row.to(tl.int64) * stride
    address = row_ptr.to(tl.int64)
    skew = ((address & (VECTOR_BYTES - 1)) // bytes).to(tl.int32)
    border_ptr = tl.multiple_of(
        (address & -VECTOR_BYTES).to(logits_ptr.dtype, bitcast=True), VECTOR_BYTES
    )
    element = tl.arange(0, vector)[None]
    place = (chunk * CHUNK_VECTORS + tl.arange(0, CHUNK_VECTORS))[:, None] * vector
    whole = (place >= skew) & (place + vector <= skew + vocab)
    value = tl.load(border_ptr + (place + element), mask=whole, other=float("-inf"))
    key = best_of(value, place + element - skew, banned_ptr, banned)
    if chunk == 0:
        column = tl.arange(0, 2)[:, None] * (vocab - vector) + element
        inside = (column >= 0) & (column < vocab)
        ends = tl.load(row_ptr + column, mask=inside, other=float("-inf"))
        key = tl.maximum(key, best_of(ends, column, banned_ptr, banned))
    return key


@jit
def pick_of(key):
    """(id, fault) of a row's order key; the id of a faulty row is 0."""
    order = (key >> 32).to(tl.int32)
    fault = (order == FAULTY) | (order <= NOTHING)
    return tl.where(fault, 0, MOST_INT - (key & MOST_INT).to(tl.int32)), fault


@kernel
def row_argmax_kernel(
    logits_ptr,
    stride: tl.int64,
    vocab,
    banned_ptr,
    counts_ptr,
    most_banned,
    ids_ptr,
    faults_ptr,
    keys_ptr,
    tickets_ptr,
):
    """Grid (rows, chunks). Every program folds its chunk into the row's key; the last to take a
    ticket writes the pick."""
    row = tl.program_id(0)
    banned = 0
    if most_banned > 0:
        banned = tl.load(counts_ptr + row)
    key = best_of_chunk(
        logits_ptr,
        row,
        stride,
        vocab,
        tl.program_id(1),
        banned_ptr + row.to(tl.int64) * most_banned,
        banned,
    )
    tl.atomic_max(keys_ptr + row, key, sem="relaxed")
    if tl.atomic_add(tickets_ptr + row, 1, sem="acq_rel") == tl.num_programs(1) - 1:
        key = tl.atomic_xchg(keys_ptr + row, LEAST_KEY, sem="relaxed")
        pick, fault = pick_of(key)
        tl.store(ids_ptr + row, pick)
        tl.store(faults_ptr + row, fault)
        tl.store(tickets_ptr + row, 0)


def chunks_of(logits: Tensor, vocab: int) -> int:
    """Programs that read one row of `vocab` columns."""
    # at most, from the 16-byte border before the row
    skew = WIDEST_LOAD // logits.element_size() - 1
    return -(-(skew + vocab) * logits.element_size() // CHUNK)


def _launch(
    logits: Tensor, vocab: int, banned: Tensor | None, banned_counts: Tensor | None
) -> tuple[Tensor, Tensor]:
    rows = logits.shape[0]
    ids = torch.empty(rows, dtype=torch.int32, device=logits.device)
    faults = torch.empty(rows, dtype=torch.bool, device=logits.device)
    if rows:
        keys, tickets = scratch(logits.device, rows)
        most = 0 if banned is None else banned.shape[1]
        row_argmax_kernel[rows, chunks_of(logits, vocab)](
            logits,
            logits.stride(0),
            vocab,
            banned if most else ids,  # never read where most is 0
            banned_counts if most else ids,
            most,
            ids,
            faults,
            keys,
            tickets,
            num_warps=WARPS,
        )
    return ids, faults


def _twin(
    logits: Tensor, vocab: int, banned: Tensor | None, banned_counts: Tensor | None
) -> tuple[Tensor, Tensor]:
    real = logits[:, :vocab]
    best, ids = real.max(1)  # of equal values the first index; a NaN wins, so that it shows
    faults = ~(best > float("-inf"))
    if banned is not None and banned_counts is not None:
        faults = best.isnan()  # a banned one too
        best, ids = real.masked_fill(
            _banned_columns(banned, banned_counts, vocab), float("-inf")
        ).max(1)
        faults |= best == float("-inf")
    return torch.where(faults, 0, ids).int(), faults


def _banned_columns(banned: Tensor, counts: Tensor, vocab: int) -> Tensor:
    """[rows, vocab] bool. Ids outside the vocabulary ban nothing."""
    rows, most = banned.shape
    counted = torch.arange(most, device=banned.device)[None] < counts[:, None]
    counted = counted & (banned >= 0) & (banned < vocab)
    spare = torch.where(
        counted, banned, vocab
    ).long()  # what does not count lands in a column that is cut off
    mask = torch.zeros(rows, vocab + 1, dtype=torch.bool, device=banned.device)
    return mask.scatter_(1, spare, torch.ones_like(spare, dtype=torch.bool))[:, :vocab]


_operation = operation(
    "row_argmax(Tensor logits, int vocab, Tensor? banned, Tensor? banned_counts) -> (Tensor, "
    "Tensor)",
    cpu=_twin,
    cuda=_launch,
)


def check_logits(logits: Tensor, vocab: int | None, *, dense: bool) -> int:
    """The number of real columns. Refuses logits that no pick can be taken from."""
    require("logits", logits, shape=[None, None], dtypes=DTYPES)
    width = logits.shape[1]
    if dense and width > 1 and logits.stride(1) != 1:
        raise ValueError(f"logits has column stride {logits.stride(1)}, expected 1")
    vocab = width if vocab is None else vocab
    if not 1 <= vocab <= width:
        raise ValueError(f"vocab is {vocab}, expected 1 to {width} (the width of logits)")
    return vocab


def _check(
    logits: Tensor,
    vocab: int | None,
    banned: Tensor | None,
    banned_counts: Tensor | None,
    *,
    dense: bool,
) -> int:
    vocab = check_logits(logits, vocab, dense=dense)
    rows = logits.shape[0]
    if (banned is None) != (banned_counts is None):
        raise ValueError("banned and banned_counts: one is missing, expected both or neither")
    if banned is not None and banned_counts is not None:
        require(
            "banned", banned, shape=[rows, None], dtypes=[torch.int32], like=logits, dense=dense
        )
        require(
            "banned_counts",
            banned_counts,
            shape=[rows],
            dtypes=[torch.int32],
            like=logits,
            dense=dense,
        )
    return vocab


def row_argmax(
    logits: Tensor,
    *,
    vocab: int | None = None,
    banned: Tensor | None = None,
    banned_counts: Tensor | None = None,
) -> Picks:
    """The highest logit of every row; the lowest id wins a tie, and -0.0 equals +0.0.

    logits: [rows, width] bf16, fp16 or fp32, any row stride. vocab: real columns (<= width);
    columns past it never win. banned: [rows, M] int32 ids that may not win in that row, the first
    banned_counts[row] (int32) of each row count. A row with a NaN among its real columns, or with
    nothing above -inf left, is faulty. Raises ValueError, one line, for a wrong shape, dtype,
    device or stride. On a GPU: one launch, none without rows.
    """
    vocab = _check(logits, vocab, banned, banned_counts, dense=True)
    return Picks(*_operation(logits, vocab, banned, banned_counts))


def row_argmax_torch(
    logits: Tensor,
    *,
    vocab: int | None = None,
    banned: Tensor | None = None,
    banned_counts: Tensor | None = None,
) -> Picks:
    """`row_argmax` in plain torch, for any strides."""
    vocab = _check(logits, vocab, banned, banned_counts, dense=False)
    return Picks(*_twin(logits, vocab, banned, banned_counts))
