"""What all disciplines with a ring have in common: their settings, and three decisions a discipline may change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mtp.grants.entry import Entry
from mtp.grants.ring import Ring
from mtp.grants.rules import most_skipped

Unit = Literal["rounds", "tokens", "ms"]
Share = Literal["window", "tick"]
Parked = Literal["auto", "wait", "plain"]


@dataclass(frozen=True)
class RingDiscipline:
    """budget, in units: what one grant may use while others wait, 0 = grants never end and nobody waits.

    skip_cap: how many times an entry may be passed over, 0 = any number; backlog: entries of the ring; holders: grants at once.
    share: `window` = holders get as many rows as the policy likes, all others one, in the same windows; `tick` = the holders'
    windows alternate with those of all others. parked: `wait`, `plain` = one row as others; `auto`: wait with tick.
    """

    budget: int = 8
    unit: Unit = "rounds"
    skip_cap: int = 0
    backlog: int = 2
    holders: int = 1
    share: Share = "window"
    parked: Parked = "auto"

    def __post_init__(self) -> None:
        for name, least in (("budget", 0), ("skip_cap", 0), ("backlog", 0), ("holders", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"grant.{name} is {value!r}, expected an integer, at least {least}")
        for name, allowed in (("unit", Unit), ("share", Share), ("parked", Parked)):
            if getattr(self, name) not in get_args(allowed):
                raise ValueError(f"grant.{name} is {getattr(self, name)!r}, expected one of {', '.join(get_args(allowed))}")

    @property
    def parked_wait(self) -> bool:
        return self.parked == "wait" or (self.parked == "auto" and self.share == "tick")

    def open(self, slots: int) -> Ring:
        """The state of one engine."""
        if slots < self.holders + self.backlog:
            raise ValueError(
                f"slots is {slots}, expected at least {self.holders + self.backlog} "
                f"(grant.holders {self.holders} + grant.backlog {self.backlog})"
            )
        return Ring(self)

    def pick(self, ring: Sequence[Entry]) -> int:
        """The place of the next holder in a ring that is not empty: the skip cap comes before every order."""
        overdue = most_skipped([entry.skips for entry in ring], self.skip_cap)
        return self.prefer(ring) if overdue is None else overdue

    def prefer(self, ring: Sequence[Entry]) -> int:
        """Whom this discipline would take: here the first in the ring."""
        return 0

    def allowance(self, entry: Entry, budget: float) -> float:
        """What the grant that begins now may use."""
        return budget

    def arrived(self, entry: Entry, others: Iterable[Entry]) -> None:
        """The entry is new among the others."""
