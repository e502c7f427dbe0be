"""What a person sees of a sweep: a table of what runs, or a line for each job that ends where the
output is no terminal.

It reads the jobs' folders, so it is the same whatever runs them and wherever."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from time import perf_counter

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from experiments.runs.progress import hours
from experiments.sweep.folder import LOG, State, SweepFolder, SweepJob

EVERY_S = 0.5
TAIL = 2000  # bytes of a log


class Watch:
    """A context: while it is open, the jobs `todo` are watched by a thread."""

    def __init__(self, folder: SweepFolder, todo: Sequence[SweepJob], console: Console) -> None:
        self._folder, self._todo, self._console = folder, todo, console
        self._began = perf_counter()
        # what an earlier attempt left is no state of this one, until it is replaced
        self._stale = {job.name: _changed(self._path(job)) for job in todo}
        self._ended: dict[str, tuple[State, float]] = {}
        self._started: dict[str, float] = {}
        self._closing = Event()
        self._thread = Thread(target=self._work, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    def _path(self, job: SweepJob) -> Path:
        return self._folder.path / job.name

    def _work(self) -> None:
        if not self._console.is_terminal:
            while not self._closing.wait(EVERY_S):
                self._look()
            self._look()
            return
        with Live(console=self._console, refresh_per_second=4, transient=True) as live:
            while not self._closing.wait(EVERY_S):
                self._look()
                live.update(self.table())
            self._look()

    def _look(self) -> None:
        """Notes which jobs have started and ended; says so where there is no table."""
        for job in self._todo:
            if job.name in self._ended or _changed(self._path(job)) == self._stale[job.name]:
                continue
            state, now = self._folder.state(job), perf_counter()
            started = self._started.setdefault(job.name, now)
            if state in ("ok", "failed"):
                self._ended[job.name] = (state, now - started)
                counted = f"[{len(self._ended)}/{len(self._todo)}]"
                text = Text(
                    f"{counted} {state} {job.name} {self._folder.axes(job)} "
                    f"({hours(now - started)})"
                )
                self._console.print(text, soft_wrap=True, style="red" if state == "failed" else "")

    def table(self) -> Group:
        """A bar, the counts, and a row for each job that runs: how long, and the last line of
        its log."""
        running = [
            job for job in self._todo if job.name in self._started and job.name not in self._ended
        ]
        total, ended = len(self._todo), len(self._ended)
        failed = sum(state == "failed" for state, _ in self._ended.values())
        spent = perf_counter() - self._began
        left = f", about {hours(spent / ended * (total - ended))} left" if ended else ""
        head = Text(
            f"{ended} of {total} jobs, {failed} failed, {len(running)} running, {hours(spent)} so "
            f"far{left}"
        )
        rows = Table(box=None, padding=(0, 2, 0, 0))
        rows.add_column("job", style="bold", no_wrap=True, min_width=12)
        rows.add_column("what", no_wrap=True, overflow="ellipsis")
        rows.add_column("time", style="cyan", no_wrap=True, min_width=9)
        rows.add_column("last word", style="dim", no_wrap=True, overflow="ellipsis", ratio=1)
        for job in running:
            since = hours(perf_counter() - self._started[job.name])
            rows.add_row(
                job.name,
                Text(self._folder.axes(job)),
                since,
                Text(last_line(self._path(job) / LOG)),
            )
        bar = ProgressBar(total=total, completed=ended, width=60)
        return Group(head, bar, Text(), *([rows] if running else []))


def last_line(log: Path) -> str:
    try:
        with log.open("rb") as text:
            text.seek(max(0, text.seek(0, 2) - TAIL))
            lines = text.read().decode("utf-8", errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _changed(folder: Path) -> int | None:
    """When something was last put into the folder or taken out, None without one."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return None
