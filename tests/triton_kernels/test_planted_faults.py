"""Faults planted in copies of the kernels: the checks of the compiled code must notice every one
of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bench.inputs.mixers import MAKERS
from tests.emulator.memory import Race
from tests.support.kernels.checks import check
from tests.support.kernels.planted import WRONG, Fault, planted
from tests.triton_kernels.test_emulated import long_row

WIDE = {"slots": 2, "bucket": 3, "depth": 1, "vocab": 9000}  # more than one chunk

FAULTS = [
    Fault("control", "argmax.py", "row", "row", "argmax", {"slots": 1}),
    Fault("tie_to_the_highest_id", "argmax.py", "tl.min(tl.min(tl.where(order == best, column, MOST_INT), 1), 0)",
          "tl.max(tl.max(tl.where(order == best, column, -1), 1), 0)", "argmax"),
    Fault("tie_between_chunks", "argmax.py", "(MOST_INT - lowest.to(tl.int64))", "lowest.to(tl.int64)", "argmax", WIDE),
    Fault("max_not_atomic", "argmax.py", 'tl.atomic_max(keys_ptr + row, key, sem="relaxed")',
          "tl.store(keys_ptr + row, tl.maximum(tl.load(keys_ptr + row), key))", "argmax", WIDE, (Race,)),
    Fault("ticket_off_by_one", "argmax.py", "tl.num_programs(1) - 1", "tl.num_programs(1) - 2", "argmax", WIDE, (*WRONG, Race)),
    Fault("ticket_not_returned", "argmax.py", "        tl.store(tickets_ptr + row, 0)\n", "", "argmax"),
    Fault("flag_never_set", "argmax.py", "tl.store(faults_ptr + row, fault)", "tl.store(faults_ptr + row, fault & (row < 0))", "argmax"),
    Fault("nan_loses", "argmax.py", "order = tl.where(nan, FAULTY, order)", "order = tl.where(nan, NOTHING, order)", "argmax"),
    Fault("minus_zero_below_zero", "argmax.py", "LEAST_INT - bits", "bits ^ MOST_INT", "argmax"),
    Fault("ban_ignored", "argmax.py", "for i in range(banned):", "for i in range(1, banned):", "argmax"),
    Fault("vector_past_the_row", "argmax.py", "place + vector <= skew + vocab", "place < skew + vocab", "argmax"),
    Fault("ends_of_the_row_not_read", "argmax.py", "if chunk == 0:", "if chunk == 1:", "argmax"),
    Fault("offset_of_32_bits", "argmax.py", "row.to(tl.int64) * stride", "row * stride.to(tl.int32)", "long row"),
    Fault("mask_dropped", "pack.py", "tl.store(starts_ptr + slot, first, mask=slot < slots)", "tl.store(starts_ptr + slot, first)", "pack"),
    Fault("padding_not_written", "pack.py", "padding = (row >= total)", "padding = (row > total)", "pack"),
    Fault("first_draft_skipped", "pack.py", "drafts_ptr + slot[:, None] * depth + (place - 1)",
          "drafts_ptr + slot[:, None] * depth + place", "pack"),
    Fault("room_off_by_one", "accept.py", "(max_new - produced)[:, None] > place + 1", "(max_new - produced)[:, None] > place", "accept"),
    Fault("context_off_by_one", "accept.py", ">= place + 3", ">= place + 2", "accept"),
    Fault("stop_id_ignored", "accept.py", "(place + 1 < group[:, None]) & ~stop", "(place + 1 < group[:, None])", "accept"),
    Fault("one_stop_id_only", "accept.py", "range(tl.max(stop_count, 0))", "range(tl.minimum(tl.max(stop_count, 0), 1))", "accept"),
    Fault("least_length_off_by_one", "accept.py", "[:, None] + place >= 0", "[:, None] + place > 0", "accept"),
    Fault("fault_not_reached_ends", "accept.py", "(end & 1) > 0", "tl.max(fault.to(tl.int32), 1) > 0", "accept"),
    Fault("barrier_missing", "advance.py", "        tl.debug_barrier()", "        pass", "advance",
          {"slots": 9, "bucket": 4, "depth": 3}, (Race,)),
    Fault("ticket_without_release", "advance.py", 'sem="acq_rel"', 'sem="relaxed"', "advance all",
          {"slots": 3, "bucket": 4, "depth": 3}, (Race,)),
    Fault("tail_too_early", "advance.py", "tl.num_programs(0) * tl.num_programs(1) - 1", "tl.num_programs(0) * tl.num_programs(1) - 2",
          "advance all", {"slots": 5, "bucket": 8, "depth": 3}, (*WRONG, Race)),
    Fault("key_not_returned", "advance.py", "mask=window_row < bucket,\n            )",
          "mask=window_row + 1 < bucket,\n            )", "advance all", {"slots": 9, "bucket": 8, "depth": 3}),
    Fault("ended_slot_goes_on", "advance.py", "tl.where(finish == _RUNNING, live, 0)", "live", "advance all"),
    Fault("old_drafts_kept", "advance.py", "tl.where(moved, proposed, 0)", "tl.where(moved, held, 0)", "advance all"),
    Fault("drafts_of_another_row", "commit.py", "(first + kept - 1)[:, None] * proposed", "first[:, None] * proposed", "advance all"),
    Fault("draft_without_a_grant", "advance.py", "tl.minimum(held, tl.load(allowed_ptr + slot, mask=known, other=0))", "held",
          "advance all"),
    Fault("rotation_stands_still", "plan.py", "tl.minimum(walkers, 2)", "tl.minimum(walkers, 1)", "advance all"),
    Fault("a_fitting_group_left_out", "plan.py", "enters = able & (needed <= rows)", "enters = able & (needed < rows)", "advance all"),
    Fault("state_of_another_slot", "gated_delta.py", "slot.to(tl.int64) * (width * key_size)", "0 * (width * key_size)", "gated_delta", {}),
    Fault("first_row_skipped", "gated_delta.py", "for row in range(first, last):\n            q",
          "for row in range(first + 1, last):\n            q", "gated_delta", {}),
    Fault("key_head_not_shared", "gated_delta.py", "at = head // share * key_size", "at = head * key_size", "gated_delta", {}),
    Fault("read_before_the_update", "gated_delta.py", "state = state * decay + k[:, None] * delta[None]",
          "state = state * decay + k[:, None] * (delta * beta)[None]", "gated_delta", {}),
    Fault("rows_not_cleared", "gated_delta.py", "if slot == slots - 1:", "if slot == slots:", "gated_delta", {}),
    Fault("more_than_the_group_kept", "gated_delta_commit.py", "tl.minimum(tl.load(starts_ptr + slot + 1), first + tl.load(kept_ptr + slot))",
          "first + tl.load(kept_ptr + slot)", "gated_delta", {}),
    Fault("first_layer_only", "gated_delta_commit.py", "layer * deltas_layer", "0 * deltas_layer", "gated_delta", {}),
    Fault("state_stored_while_read", "gated_delta_commit.py", "        tl.debug_barrier()", "        pass", "gated_delta", {}, (Race,)),
    Fault("verify_commits", "gated_delta.py", "    if slot == slots - 1:\n",
          "    tl.store(states_ptr + offsets, tl.zeros_like(offsets).to(tl.float32), "
          "mask=inside)\n    if slot == slots - 1:\n",
          "gated_delta", {}, (*WRONG, Race)),
    Fault("past_and_window_swapped", "causal_conv.py", "old, new) * tl.load", "new, old) * tl.load", "causal_conv", {}),
    Fault("taps_backwards", "causal_conv.py", "weight_ptr + tap * channels", "weight_ptr + (past - tap) * channels", "causal_conv", {}),
    Fault("a_kept_row_lost", "causal_conv.py", "source = line + kept +", "source = line + kept - 1 +", "causal_conv", {}),
    Fault("walk_from_slot_0", "plan.py", "wraps = slot < start", "wraps = slot < 0", "advance all"),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_fault_is_noticed(fault: Fault, tmp_path: Path):
    def suite(kernels: Any) -> None:
        if fault.check == "long row":
            long_row(kernels)
        else:
            dtype = {} if fault.check in MAKERS else {"dtype": torch.float32}
            check(
                fault.check,
                90,
                range(30 if fault.name == "control" else 150),
                kernels,
                **(dtype | fault.sizes),
            )

    with planted(fault, tmp_path) as kernels:
        if fault.name == "control":
            suite(kernels)
            return
        with pytest.raises(fault.notices):
            suite(kernels)
