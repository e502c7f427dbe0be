"""What the engine asks of the grants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from mtp.request import Request, Stream

Place = Literal["holding", "waiting", "plain"]
Picked = Literal["holding", "cancelled", "plain"]
Declines = Callable[[Request], bool]


@dataclass(frozen=True)
class Turn:
    """Who acts in a step."""

    # By slot: 0 = not now, 1 = its anchor only, None = as many rows as the policy likes.
    caps: Mapping[int, int | None]
    speculative: bool


class Grants(Protocol):
    """The live state of one engine. A request is in one place: holding a grant, in the ring
    (parked or waiting), or plain."""

    @property
    def waiters(self) -> int:
        """Entries of the ring that have no slot yet: one is kept free for each."""
        ...

    def promote(self, declines: Declines) -> Iterable[tuple[Request, Picked]]:
        """Free grants go to the ring's next, one after the other; each is checked again as it is
        picked."""
        ...

    def place(self, request: Request, declines: Declines) -> Place:
        """Where a request that has arrived goes; `plain` is for good."""
        ...

    def turn(self, streams: Mapping[int, Stream]) -> Turn:
        """Whose turn this step is; streams: by slot, at least one."""
        ...

    def round(self, request_id: str, tokens: int, seconds: float, *, over: bool) -> None:
        """A round of the request was committed; over: it has ended, or cannot speculate any
        longer."""
        ...

    def cancel(self, request_id: str) -> bool:
        """Mark an entry of the ring: it ends when it is picked. False: it is in no ring, the
        engine ends it."""
        ...

    def decline(self, request_id: str) -> None:
        """The request decodes plainly for good."""
        ...

    def leave(self, request_id: str) -> None:
        """The request has ended, wherever it was."""
        ...


class Discipline(Protocol):
    """Frozen settings, from which every engine opens a state of its own."""

    def open(self, slots: int) -> Grants:
        """Raises ValueError where the slots are too few."""
        ...
