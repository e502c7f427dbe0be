"""Advance: from the target's logits to the next window's inputs, without the host, in one launch
or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from triton_kernels.accept import RUNNING, keep_prefix
from triton_kernels.argmax import LEAST_KEY, WARPS, best_of_chunk, chunks_of, pick_of
from triton_kernels.arguments import NO_PLAN, Arguments, arguments_of
from triton_kernels.commit import commit_window_torch, renew_tokens, store_result
from triton_kernels.launch import (
    ROW_TILE,
    SLOT_TILE,
    constant,
    kernel,
    operation,
    power_of_two,
    scratch,
    tl,
)
from triton_kernels.pack import Packed, load_tokens, store_window
from triton_kernels.plan import POLICIES, plan_groups, plan_window_torch
from triton_kernels.state import RESULT_FIELDS, Advanced, SlotLimits, SlotState

_RUNNING = constant(RUNNING)


@kernel
def advance_window_kernel(
    anchors_ptr,
    positions_ptr,
    produced_ptr,
    live_ptr,
    held_ptr,
    drafts_ptr,
    start_ptr,
    max_new_ptr,
    context_ptr,
    min_new_ptr,
    allowed_ptr,
    stop_ids_ptr,
    stop_counts_ptr,
    ids_ptr,
    rows_positions_ptr,
    slots_ptr,
    index_ptr,
    starts_ptr,
    logits_ptr,
    proposals_ptr,
    picks_ptr,
    result_ptr,
    keys_ptr,
    tickets_ptr,
    stride: tl.int64,
    vocab,
    slots,
    depth,
    most_stops,
    bucket,
    proposed,
    rows,
    ACCEPT: tl.constexpr,
    POLICY: tl.constexpr,
    DRAFTS: tl.constexpr,
    SIZES: tl.constexpr,
    GROUP_TILE: tl.constexpr,
):
    """Grid (bucket, chunks) where it accepts: every program folds its chunk into its row's key,
    and the last of all to take a ticket does the rest. Grid (1,) where it only plans. The rest:
    every load, one barrier, every store."""
    last = True
    if ACCEPT:
        row = tl.program_id(0)
        if row < tl.load(starts_ptr + slots):
            owner = tl.load(slots_ptr + row)
            early = tl.load(produced_ptr + owner) + tl.load(index_ptr + row) < tl.load(
                min_new_ptr + owner
            )
            banned = tl.where(early, tl.load(stop_counts_ptr + owner), 0)
            key = best_of_chunk(
                logits_ptr,
                row,
                stride,
                vocab,
                tl.program_id(1),
                stop_ids_ptr + owner * most_stops,
                banned,
            )
            tl.atomic_max(keys_ptr + row, key, sem="relaxed")
        last = (
            tl.atomic_add(tickets_ptr, 1, sem="acq_rel")
            == tl.num_programs(0) * tl.num_programs(1) - 1
        )
    if last:
        slot = tl.arange(0, SLOT_TILE)
        known = slot < slots
        place = tl.arange(0, GROUP_TILE)[None]
        produced = tl.load(produced_ptr + slot, mask=known, other=0)
        max_new = tl.load(max_new_ptr + slot, mask=known, other=0)
        position = tl.load(positions_ptr + slot, mask=known, other=0)
        context = tl.load(context_ptr + slot, mask=known, other=0)
        live = tl.load(live_ptr + slot, mask=known, other=0)
        held = tl.load(held_ptr + slot, mask=known, other=0)
        tokens = load_tokens(anchors_ptr, drafts_ptr, slot, slots, depth, GROUP_TILE)
        if ACCEPT:
            first = tl.load(starts_ptr + slot, mask=known, other=0)
            group = tl.load(starts_ptr + slot + 1, mask=known, other=0) - first
            row_of = first[:, None] + place
            here = place < group[:, None]
            pick, fault = pick_of(tl.load(keys_ptr + row_of, mask=here, other=LEAST_KEY))
            follower = tl.load(ids_ptr + row_of + 1, mask=place + 1 < group[:, None], other=0)
            kept, anchor, finish = keep_prefix(
                pick,
                fault,
                follower,
                group,
                produced,
                max_new,
                position,
                context,
                tl.load(min_new_ptr + slot, mask=known, other=0),
                stop_ids_ptr,
                tl.load(stop_counts_ptr + slot, mask=known, other=0),
                most_stops,
                slot,
                GROUP_TILE,
            )
            window_row = tl.arange(0, ROW_TILE)
            window_pick, _ = pick_of(
                tl.load(keys_ptr + window_row, mask=window_row < bucket, other=LEAST_KEY)
            )
            moved = kept > 0
            produced += kept
            position += kept
            live = tl.where(finish == _RUNNING, live, 0)
            # drafts for another prefix are never used
            held = tl.where(group > 0, tl.where(moved, proposed, 0), held)
            tokens, renewed = renew_tokens(
                tokens, first, kept, anchor, proposals_ptr, proposed, place
            )
        if POLICY >= 0:
            limit = tl.minimum(max_new - produced, context - position - 1)
            able = known & (live > 0) & (limit >= 1)
            usable = tl.minimum(
                tl.minimum(held, tl.load(allowed_ptr + slot, mask=known, other=0)), limit - 1
            )
            start = tl.load(start_ptr)
            next_group, start = plan_groups(able, usable, slot, start, rows, POLICY, DRAFTS, SIZES)
        tl.debug_barrier()  # warps read what others are about to overwrite
        if ACCEPT:
            tl.store(
                keys_ptr + window_row,
                tl.full([ROW_TILE], LEAST_KEY, tl.int64),
                mask=window_row < bucket,
            )
            tl.store(tickets_ptr, 0)
            tl.store(picks_ptr + window_row, window_pick, mask=window_row < bucket)
            store_result(result_ptr, slot, slots, depth, group, kept, finish, pick, place)
            tl.store(anchors_ptr + slot, anchor, mask=moved)
            tl.store(positions_ptr + slot, position, mask=moved)
            tl.store(produced_ptr + slot, produced, mask=moved)
            tl.store(live_ptr + slot, live, mask=known)
            tl.store(held_ptr + slot, held, mask=known)
            tl.store(drafts_ptr + slot[:, None] * depth + (place - 1), tokens, mask=renewed)
        if POLICY >= 0:
            tl.store(start_ptr, start)
            store_window(
                ids_ptr,
                rows_positions_ptr,
                slots_ptr,
                index_ptr,
                starts_ptr,
                slot,
                slots,
                bucket,
                next_group,
                position,
                tokens,
                GROUP_TILE,
            )


def _launch(*given: Any) -> tuple[Tensor, Tensor]:
    arguments = Arguments(*given)
    state, packed = SlotState(*arguments.state), Packed(*arguments.window)
    (slots, depth), bucket = state.drafts.shape, packed.ids.shape[0]
    outputs = _outputs(arguments)
    if not slots:
        return outputs
    logits, proposals = arguments.logits, arguments.proposals
    proposed = 0 if proposals is None else proposals.shape[1]
    unread = packed.ids  # stands for what the stage does not touch
    reads = (unread if logits is None else logits, proposals if proposed else unread)
    inputs = (*arguments.state, *arguments.limits, *arguments.window, *reads)
    stride = 0 if logits is None else logits.stride(0)
    most_stops = SlotLimits(*arguments.limits).stop_ids.shape[1]
    shapes = (stride, arguments.vocab, slots, depth, most_stops, bucket, proposed, arguments.rows)
    grid = (1,) if logits is None else (bucket, chunks_of(logits, arguments.vocab))
    advance_window_kernel[grid](
        *inputs,
        *outputs,
        *scratch(unread.device, bucket),
        *shapes,
        ACCEPT=arguments.accepts,
        POLICY=arguments.policy,
        DRAFTS=arguments.k,
        SIZES=sum({1 << size for size in arguments.sizes}),
        GROUP_TILE=power_of_two(depth + 1),
        num_warps=WARPS if arguments.accepts else 1,
    )
    return outputs


def _outputs(arguments: Arguments) -> tuple[Tensor, Tensor]:
    """(picks, result) as in `Advanced`, not yet written; both empty where the stage is plan."""
    ids, drafts = Packed(*arguments.window).ids, SlotState(*arguments.state).drafts
    slots, depth = drafts.shape
    make = torch.empty if slots else torch.zeros  # without a slot nothing is launched
    rows, fields = (len(ids), RESULT_FIELDS + depth + 1) if arguments.accepts else (0, 0)
    picks = make(rows, dtype=torch.int32, device=ids.device)
    return picks, make((fields, slots), dtype=torch.int32, device=ids.device)


def _twin(*given: Any) -> tuple[Tensor, Tensor]:
    arguments = Arguments(*given)
    outputs = _outputs(arguments)
    state, limits = SlotState(*arguments.state), SlotLimits(*arguments.limits)
    tables = (state, limits, Packed(*arguments.window))
    if not len(state.anchors):
        return outputs
    if arguments.logits is not None:
        model = (arguments.logits, arguments.proposals, arguments.vocab)
        outputs = commit_window_torch(*tables, *model)
    if arguments.policy != NO_PLAN:
        policy = POLICIES[arguments.policy]
        plan_window_torch(*tables, arguments.rows, policy, arguments.k, arguments.sizes)
    return outputs


_operation = operation(
    "advance_window(Tensor(a!)[] state, Tensor[] limits, Tensor(b!)[] window, Tensor? logits, "
    "Tensor? proposals, int vocab, int rows, bool accepts, int policy, int k, int[] sizes) "
    "-> (Tensor, Tensor)",
    cpu=_twin,
    cuda=_launch,
)


def advance_window(
    stage: Literal["all", "accept", "plan"],
    state: SlotState,
    limits: SlotLimits,
    window: Packed,
    *,
    logits: Tensor | None = None,
    proposals: Tensor | None = None,
    vocab: int | None = None,
    rows: int = 8,
    policy: str = "rotate_grow",
    k: int = 0,
    sizes: Sequence[int] = (1, 2, 4),
) -> Advanced:
    """One window's end and the next one's begin, all on the device: one launch, none without slots.

    accept: picks of `logits` [bucket, width] (as `row_argmax` with the first `vocab` columns and
    the slots' own bans), the accepted prefixes (as `accept_prefix`), and their commit: `state`
    moves, a slot that ends is no longer live, and drafts of slots that took part are replaced by
    the proposals [bucket, n <= depth] int32 of their last kept row, or dropped (held 0). plan: the
    next window of at most `rows` rows by `policy` (`rotate_grow`, or `static_k` with `k` drafts and
    group `sizes`), written into `window` (as `pack_window`), and `state.start`. all: both.

    The drafts that a plan may use are min(held, allowed). `state` and `window` change in place; a
    window without rows changes nothing. Where the stage is plan, both results are empty. At most 64
    slots and 64 rows. Raises ValueError, one line, for a wrong option, shape, dtype, device or
    stride.
    """
    arguments = arguments_of(
        stage,
        state,
        limits,
        window,
        logits=logits,
        proposals=proposals,
        vocab=vocab,
        rows=rows,
        policy=policy,
        k=k,
        sizes=sizes,
        dense=True,
    )
    return Advanced(*_operation(*arguments))


def advance_window_torch(
    stage: Literal["all", "accept", "plan"],
    state: SlotState,
    limits: SlotLimits,
    window: Packed,
    *,
    logits: Tensor | None = None,
    proposals: Tensor | None = None,
    vocab: int | None = None,
    rows: int = 8,
    policy: str = "rotate_grow",
    k: int = 0,
    sizes: Sequence[int] = (1, 2, 4),
) -> Advanced:
    """`advance_window` in plain torch, for any strides."""
    arguments = arguments_of(
        stage,
        state,
        limits,
        window,
        logits=logits,
        proposals=proposals,
        vocab=vocab,
        rows=rows,
        policy=policy,
        k=k,
        sizes=sizes,
        dense=False,
    )
    return Advanced(*_twin(*arguments))
