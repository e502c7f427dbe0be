"""Work that costs nothing: an executor that gives out again what a tape executor gave, so that
the engine's own time is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.executor import Limits, Outcome
from mtp.policies import Policy
from mtp.request import Request
from mtp.tape import Tape
from mtp.windows import Group


@dataclass
class Script:
    """What an executor returned, in order."""

    prefills: list[Outcome | None] = field(default_factory=list)
    windows: list[Sequence[Outcome]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


class RecordingExecutor(TapeExecutor):
    """A tape executor that writes a script."""

    def __init__(self, tapes: Mapping[str, Tape], limits: Limits) -> None:
        super().__init__(tapes, limits=limits)
        self.script = Script()

    def prefill(self, slot: int, start: int, stop: int, depth: int) -> Outcome | None:
        self.script.prefills.append(super().prefill(slot, start, stop, depth))
        return self.script.prefills[-1]

    def commit(self, groups: Sequence[Group], depth: int) -> list[Outcome]:
        outcomes = super().commit(groups, depth)
        self.script.windows.append(outcomes)
        return outcomes

    def now(self) -> float:
        self.script.times.append(super().now())
        return self.script.times[-1]


class NoWork:
    """A window whose phases do nothing."""

    groups: Sequence[Group] = ()
    graph_constants, graph_epoch, padded = "", 0, 0

    def verify(self) -> None: ...

    def commit(self) -> None: ...

    def outcomes(self) -> Sequence[Outcome]:
        return ()


class Scripted(NoWork):
    """An executor, and the one window in work. An engine must ask it what it asked the recorder:
    same requests, same policy."""

    max_depth = 7

    def __init__(self, script: Script, limits: Limits) -> None:
        self.limits = limits
        self._prefills, self._windows = iter(script.prefills), iter(script.windows)
        self.now: Callable[[], float] = iter(script.times).__next__

    def check(self, request: Request) -> None: ...

    def admit(self, slot: int, request: Request) -> None: ...

    def release(self, slot: int) -> None: ...

    def wait_until(self, time_s: float) -> None: ...

    def prefill(self, slot: int, start: int, stop: int, depth: int) -> Outcome | None:
        return next(self._prefills)

    def window(self, groups: Sequence[Group], depth: int) -> Scripted:
        self.groups = groups
        return self

    def outcomes(self) -> Sequence[Outcome]:
        return next(self._windows)


class NoGraph:
    def replay(self) -> None: ...

    def reset(self) -> None: ...


class NoGraphs:
    """Graphs that do nothing."""

    def warm(self, work: Callable[[], None]) -> None: ...

    def capture(self, work: Callable[[], None]) -> NoGraph:
        return NoGraph()

    def pool_bytes(self) -> int:
        return 0


def replays(
    queue: Mapping[Request, Tape],
    make: Callable[[], Policy],
    *,
    limits: Limits,
    slots: int,
    rows: int,
) -> Iterator[Engine]:
    """The recorded run, then the same engine on its script, without end: each is to be run once."""
    recorder = RecordingExecutor({request.id: tape for request, tape in queue.items()}, limits)
    executor: RecordingExecutor | Scripted = recorder
    while True:
        engine = Engine(executor, slots=slots, rows=rows, policy=make())
        for request in queue:
            engine.submit(request)
        yield engine
        executor = Scripted(recorder.script, limits)
