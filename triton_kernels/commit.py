"""Commit: what an accepted window changes in the slots' tables, and what the host reads of it."""

from __future__ import annotations

import torch
from torch import Tensor

from triton_kernels.accept import RUNNING, accept_prefix_torch
from triton_kernels.argmax import DTYPES, check_logits, row_argmax_torch
from triton_kernels.checks import require
from triton_kernels.launch import constant, jit, tl
from triton_kernels.pack import Packed
from triton_kernels.state import RESULT_FIELDS, SlotLimits, SlotState

_RESULT_FIELDS = constant(RESULT_FIELDS)


@jit
def renew_tokens(tokens, first, kept, anchor, proposals_ptr, proposed, place):
    """(tokens, renewed) [SLOT_TILE, GROUP_TILE]: a slot that keeps rows has its new anchor and the
    proposals of the row kept last; renewed marks those proposals.

    tokens: the slot's anchor and drafts before; first (row of its group), kept, anchor (the new
    one): [SLOT_TILE]; place: [1, GROUP_TILE].
    """
    moved = (kept > 0)[:, None]
    from_row = (first + kept - 1)[:, None] * proposed + (place - 1)
    renewed = moved & (place > 0) & (place <= proposed)
    tokens = tl.where(renewed, tl.load(proposals_ptr + from_row, mask=renewed, other=0), tokens)
    return tl.where(moved & (place == 0), anchor[:, None], tokens), renewed


@jit
def store_result(result_ptr, slot, slots, depth, group, kept, finish, pick, place):
    """`Advanced.result` of every slot: rows, kept, finish, then the picks of its kept rows.

    slot, group, kept, finish: [SLOT_TILE]; pick: [SLOT_TILE, GROUP_TILE]; place: [1, GROUP_TILE].
    """
    known = slot < slots
    tl.store(result_ptr + slot, group, mask=known)
    tl.store(result_ptr + slots + slot, kept, mask=known)
    tl.store(result_ptr + 2 * slots + slot, finish, mask=known)
    tl.store(
        result_ptr + (_RESULT_FIELDS + place) * slots + slot[:, None],
        tl.where(place < kept[:, None], pick, 0),
        mask=known[:, None] & (place <= depth),
    )


def commit_window_torch(
    state: SlotState,
    limits: SlotLimits,
    window: Packed,
    logits: Tensor,
    proposals: Tensor | None,
    vocab: int,
) -> tuple[Tensor, Tensor]:
    """The stage `accept` of `advance_window` in plain torch: its picks and its result, as in
    `Advanced`. `state` moves on in place.

    logits: [bucket, width], of which the first `vocab` columns count; proposals: [bucket, n] int32.
    """
    owner = window.slots.long()
    early = state.produced[owner] + window.group_index < limits.min_new[owner]
    counts = torch.where(early, limits.stop_counts[owner], 0)
    picks, faults = row_argmax_torch(
        logits, vocab=vocab, banned=limits.stop_ids[owner], banned_counts=counts
    )
    real = torch.arange(len(picks), device=picks.device) < window.starts[-1]
    kept, tokens, anchors, finish = accept_prefix_torch(
        picks,
        faults,
        window.ids,
        window.starts,
        state.anchors,
        state.positions,
        state.produced,
        limits.max_new,
        limits.context,
        limits.min_new,
        limits.stop_ids,
        limits.stop_counts,
        width=state.drafts.shape[1] + 1,
    )
    group, moved = window.starts.diff(), kept > 0
    proposed = 0 if proposals is None else proposals.shape[1]
    state.anchors.copy_(anchors)
    state.positions.add_(kept)
    state.produced.add_(kept)
    state.live.masked_fill_(finish != RUNNING, 0)
    state.held.copy_(torch.where(group > 0, torch.where(moved, proposed, 0), state.held))
    if proposals is not None:
        last = (window.starts[:-1] + kept - 1).clamp(min=0).long()
        state.drafts[:, :proposed] = torch.where(
            moved[:, None], proposals[last], state.drafts[:, :proposed]
        )
    return torch.where(real, picks, 0), torch.cat([torch.stack([group, kept, finish]), tokens.T])


def check_outputs(
    logits: Tensor | None,
    proposals: Tensor | None,
    vocab: int | None,
    window: Packed,
    depth: int,
    *,
    dense: bool,
) -> int:
    """The number of real columns of the logits, 0 without any.

    Raises ValueError, one line, for what the model gave in another shape, dtype, device or stride
    than `commit_window_torch` states, and for more than `depth` proposals a row.
    """
    bucket, columns = window.ids.shape[0], 0
    if logits is not None:
        columns = check_logits(logits, vocab, dense=dense)
        require("logits", logits, shape=[bucket, None], dtypes=DTYPES, like=window.ids)
    if proposals is not None:
        shape: list[int | None] = [bucket, None]
        dtypes = [torch.int32]
        require("proposals", proposals, shape=shape, dtypes=dtypes, like=window.ids, dense=dense)
        if proposals.shape[1] > depth:
            raise ValueError(
                f"proposals has {proposals.shape[1]} columns, expected at most {depth} (those of "
                "drafts)"
            )
    return columns
