"""A sweep from its command line to its summary."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from subprocess import call

from rich.console import Console

from experiments.io import git_commit
from experiments.runs.entry import INTERRUPTED
from experiments.runs.validate import Checked, validate
from experiments.sweep.choose import folder_for, on_its_day
from experiments.sweep.folder import SweepFolder, SweepJob
from experiments.sweep.launch import launcher_of
from experiments.sweep.watch import Watch


def run_sweep(checked: Checked, configs: str) -> int:
    """The exit code: 1 if any job failed. Raises BadInput before anything starts."""
    launch = launcher_of(checked.base, checked.overrides, configs)
    checked = on_its_day(checked, lambda: validate(["-m", *checked.overrides], configs, "run"))
    folder, claim = folder_for(checked)
    console = Console()
    with claim:
        todo = [job for job in folder.jobs if not folder.done(job)]
        _announce(folder, todo, console)
        try:
            if todo:
                with Watch(folder, todo, console):
                    launch(folder, todo)
        except KeyboardInterrupt:
            done = sum(folder.done(job) for job in folder.jobs)
            print(
                f"interrupted: {done} of {len(folder.jobs)} jobs are done; the same command goes "
                "on",
                file=sys.stderr,
                flush=True,
            )
            os._exit(INTERRUPTED)  # at once: jobs in flight end with this process
        except Exception as fault:  # a launcher's own: what became of the jobs is in their folders
            print(
                f"the launcher failed: {type(fault).__name__}: "
                f"{' '.join(str(fault).split())[:500]}",
                file=sys.stderr,
            )
        failures = [line for job in folder.jobs if (line := _failure(folder, job)) is not None]
    console.print(
        f"{len(folder.jobs) - len(failures)} of {len(folder.jobs)} jobs are done: {folder.path}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
    for line in failures:
        print(line, file=sys.stderr)
    if checked.base.report and find_spec("experiments.report") is not None:
        call([sys.executable, "-m", "experiments.report", str(folder.path)])
    return 1 if failures else 0


def _announce(folder: SweepFolder, todo: list[SweepJob], console: Console) -> None:
    done = len(folder.jobs) - len(todo)
    again = f", {done} of them done already" if done else ""
    console.print(
        f"sweep of {len(folder.jobs)} jobs{again}: {folder.path}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )
    if done and folder.git_commit != git_commit():
        console.print(
            "[yellow]the code has changed since it began; resume=new starts another[/yellow]",
            soft_wrap=True,
        )


def _failure(folder: SweepFolder, job: SweepJob) -> str | None:
    """One line, None for a job that is done."""
    if folder.done(job):
        return None
    status = folder.status(job)
    error = (
        "it did not end" if status is None else str(status.get("error")).strip().splitlines()[-1]
    )
    return (
        f"failed: {job.name} ({folder.axes(job)}): {error} (see "
        f"{folder.path / job.name / 'status.json'})"
    )
