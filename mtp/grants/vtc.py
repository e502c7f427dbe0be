"""`grant=vtc`: virtual token counters. The request that has received the fewest tokens is next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mtp.grants.entry import Entry
from mtp.grants.ring import RingDiscipline
from mtp.grants.rules import highest


@dataclass(frozen=True)
class Vtc(RingDiscipline):
    """A newcomer's counter begins at the lowest of those present: nobody saves up a claim by
    staying away."""

    def prefer(self, ring: Sequence[Entry]) -> int:
        return highest([-counter(entry) for entry in ring])

    def arrived(self, entry: Entry, others: Iterable[Entry]) -> None:
        entry.lift = min((counter(other) for other in others), default=0)


def counter(entry: Entry) -> int:
    return entry.lift + entry.received
