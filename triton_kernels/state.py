"""The slots' tables on the device: what a window changes, what the host sets, what the host
reads."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from triton_kernels.checks import require
from triton_kernels.launch import MOST_ROWS, MOST_SLOTS
from triton_kernels.pack import Packed

RESULT_FIELDS = 3  # of Advanced.result before the tokens: rows, kept, finish


class SlotState(NamedTuple):
    """What a window changes, all int32. A slot that is not live takes no part, whatever the rest
    says."""

    anchors: Tensor  # [slots]
    positions: Tensor  # [slots] of the anchor
    produced: Tensor  # [slots] tokens emitted so far
    live: Tensor  # [slots] 1: decoding; the window that ends a slot sets 0
    held: Tensor  # [slots] drafts it holds
    drafts: Tensor  # [slots, depth]
    start: Tensor  # [1] slot id at which the next window's rotation begins


class SlotLimits(NamedTuple):
    """What the host sets, all int32."""

    max_new: Tensor  # [slots]
    context: Tensor  # [slots] most prompt + output tokens
    min_new: Tensor  # [slots] stop ids are banned from the picks of earlier output tokens
    allowed: Tensor  # [slots] most drafts it may have verified: 0 without a grant
    stop_ids: Tensor  # [slots, M]
    stop_counts: Tensor  # [slots] that count; 0 to ignore stops


class Advanced(NamedTuple):
    picks: Tensor  # [bucket] int32; 0 in faulty rows and in padding
    # [3 + width, slots] int32: rows, kept and finish of every slot, then its tokens by place, 0
    # from kept on
    result: Tensor

    @property
    def kept(self) -> Tensor:
        """[slots] int32."""
        return self.result[1]


def check_tables(state: SlotState, limits: SlotLimits, window: Packed, *, dense: bool) -> None:
    """Refuse tables that do not fit each other or the kernels."""
    ints, like = [torch.int32], state.anchors
    require("anchors", like, shape=[None], dtypes=ints, dense=dense)
    require("ids", window.ids, shape=[None], dtypes=ints, like=like, dense=dense)
    slots, bucket = like.shape[0], window.ids.shape[0]
    shapes: dict[str, list[int | None]] = {
        "drafts": [slots, None],
        "start": [1],
        "stop_ids": [slots, None],
        "starts": [slots + 1],
    }
    for table, usual in ((state, slots), (limits, slots), (window, bucket)):
        for name, tensor in zip(table._fields, table, strict=True):
            require(
                name, tensor, shape=shapes.get(name, [usual]), dtypes=ints, like=like, dense=dense
            )
    if slots > MOST_SLOTS:
        raise ValueError(f"anchors has {slots} slots, expected at most {MOST_SLOTS}")
    if not 1 <= bucket <= MOST_ROWS:
        raise ValueError(f"ids has {bucket} rows, expected at least 1 and at most {MOST_ROWS}")
    if state.drafts.shape[1] >= MOST_ROWS:
        raise ValueError(
            f"drafts has {state.drafts.shape[1]} columns, expected at most {MOST_ROWS - 1}"
        )
