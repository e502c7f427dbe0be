"""`grant=srpt`: shortest remaining first. The most throughput, and no fairness: a long request
may wait for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtp.grants.entry import Entry
from mtp.grants.ring import RingDiscipline
from mtp.grants.rules import highest


@dataclass(frozen=True)
class Srpt(RingDiscipline):
    """Remaining: tokens it may still emit, which its client has set; where it ends earlier is
    not known."""

    def prefer(self, ring: Sequence[Entry]) -> int:
        return highest([entry.received - entry.request.max_new_tokens for entry in ring])
