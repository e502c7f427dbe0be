"""`grant=off`: every request may speculate, always."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mtp.grants.protocol import Declines, Picked, Place, Turn
from mtp.request import Request, Stream


class Everyone:
    """A discipline and its own state: there is nothing to remember."""

    waiters = 0

    def open(self, slots: int) -> Everyone:
        return self

    def promote(self, declines: Declines) -> Iterable[tuple[Request, Picked]]:
        return ()

    def place(self, request: Request, declines: Declines) -> Place:
        return "holding"

    def turn(self, streams: Mapping[int, Stream]) -> Turn:
        return Turn(dict.fromkeys(streams), True)

    def round(self, request_id: str, tokens: int, seconds: float, *, over: bool) -> None: ...

    def cancel(self, request_id: str) -> bool:
        return False

    def decline(self, request_id: str) -> None: ...

    def leave(self, request_id: str) -> None: ...
