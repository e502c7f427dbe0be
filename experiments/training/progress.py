"""What is shown while it trains: a live line on a terminal, else a line twice a minute."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.live import Live

from experiments.runs.progress import rate

EVERY_S = 30.0


class Progress:
    def __init__(self, console: Console, shown: bool) -> None:
        self.console, self.shown = console, shown
        self.live = (
            Live(console=console, auto_refresh=False) if shown and console.is_terminal else None
        )
        self.last = 0.0

    def __enter__(self) -> Progress:
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live:
            self.live.stop()

    def note(self, line: str) -> None:
        if self.shown:
            self.console.print(line, highlight=False, soft_wrap=True)

    def show(
        self, phase: str, step: int, loss: float, tokens_per_s: float, left_s: float | None
    ) -> None:
        """left_s: None where the recipe sets a number of steps."""
        left = "" if left_s is None else f"  {left_s // 60:.0f}:{left_s % 60:02.0f} left"
        line = f"{phase:7}step {step:6}  loss {loss:.3f}  {rate(tokens_per_s)} tokens/s{left}"
        if self.live:
            self.live.update(line, refresh=True)
        elif self.shown and time.monotonic() - self.last > EVERY_S:
            self.last = time.monotonic()
            self.note(line)
