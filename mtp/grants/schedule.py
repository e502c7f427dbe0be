"""A schedule on paper: the same ring that the engine drives, without an engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtp.grants.ring import Ring
from mtp.grants.rotate import Rotate
from mtp.request import Request


@dataclass(frozen=True)
class Job:
    """A request that ends with its `rounds`-th round. That it is cancelled or declined is noticed
    when it is picked, or before its first round."""

    id: str
    rounds: int
    priority: int = 1
    cancelled: bool = False  # while it is in the ring
    declined: bool = False  # by the policy

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"job {self.id}: rounds is {self.rounds}, expected at least 1")


def grant_schedule(
    jobs: Sequence[Job], *, budget: int, backlog: int = 2, skip_cap: int = 2
) -> list[tuple[str, int]]:
    """(id, rounds) of every grant, in order. The first job is admitted; the rest arrive after
    the check that follows its first round. Jobs that decode plainly are not in it."""
    discipline = Rotate(budget=budget, backlog=backlog, skip_cap=skip_cap)
    return play(discipline.open(1 + backlog), jobs)


def play(ring: Ring, jobs: Sequence[Job]) -> list[tuple[str, int]]:
    """`grant_schedule` on any ring with one holder."""
    by_id = {job.id: job for job in jobs}
    left = {job.id: job.rounds for job in jobs}

    def declines(request: Request) -> bool:
        return by_id[request.id].declined

    def arrive(arriving: Sequence[Job]) -> None:
        for job in arriving:
            place = ring.place(Request(job.id, (0,), job.rounds, priority=job.priority), declines)
            if job.cancelled and place == "holding" and job is not jobs[0]:
                ring.leave(job.id)
            elif job.cancelled:
                ring.cancel(job.id)

    arrive(jobs[:1])
    rest = jobs[1:]
    while True:
        for holder in [*ring.holding]:
            left[holder] -= 1
            over = left[holder] == 0
            ring.round(holder, 1, 0.0, over=over)
            if by_id[holder].cancelled:
                ring.cancel(holder)
            if over:
                ring.leave(holder)
        arrive(rest)
        rest = ()
        for _ in ring.promote(declines):
            pass
        if not ring.holding:
            return [(grant.request, grant.rounds) for grant in ring.log]
