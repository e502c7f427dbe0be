"""Inputs that broke systems like this one, at the level of the commit rule, the window plans and
the twins. One id, one test.

Every commit is checked on both forms of the rule: `commit_group` and its device twin.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
import torch

from mtp.commit import Committed, commit_group
from mtp.windows import Group, SlotView, rotate_grow
from triton_kernels import accept_prefix_torch, pack_window_torch, row_argmax_torch

ANCHOR = 99


def commit(
    drafts: Sequence[int],
    picks: Sequence[int],
    *,
    stop: Collection[int] = (),
    room: int = 10,
    n: int = 10,
    produced: int = 0,
    min_new: int = 0,
) -> Committed:
    """n: tokens in the cache before the window, the anchor's position."""
    fed, context = [ANCHOR, *drafts], n + 1000
    outcome = commit_group(
        fed,
        picks,
        stop_ids=stop,
        produced=produced,
        max_new=produced + room,
        position=n,
        context=context,
        min_new=min_new,
    )
    ids = list(stop) or [0]
    per_slot = [[ANCHOR], [n], [produced], [produced + room], [context], [min_new]]
    kept, tokens, _, finish = accept_prefix_torch(
        ints(picks),
        torch.zeros(len(picks), dtype=torch.bool),
        ints(fed),
        ints([0, len(fed)]),
        *map(ints, per_slot),
        ints([ids]),
        ints([len(stop)]),
        width=4,
    )
    count = int(kept)
    twin = Committed(
        tuple(tokens[0, :count].tolist()),
        count,
        max(0, count - 1),
        (None, "stop", "length", "error")[int(finish)],
    )
    assert twin == outcome
    return outcome


def ints(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def test_a01_a_stop_id_in_the_middle_of_the_group_ends_the_reply():
    outcome = commit([5, 7, 9], [5, 7, 9, 4], stop={7})
    assert outcome == Committed((5, 7), kept=2, accepted=1, finish="stop")
    assert 10 + outcome.kept == 12


def test_a03_a_drafted_stop_id_does_not_end_the_request():
    outcome = commit([20, 7, 21], [20, 22, 23, 24], stop={7})
    assert outcome == Committed((20, 22), kept=2, accepted=1, finish=None)  # the next anchor is 22


@pytest.mark.parametrize("room", [1, 2, 3, 4])
def test_a05_block_and_bonus_are_clipped_to_the_room(room):
    outcome = commit([1, 2, 3], [1, 2, 3, 4], room=room)
    assert outcome == Committed((1, 2, 3, 4)[:room], kept=room, accepted=room - 1, finish="length")


@pytest.mark.parametrize(
    "stop",
    [{1, 106, 50}, frozenset({106}), [1, 106, 50], (106, 106), {106: "turn"}.keys()],
    ids=str,
)
def test_a07_every_stop_id_is_honoured(stop):
    assert commit([106, 3, 4], [106, 3, 4, 5], stop=stop) == Committed(
        (106,), kept=1, accepted=0, finish="stop"
    )


def test_a07_a_set_without_the_id_goes_on():
    assert commit([106, 3, 4], [106, 3, 4, 5], stop={1}) == Committed(
        (106, 3, 4, 5), kept=4, accepted=3, finish=None
    )


def test_a09_the_minimum_bans_stops_by_output_number():
    logits = torch.zeros(4, 12)
    for row, (best, second) in enumerate([(7, 8), (7, 9), (7, 4), (1, 2)]):
        logits[row, best], logits[row, second] = 2.0, 1.0
    emitted, min_new = 1, 3
    counts = [int(emitted + row < min_new) for row in range(4)]
    picks = row_argmax_torch(
        logits, banned=ints([[7]] * 4), banned_counts=ints(counts)
    ).ids.tolist()
    assert picks == [8, 9, 7, 1]
    outcome = commit([8, 9, 4], picks, stop={7}, produced=emitted, min_new=min_new)
    assert outcome == Committed((8, 9, 7), kept=3, accepted=2, finish="stop")
    assert emitted + len(outcome.tokens) == 4


def test_a11_a_tie_goes_to_the_lowest_id_in_every_dtype():
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert row_argmax_torch(torch.tensor([[1, 5, 0, 0, 5, 2]], dtype=dtype)).ids.tolist() == [1]
    near = torch.tensor([[2.001, 2.002]])
    assert row_argmax_torch(near).ids.tolist() == [1]
    assert row_argmax_torch(near.bfloat16()).ids.tolist() == [0]


def test_a15_zeros_in_the_draft_buffer_are_not_drafts():
    plan = rotate_grow([SlotView(0, held=0, room=5, position=10, context=99)])
    assert plan.groups == (Group(0, 1),)
    packed = pack_window_torch(
        ints([ANCHOR]), ints([[0, 0, 0]]), ints([10]), ints([plan.groups[0].rows]), bucket=4
    )
    rows = int(packed.starts[-1])
    assert (packed.ids[:rows].tolist(), rows - 1) == ([ANCHOR], 0)
    assert commit([], [0], room=5) == Committed((0,), kept=1, accepted=0, finish=None)


def test_a19_every_row_gives_its_own_best():
    logits = torch.zeros(4, 10)
    for row, best in enumerate([5, 6, 7, 4]):
        logits[row, best] = 3.0
    logits[0, 8], logits[0, 9] = 2.0, 1.0  # what a top-3 of row 0 would give
    picks = row_argmax_torch(logits).ids.tolist()
    assert commit([5, 6, 7], picks).tokens == (5, 6, 7, 4)
    assert commit([5], picks[:2]).tokens == (5, 6)


@pytest.mark.parametrize(("n", "rows"), [(4091, 4), (4092, 2), (4093, 2), (4094, 1), (4095, None)])
def test_p01_rows_end_with_the_targets_context(n, rows):
    plan = rotate_grow([SlotView(0, held=3, room=100, position=n, context=4096)])
    assert plan.groups == (() if rows is None else (Group(0, rows),))
    if rows == 1:
        assert (
            commit_group([ANCHOR], [5], max_new=200, produced=100, position=n, context=4096).finish
            == "length"
        )


@pytest.mark.parametrize(
    ("n", "held", "rows"),
    [(2044, 3, 4), (2046, 3, 4), (2047, 2, 2), (2048, 1, 2), (2049, 0, 1), (3000, 0, 1)],
)
def test_p01_past_the_drafters_context_a_slot_decodes_with_one_row(n, held, rows):
    """A drafter whose context is 2048 holds what it could make before its end; the plan takes no
    more than that."""
    assert rotate_grow([SlotView(0, held=held, room=100, position=n, context=4096)]).groups == (
        Group(0, rows),
    )


def test_p03_a_window_is_never_empty_while_a_slot_can_run():
    assert rotate_grow(able(1), rows=1).groups == (Group(0, 1),)


@pytest.mark.parametrize(("start", "rows"), [(0, [4, 2, 2]), (1, [2, 4, 2]), (2, [2, 2, 4])])
def test_p03_the_spare_rows_rotate(start, rows):
    assert [group.rows for group in rotate_grow(able(3), start=start).groups] == rows


def test_p03_the_slot_left_out_is_first_in_the_next_window():
    first = rotate_grow(able(5))
    second = rotate_grow(able(5), start=first.next_start)
    assert ([group.slot for group in first.groups], first.next_start) == ([0, 1, 2, 3], 4)
    assert ([group.slot for group in second.groups], second.next_start) == ([0, 1, 2, 4], 3)


def able(slots: int) -> list[SlotView]:
    return [SlotView(slot, held=3, room=100, position=10, context=1000) for slot in range(slots)]
