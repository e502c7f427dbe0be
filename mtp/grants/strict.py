"""`grant=strict`: the highest priority first, first come first served within it. The lowest may wait for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtp.grants.discipline import RingDiscipline
from mtp.grants.entry import Entry
from mtp.grants.rules import highest


@dataclass(frozen=True)
class Strict(RingDiscipline):
    def prefer(self, ring: Sequence[Entry]) -> int:
        return highest([entry.request.priority for entry in ring])
