"""`grant=rotate`: the published scheduler. The highest priority first, but nobody is passed over
more often than the skip cap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtp.grants.entry import Entry
from mtp.grants.ring import RingDiscipline
from mtp.grants.rules import highest


@dataclass(frozen=True)
class Rotate(RingDiscipline):
    """With its skip cap, `pick` is `next_grant_index`."""

    skip_cap: int = 2

    def prefer(self, ring: Sequence[Entry]) -> int:
        return highest([entry.request.priority for entry in ring])
