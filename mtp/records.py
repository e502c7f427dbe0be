"""What the engine records of its steps, and what it holds of a window between launch and
booking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtp.executor import Outcome, PhaseTimes, StagedWindow
from mtp.request import Stream
from mtp.windows import Group

NO_WINDOW = PhaseTimes(0.0, 0.0)


@dataclass(frozen=True)
class Round:
    """One slot's part of one window."""

    window: int
    slot: int
    request: str
    rows: int
    drafted: int  # rows - 1
    accepted: int  # drafts whose rows were kept
    committed: int  # rows kept == tokens emitted; 0: cancelled, or the first row was faulty
    finish: str | None
    start_s: float  # of the window, on the engine's clock, as end_s
    end_s: float

    def __post_init__(self) -> None:
        if (
            self.drafted != self.rows - 1
            or self.accepted != max(0, self.committed - 1)
            or not 0 <= self.committed <= self.rows
        ):
            raise ValueError(
                f"window {self.window}, request {self.request}: {self.rows} rows, {self.drafted} "
                f"drafted, {self.accepted} accepted, "
                f"{self.committed} committed; expected drafted = rows - 1, accepted = committed - "
                "1, committed within rows"
            )

    def judged(self, position: int) -> bool:
        """Whether the draft at `position` (from 0) met its pick: all before it were accepted and
        the request went on."""
        met = self.accepted > position or (self.accepted == position and self.finish is None)
        return self.committed > 0 and self.drafted > position and met


@dataclass(frozen=True)
class Step:
    """One action of the engine, planning and booking included. Steps do not overlap."""

    kind: str  # `prefill` or `window`
    rows: int  # before padding
    start_s: float
    end_s: float
    padded: int = 0
    phases: PhaseTimes = NO_WINDOW  # of a window
    speculative: bool = True  # it was the turn of those who hold a grant


@dataclass(frozen=True)
class InFlight:
    """A window that was launched and is not yet booked."""

    window: StagedWindow
    streams: Mapping[int, Stream]  # by slot: who is in it or, where the device plans, who may be
    depth: int
    phases: PhaseTimes
    speculative: bool
    times: tuple[float, float]  # when its step began, and its launch

    def live(
        self, streams: Mapping[int, Stream], outcomes: Sequence[Outcome]
    ) -> list[tuple[Stream, Group, Outcome]]:
        """The window's slots but for those whose request has ended since the launch."""
        return [
            (stream, group, outcome)
            for group, outcome in zip(self.window.groups, outcomes, strict=True)
            if streams.get(group.slot) is (stream := self.streams[group.slot])
        ]


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
