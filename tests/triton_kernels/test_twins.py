"""Every twin against literal Python, over random windows of every size."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.inputs.windows import DTYPES, WindowData, random_window
from bench.reference import oracle
from mtp.commit import commit_group
from triton_kernels import (
    accept_prefix_torch,
    advance_window_torch,
    pack_window_torch,
    row_argmax_torch,
)

EXAMPLES = settings(max_examples=500, deadline=None)


@st.composite
def windows(draw: st.DrawFn, **fixed: int) -> WindowData:
    sizes = {
        "slots": draw(st.integers(0, 8) | st.integers(9, 64)),
        "bucket": draw(st.integers(1, 8) | st.integers(9, 64)),
        "depth": draw(st.sampled_from((0, 1, 3, 7))),
        "vocab": draw(st.integers(1, 40)),
        "dtype": draw(st.sampled_from(DTYPES)),
    }
    return random_window(draw(st.integers(0, 2**32 - 1)), **(sizes | fixed))


@EXAMPLES
@given(windows(slots=4))
def test_picks(data):
    arguments = data.argmax_arguments()
    ids, faults = row_argmax_torch(**arguments)
    banned = [
        row[:n]
        for row, n in zip(
            arguments["banned"].tolist(), arguments["banned_counts"].tolist(), strict=True
        )
    ]
    want = [oracle.pick(row, data.vocab, banned[i]) for i, row in enumerate(data.logits.tolist())]
    assert list(zip(ids.tolist(), faults.tolist(), strict=True)) == want
    assert (ids.dtype, faults.dtype) == (torch.int32, torch.bool)


@EXAMPLES
@given(windows())
def test_pack(data):
    arguments = data.pack_arguments()
    want = oracle.pack(
        *(value if isinstance(value, int) else value.tolist() for value in arguments.values())
    )
    assert [column.tolist() for column in pack_window_torch(**arguments)] == want


@EXAMPLES
@given(windows())
def test_accept(data):
    arguments = data.accept_arguments()
    lists = {
        name: value if name == "width" else value.tolist() for name, value in arguments.items()
    }
    got = [tensor.tolist() for tensor in accept_prefix_torch(**arguments)]
    for slot, begin, end in zip(
        range(len(lists["anchors"])), lists["starts"], lists["starts"][1:], strict=False
    ):
        kept, tokens, anchor, finish = (column[slot] for column in got)
        if begin == end:
            assert (kept, set(tokens), anchor, finish) == (0, {0}, lists["anchors"][slot], 0)
            continue
        want = commit_group(
            lists["ids"][begin:end],
            lists["picks"][begin:end],
            stop_ids=lists["stop_ids"][slot][: lists["stop_counts"][slot]],
            faults=lists["faults"][begin:end],
            position=lists["positions"][slot],
            **{name: lists[name][slot] for name in ("produced", "max_new", "context", "min_new")},
        )
        assert (kept, oracle.FINISH[finish]) == (want.kept, want.finish)
        assert tokens == [*want.tokens] + [0] * (lists["width"] - kept)
        assert anchor == [lists["anchors"][slot], *want.tokens][-1]


@pytest.mark.parametrize("stage", ["all", "accept", "plan"])
@EXAMPLES
@given(data=windows())
def test_advance(stage, data):
    want = oracle.advance(stage, data)
    state, window = data.copy()
    picks, result = advance_window_torch(
        stage, state=state, window=window, **data.advance_arguments(stage)
    )
    assert [tensor.tolist() for tensor in state] == list(want.state.values())
    assert [tensor.tolist() for tensor in window] == want.window
    assert picks.tolist() == want.picks
    assert result.tolist() == want.result
