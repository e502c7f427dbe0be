"""All that clients can do to a ring with one holder: every state that arrivals, priorities, ends
and cancels can bring about.

A state is what the ring will decide by: the holder's priority and rounds, and every entry's
priority, kind, skips and rounds waited. Each step sets the real `Ring` to a state, lets the
adversary act, runs one round and the next promotion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from mtp.grants import Ring, Rotate
from mtp.grants.entry import Entry
from mtp.grants.ring import RingDiscipline
from mtp.request import Request


class Waiting(NamedTuple):
    priority: int
    parked: bool
    cancelled: bool
    skips: int
    waited: int  # rounds


class State(NamedTuple):
    holder: tuple[int, int] | None  # priority, rounds used
    ring: tuple[Waiting, ...]


@dataclass
class Worst:
    """Over all states: the most skips of an entry, the longest gap and wait of one that was
    promoted, the most ring entries."""

    skips: int = 0
    gap: int = 0
    first: int = 0
    ring: int = 0
    states: int = 0


@dataclass(frozen=True)
class AnyOrder(RingDiscipline):
    """The adversary says whom the discipline prefers."""

    says: list[int] = field(default_factory=lambda: [0])

    def prefer(self, ring: Sequence[Entry]) -> int:
        return min(self.says[0], len(ring) - 1)


class Adversary:
    """priorities: how many there are; cancels: entries may be cancelled; None for priorities:
    any order, not `rotate`'s."""

    def __init__(
        self, *, backlog: int, skip_cap: int, budget: int, priorities: int | None, cancels: bool
    ) -> None:
        settings = {"budget": budget, "backlog": backlog, "skip_cap": skip_cap}
        self.discipline = Rotate(**settings) if priorities else AnyOrder(**settings)
        self.orders = range(1 if priorities else backlog + 1)
        priorities = priorities or 1
        self.priorities, self.cancels = range(priorities), cancels
        self.requests = [
            [Request(f"{place}", (0,), 1, priority=p) for p in self.priorities]
            for place in range(backlog + 2)
        ]
        self.new = [Request(f"new {place}", (0,), 1) for place in range(backlog + 1)]
        self.worst = Worst()

    def search(self) -> Worst:
        seen = {State(None, ())}
        todo = [*seen]
        while todo:
            for after in self._after(todo.pop()):
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
        self.worst.states = len(seen)
        return self.worst

    def _after(self, state: State) -> Iterator[State]:
        room = self.discipline.backlog - len(state.ring) + (state.holder is None)
        for count in range(max(room, 0) + 1):
            for arrivals in product(self.priorities, repeat=count):
                for cancelled in range(-1, len(state.ring) + count if self.cancels else 0):
                    for over, order in product((False, True), self.orders):
                        if isinstance(self.discipline, AnyOrder):
                            self.discipline.says[0] = order
                        after = self._play(state, arrivals, cancelled, over)
                        if after is not None:
                            yield after

    def _play(
        self, state: State, arrivals: tuple[int, ...], cancelled: int, over: bool
    ) -> State | None:
        ring = self._ring_of(state)
        for place, priority in enumerate(arrivals):
            ring.place(Request(self.new[place].id, (0,), 1, priority=priority), _never)
        if 0 <= cancelled < len(ring.ring):
            ring.cancel(ring.ring[cancelled].request.id)
        if not ring.holding:
            return None
        (holder,) = ring.holding
        ring.round(holder, 1, 0.0, over=over)
        if over:
            ring.leave(holder)
        self.worst.ring = max(self.worst.ring, len(ring.ring))
        joined = {entry.request.id: entry for entry in ring.ring}
        for request, picked in ring.promote(_never):
            if picked == "holding":
                entry = joined[request.id]
                kind = "gap" if entry.parked else "first"
                setattr(self.worst, kind, max(getattr(self.worst, kind), entry.waited))
        self.worst.skips = max([self.worst.skips, *(entry.skips for entry in joined.values())])
        return self._state_of(ring)

    def _ring_of(self, state: State) -> Ring:
        ring = Ring(self.discipline)
        if state.holder is not None:
            request = self.requests[-1][state.holder[0]]
            ring.holding[request.id] = Entry(
                request, 0, budget=self.discipline.budget, used=state.holder[1], grants=1
            )
        for place, (priority, parked, cancelled, skips, waited) in enumerate(state.ring):
            ring.ring.append(
                Entry(self.requests[place][priority], -waited, parked, cancelled, skips)
            )
        return ring

    def _state_of(self, ring: Ring) -> State:
        holder = next(
            (
                (e.request.priority, min(int(e.used), self.discipline.budget))
                for e in ring.holding.values()
            ),
            None,
        )
        entries = (
            (e.request.priority, e.parked, e.cancelled, e.skips, ring.clock - e.since)
            for e in ring.ring
        )
        return State(holder, tuple(Waiting(*entry) for entry in entries))


def _never(request: Request) -> bool:
    return False
