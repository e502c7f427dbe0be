"""Inputs that broke systems like this one, on the compiled kernels and their twins. One id, one
test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.emulator.driver import emulated
from tests.support.kernels.checks import same
from triton_kernels import (
    Packed,
    SlotLimits,
    SlotState,
    accept,
    advance,
    advance_window,
    argmax,
    pack,
    pack_window_torch,
)
from triton_kernels.accept import LENGTH, RUNNING, STOP

ANCHOR, N = 99, 10  # the anchor; tokens in the cache before the window
pytestmark = pytest.mark.parametrize("arch", [80, 90])


def ints(*values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def picks_of(
    arch: int, logits: Tensor, banned: Tensor | None = None, counts: Tensor | None = None
) -> tuple[list[int], list[bool]]:
    with emulated(arch):
        got = argmax._launch(logits, logits.shape[1], banned, counts)
    same(got, argmax._twin(logits, logits.shape[1], banned, counts))
    return got[0].tolist(), got[1].tolist()


def commit(
    arch: int,
    drafts: Sequence[int],
    picks: Sequence[int],
    *,
    stop: Sequence[int] = (),
    room: int = 10,
    produced: int = 0,
    min_new: int = 0,
) -> tuple[list[int], int, int, int]:
    """(tokens, kept, next anchor, finish) of one slot."""
    given = accept.Inputs(
        picks=ints(*picks),
        faults=torch.zeros(len(picks), dtype=torch.bool),
        ids=ints(ANCHOR, *drafts),
        starts=ints(0, len(picks)),
        anchors=ints(ANCHOR),
        positions=ints(N),
        produced=ints(produced),
        max_new=ints(produced + room),
        context=ints(1000),
        min_new=ints(min_new),
        stop_ids=torch.tensor(stop, dtype=torch.int32).reshape(1, -1),
        stop_counts=ints(len(stop)),
    )
    with emulated(arch):
        kept, tokens, anchors, finish = got = accept._launch(4, *given)
    same(got, accept._twin(4, *given))
    return tokens[0, : int(kept)].tolist(), int(kept), int(anchors), int(finish)


def test_a01_a_stop_id_accepted_in_the_middle_of_the_group_ends_the_reply(arch):
    assert commit(arch, [5, 7, 9], [5, 7, 9, 4], stop=[7]) == ([5, 7], 2, 7, STOP)


def test_a03_a_drafted_stop_id_that_the_target_did_not_pick_ends_nothing(arch):
    assert commit(arch, [20, 7, 21], [20, 22, 23, 24], stop=[7]) == ([20, 22], 2, 22, RUNNING)


def test_a05_never_more_tokens_than_room(arch):
    for room in (1, 2, 3, 4):
        assert commit(arch, [1, 2, 3], [1, 2, 3, 4], room=room) == (
            [1, 2, 3, 4][:room],
            room,
            room,
            LENGTH,
        )


def test_a07_every_stop_id_counts(arch):
    assert commit(arch, [106, 3, 4], [106, 3, 4, 5], stop=[1]) == ([106, 3, 4, 5], 4, 5, RUNNING)
    for stop in ([1, 106, 50], [106, 106], [106]):
        assert commit(arch, [106, 3, 4], [106, 3, 4, 5], stop=stop) == ([106], 1, 106, STOP)


def test_a09_stop_ids_are_banned_by_output_number(arch):
    """By the tables alone, in one launch; and with the bans as data."""
    best = [(7, 8), (7, 9), (7, 4), (1, 2)]
    logits = torch.zeros(4, 12)
    for row, (first, second) in enumerate(best):
        logits[row, [first, second]] = torch.tensor([3.0, 2.0])
    picks, _ = picks_of(arch, logits, ints(7).repeat(4, 1), ints(1, 1, 0, 0))
    assert picks[:3] == [8, 9, 7]
    assert commit(arch, [8, 9, 4], picks, stop=[7], produced=1, min_new=3) == (
        [8, 9, 7],
        3,
        7,
        STOP,
    )
    state = SlotState(ints(ANCHOR), ints(N), ints(1), ints(1), ints(3), ints([8, 9, 4]), ints(0))
    limits = SlotLimits(ints(100), ints(1000), ints(3), ints(3), ints([7]), ints(1))
    window = Packed(
        *pack_window_torch(state.anchors, state.drafts, state.positions, ints(4), bucket=4)
    )
    arguments = advance.arguments_of("accept", state, limits, window, logits=logits, rows=4)
    with emulated(arch):
        _, result = advance._launch(*arguments)
    assert result[:, 0].tolist() == [4, 3, STOP, 8, 9, 7, 0]
    assert (int(state.produced), int(state.live)) == (4, 0)


def test_a11_a_tie_goes_to_the_lowest_id_in_every_dtype(arch):
    assert picks_of(arch, torch.tensor([[1.0, 5, 0, 0, 5, 2]])) == ([1], [False])
    near = torch.tensor([[2.001, 2.002]])
    assert picks_of(arch, near) == ([1], [False])
    assert picks_of(arch, near.bfloat16()) == ([0], [False])
    wide = torch.zeros(1, 9000)
    wide[0, [4100, 8999]] = 5.0
    assert picks_of(arch, wide) == ([4100], [False])


def test_a13_a_faulty_row_is_never_token_0(arch):
    rows = torch.full((3, 5), -math.inf)
    rows[1, 4], rows[2, 3] = math.nan, -1.0
    assert picks_of(arch, rows) == ([0, 0, 3], [True, True, False])


def test_a15_a_slot_without_drafts_gives_one_row_whatever_its_buffer_holds(arch):
    state = SlotState(ints(ANCHOR), ints(N), ints(0), ints(1), ints(0), ints([0, 0, 0]), ints(0))
    limits = SlotLimits(
        ints(5), ints(1000), ints(0), ints(3), torch.zeros(1, 0, dtype=torch.int32), ints(0)
    )
    window = Packed(*(torch.full((4,), 7, dtype=torch.int32) for _ in range(4)), ints(0, 0))
    plan = advance.arguments_of("plan", state, limits, window, rows=4)
    with emulated(arch):
        advance._launch(*plan)
        accepted = advance.arguments_of(
            "accept", state, limits, window, logits=torch.eye(4), rows=4
        )
        _, result = advance._launch(*accepted)
    assert (window.ids.tolist(), window.starts.tolist()) == ([ANCHOR, 0, 0, 0], [0, 1])
    assert result[:, 0].tolist() == [1, 1, RUNNING, 0, 0, 0, 0]


def test_a19_three_drafts_compare_with_three_rows_best_choices(arch):
    logits = torch.zeros(4, 10)
    logits[range(4), [5, 6, 7, 4]] = 9.0
    logits[0, [8, 9]] = torch.tensor([8.0, 7.0])
    picks, _ = picks_of(arch, logits)
    assert commit(arch, [5, 6, 7], picks) == ([5, 6, 7, 4], 4, 4, RUNNING)
    assert commit(arch, [5], picks[:2]) == ([5, 6], 2, 6, RUNNING)


def test_p05_proposals_come_from_the_slots_own_last_kept_row(arch):
    """Rotation from slot 2, groups (2, 2, 4), matches (0, 1, 2): the next drafts are of rows 0,
    101, 202 (100 * slot + row)."""
    anchors, positions, groups = ints(1, 2, 3), ints(5, 6, 7), ints(2, 2, 4)
    drafts = ints([20, 0, 0], [21, 0, 0], [22, 23, 24])
    with emulated(arch):
        window = Packed(*pack._launch(anchors, drafts, positions, groups, 8))
    assert (window.slots.tolist(), window.group_index.tolist()) == (
        [0, 0, 1, 1, 2, 2, 2, 2],
        [0, 1, 0, 1, 0, 1, 2, 3],
    )
    logits = torch.zeros(8, 40)
    logits[range(8), [30, 31, 21, 32, 22, 23, 33, 34]] = 1.0
    hidden = (100 * window.slots + window.group_index)[:, None].repeat(1, 3).contiguous()
    three = torch.ones(3, dtype=torch.int32)
    state = SlotState(anchors, positions, 0 * three, three, 0 * three, drafts.clone(), ints(2))
    limits = SlotLimits(
        100 * three,
        1000 * three,
        0 * three,
        3 * three,
        torch.zeros(3, 0, dtype=torch.int32),
        0 * three,
    )
    arguments = advance.arguments_of("all", state, limits, window, logits=logits, proposals=hidden)
    with emulated(arch):
        advance._launch(*arguments)
    assert state.drafts[:, 0].tolist() == [0, 101, 202]
    assert state.anchors.tolist() == [30, 32, 33]
    assert window.ids.tolist() == [30, 0, 32, 101, 33, 202, 202, 202]


def test_k09_row_counts_first_seen_in_a_capture_compile_nothing(arch):
    """Warming up one row count is enough: later sizes, strides, alignments and values of 1 meet
    the same variants."""

    def window(slots: int, bucket: int, vocab: int, offset: int) -> None:
        per_slot = torch.ones(slots, dtype=torch.int32)
        logits = torch.zeros(bucket, vocab + offset, dtype=torch.bfloat16)[:, offset:]
        picks, faults = argmax._launch(
            logits,
            vocab,
            torch.zeros(bucket, 1, dtype=torch.int32),
            torch.zeros(bucket, dtype=torch.int32),
        )
        drafts = torch.zeros(slots, 3, dtype=torch.int32)
        packed = Packed(*pack._launch(per_slot, drafts, per_slot, per_slot, bucket))
        limits = SlotLimits(*[per_slot] * 4, per_slot[:, None], per_slot)
        given = accept.Inputs(
            picks=picks,
            faults=faults,
            ids=packed.ids,
            starts=packed.starts,
            anchors=per_slot,
            positions=per_slot,
            produced=per_slot,
            max_new=per_slot,
            context=per_slot,
            min_new=per_slot,
            stop_ids=limits.stop_ids,
            stop_counts=per_slot,
        )
        accept._launch(4, *given)
        state = SlotState(*(per_slot.clone() for _ in range(5)), drafts, ints(0))
        plan = {"rows": bucket, "policy": "static_k"}
        for stage in ("all", "accept", "plan"):
            model = {} if stage == "plan" else {"logits": logits, "vocab": vocab}
            tables = (stage, state, limits, packed)
            advance._launch(*advance.arguments_of(*tables, **plan, **model))

    kernels = (
        argmax.row_argmax_kernel,
        pack.pack_window_kernel,
        accept.accept_prefix_kernel,
        advance.advance_window_kernel,
    )
    with emulated(arch, execute=False):
        window(4, 8, 4096, 0)
        before = [len(kernel.device_caches[arch][0]) for kernel in kernels]
        for slots, bucket, vocab, offset in (
            (1, 1, 4095, 1),
            (3, 3, 1, 3),
            (16, 16, 4097, 8),
            (64, 64, 17, 0),
            *((n, n, 16, 0) for n in range(1, 9)),
        ):
            window(slots, bucket, vocab, offset)
        assert [len(kernel.device_caches[arch][0]) for kernel in kernels] == before


def test_a_window_without_rows_changes_nothing(arch):
    zero = torch.zeros(2, dtype=torch.int32)
    state = SlotState(
        ints(3, 4), ints(5, 6), zero.clone(), zero.clone(), ints(1, 0), ints([8], [9]), ints(1)
    )
    limits = SlotLimits(
        zero + 9, zero + 99, zero, zero + 1, torch.zeros(2, 0, dtype=torch.int32), zero
    )
    window = Packed(*(torch.zeros(4, dtype=torch.int32) for _ in range(4)), ints(0, 0, 0))
    before = [tensor.clone() for tensor in (*state, *window)]
    logits = torch.full((4, 9), math.nan)
    arguments = advance.arguments_of("all", state, limits, window, logits=logits, rows=4)
    with emulated(arch):
        _, result = advance._launch(*arguments)
    same((*state, *window), before)
    assert not result.any()
    advance_window("all", state, limits, window, logits=logits, rows=4)
    same((*state, *window), before)
