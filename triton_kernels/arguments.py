"""What the operation behind `advance_window` is given, and what is refused before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from triton_kernels.commit import check_outputs
from triton_kernels.pack import Packed
from triton_kernels.plan import POLICIES
from triton_kernels.state import SlotLimits, SlotState, check_tables

STAGES = ("all", "accept", "plan")
NO_PLAN = -1  # for Arguments.policy


class Arguments(NamedTuple):
    """What the operation is given, in the order of its schema."""

    state: list[Tensor]  # the fields of `SlotState`
    limits: list[Tensor]  # those of `SlotLimits`
    window: list[Tensor]  # those of `Packed`
    logits: Tensor | None  # [bucket, width]; None where the stage is plan
    proposals: Tensor | None  # [bucket, n <= depth] int32
    vocab: int  # columns of the logits that are real
    rows: int  # the most rows of the next window
    accepts: bool  # the stage accepts
    policy: int  # an index of POLICIES, or NO_PLAN
    k: int  # drafts of a group of `static_k`
    sizes: list[int]  # rows of a group of `static_k`


def arguments_of(
    stage: str,
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
    dense: bool = True,
) -> Arguments:
    """What `advance_window` is given becomes what its operation is given.

    dense: also refuse tensors with gaps between their rows. Raises ValueError, one line, for a
    wrong option, shape, dtype, device or stride.
    """
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
    columns = check_outputs(logits, proposals, vocab, window, depth, dense=dense)
    if not 1 <= rows <= bucket:
        raise ValueError(f"rows is {rows}, expected at least 1 and at most {bucket} (the bucket)")
    if policy == "static_k" and k + 1 not in sizes:
        raise ValueError(
            f"k is {k}, expected one less than a group size: "
            f"{', '.join(str(n - 1) for n in sorted(sizes))}"
        )
    plan: tuple[int, int, list[int]] = (POLICIES.index(policy), 0, [])
    if stage == "accept":
        plan = (NO_PLAN, 0, [])
    elif policy == "static_k":
        plan = (POLICIES.index(policy), k, list(sizes))
    tables = (list(state), list(limits), list(window))
    return Arguments(*tables, logits, proposals, columns, rows, stage != "plan", *plan)
