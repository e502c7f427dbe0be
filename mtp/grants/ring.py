"""The holders and the ring: who may speculate, who waits for it, and when that changes. The engine
and `grant_schedule` drive it.

A discipline with a ring is `RingDiscipline`, its settings, with up to three decisions of its own;
`Ring` is its live state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from mtp.checks import check_integer
from mtp.grants.entry import Entry, Grant
from mtp.grants.protocol import Declines, Picked, Place, Turn
from mtp.grants.rules import backlog_admits, grant_expired, most_skipped
from mtp.request import Request, Stream

Unit = Literal["rounds", "tokens", "ms"]
Share = Literal["window", "tick"]
Parked = Literal["auto", "wait", "plain"]


@dataclass(frozen=True)
class RingDiscipline:
    """What every discipline with a ring can be told.

    share: `window` = holders get as many rows as the policy likes, all others one, in the same
    windows; `tick` = the holders' windows alternate with those of all others.
    parked: `wait`; `plain` = one row, as all others; `auto` = wait with `tick`, else plain.
    """

    budget: int = 8  # of one grant while others wait, in units; 0: no grant ends and nobody waits
    unit: Unit = "rounds"
    skip_cap: int = 0  # how many times an entry may be passed over; 0: any number
    backlog: int = 2  # entries of the ring
    holders: int = 1  # grants at once
    share: Share = "window"
    parked: Parked = "auto"

    def __post_init__(self) -> None:
        for name, least in (("budget", 0), ("skip_cap", 0), ("backlog", 0), ("holders", 1)):
            check_integer(f"grant.{name}", getattr(self, name), least)
        for name, allowed in (("unit", Unit), ("share", Share), ("parked", Parked)):
            if getattr(self, name) not in get_args(allowed):
                raise ValueError(
                    f"grant.{name} is {getattr(self, name)!r}, expected one of "
                    f"{', '.join(get_args(allowed))}"
                )

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
        """The place of the next holder in a ring that is not empty: the skip cap comes before
        every order."""
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


class Ring:
    """holding: by request id; ring: parked and waiting entries, in the order they joined; everyone
    else decodes plainly.

    budget: read when a grant begins, so that a change holds from the next grant on. clock: granted
    rounds so far. log: the grants that have ended.
    """

    def __init__(self, discipline: RingDiscipline) -> None:
        self.discipline = discipline
        self.budget = discipline.budget
        self.holding: dict[str, Entry] = {}
        self.ring: list[Entry] = []
        self.clock = 0
        self.log: list[Grant] = []
        self.ring_peak = self.live_peak = 0
        self._speculated = False  # in the last step of `tick`

    # ---- who holds

    @property
    def waiters(self) -> int:
        return sum(not entry.parked for entry in self.ring)

    def place(self, request: Request, declines: Declines) -> Place:
        """A free grant is taken at once; else the request waits where the ring has room for it;
        else it is plain."""
        entry = Entry(request, self.clock)
        if len(self.holding) < self.discipline.holders and not self.ring:
            if declines(request):
                return "plain"
            self.discipline.arrived(entry, ())
            self._grant(entry)
            return "holding"
        if not backlog_admits(len(self.ring), self.budget, self.discipline.backlog):
            return "plain"
        self.discipline.arrived(entry, (*self.holding.values(), *self.ring))
        self._join(entry)
        return "waiting"

    def promote(self, declines: Declines) -> Iterator[tuple[Request, Picked]]:
        """Every pick passes the others over, also one that ends in a cancel or a decline: then
        the next is taken."""
        while self.ring and len(self.holding) < self.discipline.holders:
            entry = self.ring.pop(self.discipline.pick(self.ring))
            for other in self.ring:
                other.skips += 1
            if entry.cancelled:
                yield entry.request, "cancelled"
            elif declines(entry.request):
                yield entry.request, "plain"
            else:
                self._grant(entry)
                yield entry.request, "holding"

    def round(self, request_id: str, tokens: int, seconds: float, *, over: bool) -> None:
        """Finishing wins over expiring: a request that is over is not parked."""
        entry = self.holding.get(request_id)
        if entry is None:
            for parked in self.ring:
                parked.served += tokens if parked.request.id == request_id else 0
            return
        unit = self.discipline.unit
        charge = 1 if unit == "rounds" else tokens if unit == "tokens" else 1000 * seconds
        entry.used += charge
        entry.rounds += 1
        entry.tokens += tokens
        self.clock += 1
        if not over and grant_expired(entry.used, entry.budget, len(self.ring)):
            # what it used while nobody waited is free
            entry.overdrawn = min(entry.used - entry.budget, charge)
            self._park(entry)

    def cancel(self, request_id: str) -> bool:
        for entry in self.ring:
            if entry.request.id == request_id:
                entry.cancelled = True
                return True
        return False

    def decline(self, request_id: str) -> None:
        self.leave(request_id)  # whoever is not known here is plain

    def leave(self, request_id: str) -> None:
        if request_id in self.holding:
            self._close(self.holding[request_id])
        self.ring = [entry for entry in self.ring if entry.request.id != request_id]

    def _grant(self, entry: Entry) -> None:
        entry.budget = self.discipline.allowance(entry, self.budget)
        entry.used = entry.rounds = entry.tokens = 0
        entry.began, entry.waited = self.clock, self.clock - entry.since
        self.holding[entry.request.id] = entry
        self._peaks()

    def _park(self, entry: Entry) -> None:
        self._close(entry)
        entry.parked = True
        self._join(entry)

    def _join(self, entry: Entry) -> None:
        entry.skips, entry.since = 0, self.clock
        self.ring.append(entry)
        self._peaks()

    def _close(self, entry: Entry) -> None:
        del self.holding[entry.request.id]
        if entry.rounds:
            again = entry.grants > 0
            self.log.append(
                Grant(
                    entry.request.id,
                    entry.began,
                    self.clock,
                    entry.rounds,
                    entry.tokens,
                    entry.waited,
                    again,
                )
            )
        entry.grants += 1
        entry.served, entry.tokens = entry.received, 0

    def _peaks(self) -> None:
        self.ring_peak = max(self.ring_peak, len(self.ring))
        self.live_peak = max(self.live_peak, len(self.holding) + len(self.ring) - self.waiters)

    # ---- whose turn it is

    def turn(self, streams: Mapping[int, Stream]) -> Turn:
        """`window`: all at once. `tick`: holders and others strictly alternate while both have
        work."""
        caps = {slot: self._cap(stream.request.id) for slot, stream in streams.items()}
        if self.discipline.share == "window":
            return Turn(caps, None in caps.values())
        self._speculated = None in caps.values() and not (self._speculated and 1 in caps.values())
        return Turn(
            {slot: cap if (cap is None) == self._speculated else 0 for slot, cap in caps.items()},
            self._speculated,
        )

    def _cap(self, request_id: str) -> int | None:
        if request_id in self.holding:
            return None
        for entry in self.ring:
            if entry.request.id == request_id:
                return 0 if entry.cancelled or self.discipline.parked_wait else 1
        return 1
