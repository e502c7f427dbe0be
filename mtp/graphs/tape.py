"""Graphs on tapes: captures cost virtual time, replays run the staged window."""

from __future__ import annotations

from collections.abc import Callable


class TapeGraphs:
    """A backend on virtual time.

    spend: lets virtual seconds pass
    capture_s: seconds of one captured phase
    graph_bytes: bytes that each live graph is reported to hold
    """

    def __init__(
        self, spend: Callable[[float], None], *, capture_s: float, graph_bytes: int = 0
    ) -> None:
        self._spend, self._capture_s, self._graph_bytes = spend, capture_s, graph_bytes
        self._live = 0

    def warm(self, work: Callable[[], None]) -> None:
        """Nothing is loaded on a tape."""

    def capture(self, work: Callable[[], None]) -> TapeGraph:
        self._spend(self._capture_s)
        self._live += 1
        return TapeGraph(self, work)

    def pool_bytes(self) -> int:
        return self._live * self._graph_bytes

    def drop(self) -> None:
        self._live -= 1


class TapeGraph:
    """`work` reads the executor's staged window, as a captured graph reads the static buffers."""

    def __init__(self, backend: TapeGraphs, work: Callable[[], None]) -> None:
        self._backend, self.replay = backend, work

    def reset(self) -> None:
        self._backend.drop()
