"""`grant=fifo`: first come, first served; priorities do not matter."""

from __future__ import annotations

from dataclasses import dataclass

from mtp.grants.ring import RingDiscipline


@dataclass(frozen=True)
class Fifo(RingDiscipline):
    """The order of the ring itself."""
