"""Advance: from the target's logits to the next window's inputs, without the host, in one launch
or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from triton_kernels import accept, argmax
from triton_kernels.accept import RUNNING, keep_prefix
from triton_kernels.argmax import LEAST_KEY, best_of_chunk, chunks_of, pick_of
from triton_kernels.checks import require
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
from triton_kernels.state import RESULT_FIELDS, Advanced, SlotLimits, SlotState, check_tables

STAGES = ("all", "accept", "plan")


_RESULT_FIELDS, _RUNNING = constant(RESULT_FIELDS), constant(RUNNING)


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
            from_row = (first + kept - 1)[:, None] * proposed + (place - 1)
            renewed = moved[:, None] & (place > 0) & (place <= proposed)
            tokens = tl.where(
                renewed, tl.load(proposals_ptr + from_row, mask=renewed, other=0), tokens
            )
            tokens = tl.where(moved[:, None] & (place == 0), anchor[:, None], tokens)
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
            tl.store(result_ptr + slot, group, mask=known)
            tl.store(result_ptr + slots + slot, kept, mask=known)
            tl.store(result_ptr + 2 * slots + slot, finish, mask=known)
            kept_pick = tl.where(place < kept[:, None], pick, 0)
            tl.store(
                result_ptr + (_RESULT_FIELDS + place) * slots + slot[:, None],
                kept_pick,
                mask=known[:, None] & (place <= depth),
            )
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


def _launch(
    state: list[Tensor],
    limits: list[Tensor],
    window: list[Tensor],
    logits: Tensor | None,
    proposals: Tensor | None,
    vocab: int,
    rows: int,
    accepts: bool,
    policy: int,
    k: int,
    sizes: list[int],
) -> tuple[Tensor, Tensor]:
    """policy -1: no plan."""
    tables, packed = SlotState(*state), Packed(*window)
    (slots, depth), bucket = tables.drafts.shape, packed.ids.shape[0]
    outputs = _outputs(tables, packed, accepts)
    if not slots:
        return outputs
    proposed = 0 if proposals is None else proposals.shape[1]
    unread = packed.ids  # stands for what the stage does not touch
    reads = (unread if logits is None else logits, proposals if proposed else unread)
    inputs = (*state, *limits, *window, *reads)
    stride = 0 if logits is None else logits.stride(0)
    most_stops = SlotLimits(*limits).stop_ids.shape[1]
    shapes = (stride, vocab, slots, depth, most_stops, bucket, proposed, rows)
    sizes_set = sum({1 << size for size in sizes})
    options = {"ACCEPT": accepts, "POLICY": policy, "DRAFTS": k, "SIZES": sizes_set}
    tile, warps = power_of_two(depth + 1), argmax.WARPS if accepts else 1
    grid = (1,) if logits is None else (bucket, chunks_of(logits, vocab))
    advance_window_kernel[grid](
        *inputs,
        *outputs,
        *scratch(unread.device, bucket),
        *shapes,
        **options,
        GROUP_TILE=tile,
        num_warps=warps,
    )
    return outputs


def _outputs(state: SlotState, window: Packed, accepts: bool) -> tuple[Tensor, Tensor]:
    (slots, depth), bucket = state.drafts.shape, window.ids.shape[0]
    make = torch.empty if slots else torch.zeros  # without a slot nothing is launched
    fields, device = RESULT_FIELDS + depth + 1, window.ids.device
    picks = make(bucket if accepts else 0, dtype=torch.int32, device=device)
    return picks, make((fields if accepts else 0, slots), dtype=torch.int32, device=device)


def _twin(
    state: list[Tensor],
    limits: list[Tensor],
    window: list[Tensor],
    logits: Tensor | None,
    proposals: Tensor | None,
    vocab: int,
    rows: int,
    accepts: bool,
    policy: int,
    k: int,
    sizes: list[int],
) -> tuple[Tensor, Tensor]:
    changed, bounds, packed = SlotState(*state), SlotLimits(*limits), Packed(*window)
    outputs = _outputs(changed, packed, accepts)
    if not len(changed.anchors):
        return outputs
    if logits is not None:
        outputs = _accept(changed, bounds, packed, logits, proposals, vocab)
    if policy >= 0:
        plan_window_torch(changed, bounds, packed, rows, POLICIES[policy], k, sizes)
    return outputs


def _accept(
    state: SlotState,
    limits: SlotLimits,
    window: Packed,
    logits: Tensor,
    proposals: Tensor | None,
    vocab: int,
) -> tuple[Tensor, Tensor]:
    owner = window.slots.long()
    early = state.produced[owner] + window.group_index < limits.min_new[owner]
    counts = torch.where(early, limits.stop_counts[owner], 0)
    picks, faults = argmax.row_argmax_torch(
        logits, vocab=vocab, banned=limits.stop_ids[owner], banned_counts=counts
    )
    real = torch.arange(len(picks), device=picks.device) < window.starts[-1]
    kept, tokens, anchors, finish = accept.accept_prefix_torch(
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


_operation = operation(
    "advance_window(Tensor(a!)[] state, Tensor[] limits, Tensor(b!)[] window, Tensor? logits, "
    "Tensor? proposals, "
    "int vocab, int rows, bool accepts, int policy, int k, int[] sizes) -> (Tensor, Tensor)",
    cpu=_twin,
    cuda=_launch,
)


def _check(
    stage: str,
    state: SlotState,
    limits: SlotLimits,
    window: Packed,
    logits: Tensor | None,
    proposals: Tensor | None,
    vocab: int | None,
    rows: int,
    policy: str,
    k: int,
    sizes: Sequence[int],
    *,
    dense: bool,
) -> tuple[Any, ...]:
    """The operation's arguments."""
    if stage not in STAGES:
        raise ValueError(f"stage is {stage!r}, expected {' or '.join(STAGES)}")
    if policy not in POLICIES:
        raise ValueError(f"policy is {policy!r}, expected {' or '.join(POLICIES)}")
    check_tables(state, limits, window, dense=dense)
    bucket, depth = window.ids.shape[0], state.drafts.shape[1]
    if (logits is None) != (stage == "plan") or (logits is None and proposals is not None):
        raise ValueError(
            f"stage is {stage!r}, expected logits (and perhaps proposals) for all and accept, "
            "neither for plan"
        )
    columns = 0
    if logits is not None:
        columns = argmax.check_logits(logits, vocab, dense=dense)
        require("logits", logits, shape=[bucket, None], dtypes=argmax.DTYPES, like=window.ids)
    if proposals is not None:
        require(
            "proposals",
            proposals,
            shape=[bucket, None],
            dtypes=[torch.int32],
            like=window.ids,
            dense=dense,
        )
        if proposals.shape[1] > depth:
            raise ValueError(
                f"proposals has {proposals.shape[1]} columns, expected at most {depth} (those of "
                "drafts)"
            )
    if not 1 <= rows <= bucket:
        raise ValueError(f"rows is {rows}, expected at least 1 and at most {bucket} (the bucket)")
    if policy == "static_k" and k + 1 not in sizes:
        raise ValueError(
            f"k is {k}, expected one less than a group size: "
            f"{', '.join(str(n - 1) for n in sorted(sizes))}"
        )
    plan: tuple[int, int, list[int]] = (0, 0, [])
    if stage == "accept":
        plan = (-1, 0, [])
    elif policy == "static_k":
        plan = (1, k, list(sizes))
    tables = (list(state), list(limits), list(window))
    return (*tables, logits, proposals, columns, rows, stage != "plan", *plan)


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
    options = (logits, proposals, vocab, rows, policy, k, sizes)
    return Advanced(*_operation(*_check(stage, state, limits, window, *options, dense=True)))


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
    options = (logits, proposals, vocab, rows, policy, k, sizes)
    return Advanced(*_twin(*_check(stage, state, limits, window, *options, dense=False)))
