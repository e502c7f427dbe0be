"""Plain decoding that drafts at every token and keeps what it saw: how a tape is recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mtp.fields import Tupled
from mtp.policies.checks import check_depth
from mtp.policies.protocol import Decision, WindowResult
from mtp.tape import Tape
from mtp.tape.stats import tape_stats
from mtp.windows import SlotView, static_k


@dataclass(frozen=True)
class Record:
    """Everyone must be allowed to speculate: drafts that are not made cannot be recorded."""

    depth: int = 7  # drafts made at every token
    sizes: Tupled[int] = Tupled(1)

    def __post_init__(self) -> None:
        check_depth(self.depth, least=1)

    def open(self) -> Recording:
        return Recording(self)


@dataclass(frozen=True)
class RecordedToken:
    """An output token, and what was drafted with it as the anchor."""

    token: int
    drafts: tuple[int, ...]
    confidence: tuple[float, ...]  # the drafter's own, per draft


class Recording:
    def __init__(self, settings: Record) -> None:
        self.sizes, self.depth = settings.sizes, settings.depth
        self.rows: dict[str, list[RecordedToken]] = defaultdict(list)  # by request

    def decide(self, slots: Sequence[SlotView], *, rows: int, start: int) -> Decision:
        """One row for everyone."""
        return Decision(static_k(slots, k=0, rows=rows, start=start, sizes=self.sizes), self.depth)

    def observe(self, result: WindowResult) -> None:
        for part in result.slots:
            self.rows[part.request] += [
                RecordedToken(token, part.drafts, part.confidence)
                for token in part.committed.tokens
            ]

    def release(self, request: str) -> None:
        """What was recorded of it stays."""

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
