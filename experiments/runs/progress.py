"""How a run gets on: one live line, or a plain one every few seconds where the output is no
terminal."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from mtp.engine import Engine

# seconds between updates; on tapes there are thousands of commits a second
LIVE_S, PLAIN_S = (
    0.1,
    2.0,
)


class ProgressLine:
    """A context: while it is open, the engine's commits are counted. total: most tokens its
    requests may emit."""

    def __init__(self, console: Console, engine: Engine, total: int, label: str) -> None:
        self._console, self._engine, self._total, self._label = console, engine, total, label
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
        )
        self._live = Progress(
            *columns, console=console, disable=not console.is_terminal, transient=True
        )
        self._task = self._live.add_task(label, total=total, figures="")
        self._tokens = self._rounds = self._accepted = 0
        engine.on_tokens = self._committed

    def __enter__(self) -> ProgressLine:
        self._began, self._clock_began = perf_counter(), self._engine.executor.now()
        self._next = self._began + (LIVE_S if self._console.is_terminal else PLAIN_S)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        self._engine.on_tokens = None

    def _committed(self, request: str, tokens: Sequence[int]) -> None:
        self._tokens += len(tokens)
        now = perf_counter()
        if now < self._next:
            return
        figures = self.stats(now - self._began)
        if self._console.is_terminal:
            self._next = now + LIVE_S
            self._live.update(self._task, completed=self._tokens, figures=figures)
        else:
            self._next = now + PLAIN_S
            self._console.print(Text(f"{self._label}: {figures}"), soft_wrap=True)

    def stats(self, seconds: float) -> str:
        """Windows; speed, on the engine's own clock (on tapes a virtual one); acceptance length;
        time left if every request takes all it may. seconds: since the beginning."""
        fresh = self._engine.rounds[self._rounds :]
        self._rounds += len(fresh)
        self._accepted += sum(one.accepted for one in fresh)
        speed = self._tokens / max(1e-9, self._engine.executor.now() - self._clock_began)
        length = f"{1 + self._accepted / self._rounds:.2f}" if self._rounds else "none"
        left = (
            hours((self._total - self._tokens) * seconds / self._tokens)
            if self._tokens
            else "unknown"
        )
        return (
            f"{self._engine.windows} windows, {rate(speed)} tokens/s, acceptance length {length}, "
            f"at most {left} left"
        )


def rate(per_second: float) -> str:
    """Two digits at least: 1,234, 12, 1.2, 0.012."""
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"


def hours(seconds: float) -> str:
    """5 s, 2:05 min, 1:02:05 h."""
    minutes, rest = divmod(round(seconds), 60)
    return (
        f"{rest} s"
        if not minutes
        else f"{minutes}:{rest:02d} min"
        if minutes < 60
        else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d} h"
    )
