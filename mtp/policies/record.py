"""Plain decoding that drafts at every token and keeps what it saw: how a tape is recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mtp.policies.protocol import Decision, WindowResult
from mtp.tape import Tape
from mtp.tape.stats import tape_stats
from mtp.windows import SlotView, static_k


@dataclass(frozen=True)
class Record:
    """depth: drafts made at every token. Everyone must be allowed to speculate: drafts that are not made cannot be recorded."""

    depth: int = 7
    sizes: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        if (
            isinstance(self.depth, bool)
            or not isinstance(self.depth, int)
            or not 1 <= self.depth <= 7
        ):
            raise ValueError(f"policy.depth is {self.depth}, expected an integer, 1 to 7")

    def open(self) -> Recording:
        return Recording(self.depth)

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        """One row for everyone."""
        return Decision(static_k(slots, k=0, rows=rows, start=start, sizes=self.sizes), self.depth)

    def observe(self, result: WindowResult) -> None: ...

    def release(self, request: str) -> None: ...

    def report(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class RecordedToken:
    """An output token, the drafts made with it as the anchor, and the drafter's confidence in each."""

    token: int
    drafts: tuple[int, ...]
    confidence: tuple[float, ...]


@dataclass(frozen=True)
class Recording(Record):
    """The state: rows, by request."""

    rows: dict[str, list[RecordedToken]] = field(default_factory=lambda: defaultdict(list))

    def observe(self, result: WindowResult) -> None:
        for part in result.slots:
            self.rows[part.request] += [
                RecordedToken(token, part.drafts, part.confidence)
                for token in part.committed.tokens
            ]

    def report(self) -> dict[str, Any]:
        """What the tapes say about the drafter: see `tape_stats`."""
        return tape_stats(self.tapes().values(), self.depth)

    def tapes(self) -> dict[str, Tape]:
        """What was recorded, by request; of one that was cut short, as far as it got."""
        return {
            name: Tape.recorded(
                tuple(row.token for row in rows),
                tuple(row.drafts for row in rows),
                tuple(row.confidence for row in rows),
            )
            for name, rows in self.rows.items()
        }
