"""What the engine writes down of its steps, and what it keeps of a window between launch and booking. Pure Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mtp.executor import Outcome, StagedWindow
from mtp.layouts.cache import PhaseTimes
from mtp.metrics import Round
from mtp.policies import SlotResult
from mtp.request import Stream
from mtp.windows import Group

NO_WINDOW = PhaseTimes(0.0, 0.0)


@dataclass
class Side:
    """Speculative and other steps each have their own. start: where its next window's rotation begins."""

    start: int = 0
    prefilled_last: bool = False


@dataclass(frozen=True)
class Step:
    """One action of the engine, planning and booking included. kind: `prefill` or `window`; rows: of it, before padding;
    phases: of a window; speculative: it was the turn of those who hold a grant. Steps do not overlap."""

    kind: str
    rows: int
    start_s: float
    end_s: float
    padded: int = 0
    phases: PhaseTimes = NO_WINDOW
    speculative: bool = True


@dataclass(frozen=True)
class InFlight:
    """A window that was launched and is not yet booked. streams: by slot, who takes part or, where the device plans, who may."""

    work: StagedWindow
    streams: Mapping[int, Stream]
    depth: int
    phases: PhaseTimes
    speculative: bool
    begin_s: float
    start_s: float


def slot_result(stream: Stream, rows: int, outcome: Outcome) -> SlotResult:
    return SlotResult(
        stream.request.id,
        stream.slot,
        rows,
        stream.position,
        outcome.committed,
        outcome.drafts,
        outcome.confidence,
    )


def round_of(
    window: int, stream: Stream, group: Group, outcome: Outcome, start_s: float, end_s: float
) -> Round:
    committed = outcome.committed
    return Round(
        window=window,
        slot=stream.slot,
        request=stream.request.id,
        rows=group.rows,
        drafted=group.rows - 1,
        accepted=committed.accepted,
        committed=committed.kept,
        finish=committed.finish,
        start_s=start_s,
        end_s=end_s,
    )
