"""The plain-torch twins at other strides, paddings and extreme values than windows have: accept
against the commit rule, pack and picks against the oracle."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bench.reference import oracle
from mtp.commit import Committed, commit_group
from triton_kernels import accept_prefix_torch, pack_window_torch, row_argmax_torch

INT = torch.int32
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def ints(values: Any, *shape: int) -> Tensor:
    return torch.tensor(values, dtype=INT).reshape(shape or (-1,))


# ---- accept_prefix


@st.composite
def slot_states(draw: st.DrawFn) -> dict[str, Any]:
    """One slot and its group; rows 0 = not in the window, and then nothing says that it may run."""
    rows = draw(st.integers(0, 4))
    token = st.integers(0, 3)
    picks = draw(st.lists(token, min_size=rows, max_size=rows))
    drafts = [pick if draw(st.integers(0, 4)) else draw(token) for pick in picks[:-1]]
    anchor, produced, position = draw(token), draw(st.integers(0, 5)), draw(st.integers(0, 20))
    least = 1 if rows else 0
    return {
        "fed": [anchor, *drafts][:rows],
        "picks": picks,
        "faults": [draw(st.integers(0, 7)) == 0 for _ in range(rows)],
        "anchor": anchor,
        "stop_ids": draw(st.lists(token, max_size=3)),
        "ignore_stop": draw(st.booleans()),
        "produced": produced,
        "max_new": produced + draw(st.integers(least, 6)),
        "position": position,
        "context": position + 1 + draw(st.integers(least, 6)),
        "min_new": draw(st.integers(0, 7)),
    }


def accept(
    slots: list[dict[str, Any]], *, padding: int, filler: int, width: int = 4
) -> tuple[Tensor, ...]:
    """The twin on a window of these slots. filler: what lies in padding rows and in unused stop
    columns."""

    def column(name: str) -> Tensor:
        return ints([slot[name] for slot in slots])

    def row(name: str) -> list[int]:
        return [value for slot in slots for value in slot[name]] + [filler] * padding

    starts = ints([0, *torch.tensor([len(slot["fed"]) for slot in slots]).cumsum(0).tolist()])
    return accept_prefix_torch(
        ints(row("picks")),
        torch.tensor(row("faults"), dtype=torch.bool),
        ints(row("fed")),
        starts,
        column("anchor"),
        column("position"),
        column("produced"),
        column("max_new"),
        column("context"),
        column("min_new"),
        ints([(slot["stop_ids"] + [filler] * 3)[:3] for slot in slots], len(slots), 3),
        ints([0 if slot["ignore_stop"] else len(slot["stop_ids"]) for slot in slots]),
        width=width,
    )


def expected(slot: dict[str, Any]) -> tuple[int, list[int], int, int]:
    """kept, tokens, anchor, finish: by the commit rule."""
    if not slot["fed"]:
        return 0, [0] * 4, slot["anchor"], 0
    outcome: Committed = commit_group(
        **{name: value for name, value in slot.items() if name != "anchor"}
    )
    tokens = list(outcome.tokens)
    return (
        outcome.kept,
        tokens + [0] * (4 - len(tokens)),
        [slot["anchor"], *tokens][-1],
        oracle.FINISH.index(outcome.finish),
    )


@settings(max_examples=500, deadline=None)
@given(
    slots=st.lists(slot_states(), min_size=1, max_size=5),
    padding=st.integers(0, 3),
    filler=st.integers(0, 3),
)
def test_accept_equals_the_commit_rule(slots, padding, filler):
    if not any(slot["fed"] for slot in slots):
        padding = max(padding, 1)  # a bucket has a row
    got = accept(slots, padding=padding, filler=filler)
    assert all(tensor.dtype == INT for tensor in got)
    assert list(zip(*(tensor.tolist() for tensor in got), strict=True)) == [
        expected(slot) for slot in slots
    ]


def test_accept_of_slots_that_are_all_out_changes_nothing():
    out = {
        "fed": [],
        "picks": [],
        "faults": [],
        "anchor": 9,
        "stop_ids": [],
        "ignore_stop": False,
        "produced": 4,
        "max_new": 4,
    }
    out |= {"position": 7, "context": 8, "min_new": 0}
    kept, tokens, anchors, finish = accept([out, out | {"anchor": 5}], padding=4, filler=0)
    assert (kept.tolist(), tokens.any().item(), anchors.tolist(), finish.tolist()) == (
        [0, 0],
        False,
        [9, 5],
        [0, 0],
    )


def test_accept_of_a_wider_table_gives_the_same():
    slot = {
        "fed": [1, 2],
        "picks": [2, 3],
        "faults": [False] * 2,
        "anchor": 1,
        "stop_ids": [3],
        "ignore_stop": False,
        "produced": 0,
    }
    slot |= {"max_new": 9, "position": 0, "context": 99, "min_new": 0}
    kept, tokens, anchors, finish = accept([slot], padding=6, filler=2, width=8)
    assert (kept.tolist(), tokens.tolist(), anchors.tolist(), finish.tolist()) == (
        [2],
        [[2, 3, 0, 0, 0, 0, 0, 0]],
        [3],
        [1],
    )


ACCEPT = (
    "picks",
    "faults",
    "ids",
    "starts",
    "anchors",
    "positions",
    "produced",
    "max_new",
    "context",
    "min_new",
    "stop_ids",
    "stop_counts",
)


def accept_arguments() -> dict[str, Tensor]:
    arguments = {name: torch.zeros(2, dtype=INT) for name in ACCEPT}
    return arguments | {
        "faults": torch.zeros(2, dtype=torch.bool),
        "starts": ints([0, 1, 2]),
        "stop_ids": torch.zeros(2, 1, dtype=INT),
    }


@pytest.mark.parametrize("name", ACCEPT)
def test_accept_refuses_a_wrong_dtype_and_a_wrong_shape(name):
    good = accept_arguments()
    accept_prefix_torch(**good, width=4)
    refuse(accept_prefix_torch, good | {name: good[name].long()}, f"{name} is torch.int64", width=4)
    for wrong in (good[name][None], good[name].flatten()[0]):
        refuse(accept_prefix_torch, good | {name: wrong}, f"{name} has shape", width=4)
    refuse(accept_prefix_torch, good, "width is 0", width=0)


def refuse(operation: Any, arguments: dict[str, Tensor], message: str, **options: Any) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        operation(**arguments, **options)
    assert "\n" not in str(refusal.value)
    assert "expected" in str(refusal.value)


# ---- pack_window


@st.composite
def batches(draw: st.DrawFn) -> dict[str, Any]:
    slots, depth = draw(st.integers(0, 6)), draw(st.integers(0, 3))
    token = st.integers(1, 99)
    group_rows = [draw(st.integers(0, depth + 1)) for _ in range(slots)]
    return {
        "anchors": [draw(token) for _ in range(slots)],
        "drafts": [[draw(token) for _ in range(depth)] for _ in range(slots)],
        "positions": [draw(token) for _ in range(slots)],
        "group_rows": group_rows,
        "depth": depth,
        "bucket": max(1, sum(group_rows) + draw(st.integers(0, 3))),
    }


@settings(max_examples=300, deadline=None)
@given(batch=batches(), strided=st.booleans())
def test_pack_equals_the_oracle(batch, strided):
    slots, depth, bucket = len(batch["anchors"]), batch["depth"], batch["bucket"]
    names = ("anchors", "drafts", "positions", "group_rows", "bucket")
    want = oracle.pack(*(batch[name] for name in names))
    drafts = ints(batch["drafts"], slots, depth)
    arguments = [
        ints(batch["anchors"]),
        drafts,
        ints(batch["positions"]),
        ints(batch["group_rows"]),
    ]
    if strided:
        arguments = [torch.stack([tensor, tensor + 1000], -1)[..., 0] for tensor in arguments]
    packed = pack_window_torch(*arguments, bucket=bucket)
    assert all(tensor.dtype == INT for tensor in packed)
    assert [tensor.tolist() for tensor in packed] == want


def test_packed_tables_do_not_share_memory():
    for slots in (0, 2):
        packed = pack_window_torch(
            torch.ones(slots, dtype=INT),
            torch.ones(slots, 3, dtype=INT),
            *[torch.ones(slots, dtype=INT)] * 2,
            bucket=4,
        )
        assert len({tensor.data_ptr() for tensor in packed if tensor.numel()}) == 5


@pytest.mark.parametrize("name", ["anchors", "drafts", "positions", "group_rows"])
def test_pack_refuses_a_wrong_dtype_and_a_wrong_shape(name):
    good = {name: torch.zeros(2, dtype=INT) for name in ("anchors", "positions", "group_rows")} | {
        "drafts": torch.zeros(2, 3, dtype=INT)
    }
    pack_window_torch(**good, bucket=4)
    refuse(
        pack_window_torch, good | {name: good[name].float()}, f"{name} is torch.float32", bucket=4
    )
    for wrong in (good[name][None], good[name].flatten()[0]):
        refuse(pack_window_torch, good | {name: wrong}, f"{name} has shape", bucket=4)
    refuse(pack_window_torch, good, "bucket is 0", bucket=0)


# ---- row_argmax

VALUES = [
    math.nan,
    -math.inf,
    math.inf,
    -0.0,
    0.0,
    1.0,
    -1.0,
    2.001,
    2.002,
    65504.0,
    -65504.0,
    6e-8,
]


@st.composite
def logit_rows(draw: st.DrawFn) -> dict[str, Any]:
    rows, width, most = draw(st.integers(1, 5)), draw(st.integers(1, 9)), draw(st.integers(0, 3))
    # few tables with NaN, or every row would be faulty
    pool = VALUES if draw(st.integers(0, 2)) == 0 else VALUES[1:]
    return {
        "logits": [[draw(st.sampled_from(pool)) for _ in range(width)] for _ in range(rows)],
        "vocab": draw(st.integers(1, width)),
        "banned": [[draw(st.integers(-2, 12)) for _ in range(most)] for _ in range(rows)],
        "counts": [draw(st.integers(0, most)) for _ in range(rows)],
        "dtype": draw(st.sampled_from(DTYPES)),
        "layout": draw(st.sampled_from(["rows", "wider", "transposed", "reversed pages"])),
    }


def laid_out(logits: Tensor, layout: str) -> Tensor:
    """The same values, other strides; NaN lies between."""
    rows, width = logits.shape
    if layout == "wider":
        return torch.cat([logits, torch.full((rows, 3), math.nan, dtype=logits.dtype)], 1)[
            :, :width
        ]
    if layout == "transposed":
        return logits.t().contiguous().t()
    if layout == "reversed pages":
        return torch.stack([logits, torch.full_like(logits, math.nan)], 1)[:, 0]
    return logits


@settings(max_examples=500, deadline=None)
@given(case=logit_rows(), bans=st.booleans())
def test_picks_equal_the_oracle(case, bans):
    logits = torch.tensor(case["logits"]).to(case["dtype"])
    width, banned = (
        logits.shape[1],
        [ids[:n] for ids, n in zip(case["banned"], case["counts"], strict=True)],
    )
    want = [
        oracle.pick(row, case["vocab"], banned[i] if bans else [])
        for i, row in enumerate(logits.tolist())
    ]
    options = {
        "banned": ints(case["banned"], len(banned), -1 if case["banned"][0] else 0),
        "banned_counts": ints(case["counts"]),
    }
    picks = row_argmax_torch(
        laid_out(logits, case["layout"]), vocab=case["vocab"], **(options if bans else {})
    )
    assert (picks.ids.dtype, picks.faults.dtype) == (INT, torch.bool)
    assert list(zip(picks.ids.tolist(), picks.faults.tolist(), strict=True)) == want
    if case["vocab"] == width and not bans:
        assert torch.equal(row_argmax_torch(logits).ids, picks.ids)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("row", "pick"),
    [
        ([1.0, 5, 0, 0, 5, 2], 1),
        ([-0.0, 0.0], 0),
        ([0.0, -0.0], 0),
        ([-math.inf, -3.0], 1),
        ([math.inf, math.inf], 0),
        ([-math.inf, math.inf], 1),
    ],
    ids=str,
)
def test_the_lowest_id_wins_a_tie(row, pick, dtype):
    assert row_argmax_torch(torch.tensor([row], dtype=dtype))[0].item() == pick


@pytest.mark.parametrize(
    "row", [[1.0, math.nan, 3.0], [math.nan], [-math.inf] * 3, [math.inf, math.nan]], ids=str
)
def test_a_row_with_a_nan_or_nothing_finite_is_faulty(row):
    picks = row_argmax_torch(torch.tensor([row, [1.0] * len(row)]))
    assert (picks.ids.tolist(), picks.faults.tolist()) == ([0, 0], [True, False])


def test_columns_past_the_vocabulary_neither_win_nor_fault():
    picks = row_argmax_torch(
        torch.tensor([[1.0, 2.0, 9.0], [1.0, 2.0, math.nan], [-math.inf, -math.inf, 9.0]]), vocab=2
    )
    assert (picks.ids.tolist(), picks.faults.tolist()) == ([1, 1, 0], [False, False, True])


def test_bans_are_per_row_and_by_count():
    logits = torch.tensor([[1.0, 3.0, 2.0]] * 4)
    banned, counts = ints([[1, 2], [1, 2], [1, 2], [7, -1]], 4, 2), ints([0, 1, 2, 2])
    assert row_argmax_torch(logits, banned=banned, banned_counts=counts).ids.tolist() == [
        1,
        2,
        0,
        1,
    ]


def test_banning_everything_is_a_fault_and_a_banned_nan_stays_one():
    picks = row_argmax_torch(
        torch.tensor([[1.0, 2.0], [math.nan, 2.0]]),
        banned=ints([[0, 1], [0, 0]], 2, 2),
        banned_counts=ints([2, 1]),
    )
    assert picks.faults.tolist() == [True, True]


def test_argmax_does_not_write_its_input():
    logits = torch.tensor([[1.0, 3.0, 2.0]])
    row_argmax_torch(logits, banned=ints([1], 1, 1), banned_counts=ints([1]))
    assert logits.tolist() == [[1.0, 3.0, 2.0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": torch.zeros(2, 4, dtype=torch.float64)}, "logits is torch.float64"),
        ({"logits": torch.zeros(2, 4, dtype=INT)}, "logits is torch.int32"),
        ({"logits": torch.zeros(4)}, "logits has shape"),
        ({"vocab": 0}, "vocab is 0"),
        ({"vocab": 5}, "vocab is 5"),
        ({"banned": torch.zeros(2, 1, dtype=torch.int64)}, "banned is torch.int64"),
        ({"banned": torch.zeros(3, 1, dtype=INT)}, "banned has shape"),
        ({"banned_counts": torch.zeros(3, dtype=INT)}, "banned_counts has shape"),
        ({"banned_counts": torch.zeros(2)}, "banned_counts is torch.float32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_argmax_refuses(change, message):
    good = {
        "logits": torch.zeros(2, 4),
        "banned": torch.zeros(2, 1, dtype=INT),
        "banned_counts": torch.zeros(2, dtype=INT),
    }
    row_argmax_torch(**good)
    refuse(row_argmax_torch, good | change, message)


def test_bans_and_their_counts_come_together():
    for half in (
        {"banned": torch.zeros(2, 1, dtype=INT)},
        {"banned_counts": torch.zeros(2, dtype=INT)},
    ):
        refuse(row_argmax_torch, {"logits": torch.zeros(2, 4)} | half, "banned and banned_counts")
