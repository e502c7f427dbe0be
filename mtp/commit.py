"""The one rule that decides what a window commits. Everything else uses its result: KV trim,
statistics, streaming, kernels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

Finish = Literal["stop", "length", "error"]


@dataclass(frozen=True)
class Committed:
    tokens: tuple[int, ...]  # emitted by this group
    kept: int  # rows whose KV and recurrent state stay: as many as tokens
    accepted: int  # kept drafts
    finish: Finish | None


def commit_group(
    fed: Sequence[int],
    picks: Sequence[int],
    *,
    stop_ids: Collection[int] = frozenset(),
    produced: int = 0,
    max_new: int,
    position: int,
    context: int,
    min_new: int = 0,
    ignore_stop: bool = False,
    faults: Sequence[bool] | None = None,
) -> Committed:
    """What one slot's group commits.

    fed: the group's tokens, anchor first; picks: the target's choice after each row; produced:
    tokens emitted before this window; position: the anchor's; context: most prompt + output tokens;
    min_new: a stop id among the first min_new output tokens does not end; faults: rows whose logits
    hold a NaN or nothing finite.

    Row 0 is always kept; row k iff pick[k-1] == fed[k], pick[k-1] does not end the request,
    produced + k < max_new and position + k + 2 <= context. A faulty row, once reached, ends the
    request with "error" after the rows before it. Raises ValueError when the slot may not take part
    (nothing left to emit, or lengths that do not match).
    """
    if not fed or len(picks) != len(fed) or (faults is not None and len(faults) != len(fed)):
        raise ValueError(
            f"a group needs as many picks and faults as rows, got {len(fed)} rows and {len(picks)} "
            "picks"
        )
    if produced >= max_new or position + 2 > context:
        raise ValueError(
            f"no room: produced {produced} of {max_new}, position {position} of context {context}"
        )

    def ends(k: int) -> bool:
        return not ignore_stop and picks[k] in stop_ids and produced + k >= min_new

    kept = 0
    finish: Finish | None = None
    while kept < len(fed):
        if faults is not None and faults[kept]:
            finish = "error"
            break
        kept += 1
        if ends(kept - 1):
            finish = "stop"
        elif produced + kept == max_new or position + kept + 1 == context:
            finish = "length"
        if finish or kept == len(fed) or picks[kept - 1] != fed[kept]:
            break
    return Committed(tuple(picks[:kept]), kept, max(0, kept - 1), finish)
