"""Windows in which every slot holds three drafts and has four rows, as peers take them; accepted
as often as was recorded."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import torch
from torch import Tensor

from bench.inputs.recorded import DEPTH, recorded_window
from bench.inputs.windows import WindowData
from bench.reference import oracle

GROUP = DEPTH + 1


@lru_cache(maxsize=2)
def uniform_window(slots: int, vocab: int, dtype: torch.dtype) -> WindowData:
    """A recorded window of 4 rows a slot. What a slot is proposed next does not depend on the
    row that is kept last, as in a peer's table of drafts by request. Whoever changes it in place
    takes a copy (`recorded.fresh`)."""
    data = recorded_window(slots, GROUP * slots, vocab, dtype)
    if data.window.starts.diff().tolist() != [GROUP] * slots:
        raise RuntimeError(
            f"groups are {data.window.starts.diff().tolist()}, expected {GROUP} rows of each of "
            f"{slots} slots"
        )
    return replace(data, proposals=data.proposals[::GROUP].repeat_interleave(GROUP, 0))


def tokens_of(data: WindowData) -> list[list[int]]:
    """By slot, the tokens kept."""
    kept, tokens, *_ = oracle.accepted(data)
    return [each[:count] for each, count in zip(tokens, kept, strict=True)]


def given(slots: int, vocab: int, dtype: torch.dtype) -> dict[str, Tensor | list[list[int]]]:
    """What a peer needs, without a type of this project: logits [rows, vocab]; fed [slots, 4]
    int32, anchor and drafts; positions [slots] int32, of the anchors; proposals [slots, 3]
    int32; verify: the tokens kept by slot; next_window: ids and positions after it."""
    data = uniform_window(slots, vocab, dtype)
    ids, positions, *_ = oracle.next_window(data)[1]
    return {
        "logits": data.logits[:, :vocab].contiguous(),
        "fed": data.window.ids.view(slots, GROUP),
        "positions": data.state.positions,
        "proposals": data.proposals[::GROUP].contiguous(),
        "verify": tokens_of(data),
        "next_window": [ids, positions],
    }
