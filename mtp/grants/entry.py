"""A request among the grants, and the record of a grant that has ended."""

from __future__ import annotations

from dataclasses import dataclass

from mtp.request import Request


@dataclass
class Entry:
    """One request that holds a grant or is in the ring."""

    request: Request
    since: int  # the clock when it joined the ring
    parked: bool = False  # it has held a grant, and has a slot
    cancelled: bool = False
    skips: int = 0  # picks that passed it over since it joined the ring
    budget: float = 0  # of the grant it holds, read when that began
    used: float = 0  # of that budget
    began: int = 0  # the clock then
    rounds: int = 0  # of the grant it holds
    tokens: int = 0  # of the grant it holds
    waited: int = 0  # rounds others ran before it
    served: int = 0  # tokens of its earlier grants
    grants: int = 0  # that have ended
    overdrawn: float = 0  # what it used beyond its budget: see `Drr`
    lift: int = 0  # tokens its counter begins with: see `Vtc`

    @property
    def received(self) -> int:
        """Tokens emitted so far."""
        return self.served + self.tokens


@dataclass(frozen=True)
class Grant:
    """A grant that has ended. Times are on the clock of granted rounds."""

    request: str
    began: int
    ended: int
    rounds: int
    tokens: int
    waited: int  # rounds others ran since the request joined the ring; 0: it never did
    again: bool  # it had held one before, so that `waited` is a gap
