"""A request among the grants, and the record of a grant that has ended."""

from __future__ import annotations

from dataclasses import dataclass

from mtp.request import Request


@dataclass
class Entry:
    """One request that holds a grant or is in the ring.

    parked: it has held one (and has a slot); skips: picks that passed it over since it joined the ring; since: the clock then.
    used, rounds, tokens: of the grant it holds; budget: read when that began. served: tokens of its earlier grants.
    overdrawn: what it used beyond its budget; lift: tokens a counter begins with (see `Drr`, `Vtc`).
    """

    request: Request
    since: int
    parked: bool = False
    cancelled: bool = False
    skips: int = 0
    budget: float = 0
    used: float = 0
    began: int = 0
    rounds: int = 0
    tokens: int = 0
    waited: int = 0
    served: int = 0
    grants: int = 0
    overdrawn: float = 0
    lift: int = 0

    @property
    def received(self) -> int:
        """Tokens emitted so far."""
        return self.served + self.tokens


@dataclass(frozen=True)
class Grant:
    """A grant that has ended. began, ended: on the clock of granted rounds; waited: rounds others ran since the request joined
    the ring (0: it never did); again: it had held one before, so that `waited` is a gap."""

    request: str
    began: int
    ended: int
    rounds: int
    tokens: int
    waited: int
    again: bool
