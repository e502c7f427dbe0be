"""Where a sweep goes: into a new folder, or on in one that holds the same jobs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from experiments.config.checks import BadInput
from experiments.config.overrides import key_of, of_the_sweep
from experiments.io import git_commit
from experiments.runs.dates import begun_on, today
from experiments.runs.validate import Checked
from experiments.sweep.folder import MANIFEST, SweepFolder, SweepJob


def folder_for(checked: Checked) -> tuple[SweepFolder, IO[str]]:
    """The folder, and what must be kept while it is worked on. Raises BadInput."""
    jobs, resume, given = (
        SweepJob.numbered(checked.jobs),
        checked.base.resume,
        Path(checked.base.hydra.sweep.dir).absolute(),
    )
    fresh = SweepFolder(given, jobs, checked.overrides, os.getcwd(), git_commit(), today())
    own = any(key_of(override) == "hydra.sweep.dir" for override in checked.overrides)
    if resume not in ("auto", "new"):
        return _again(Path(str(resume)).absolute(), fresh, "resume")
    if own and given.exists() and any(given.iterdir()):
        if resume == "new":
            raise BadInput(
                f"hydra.sweep.dir is {given}, which is not empty, expected a new folder with "
                "resume=new"
            )
        return _again(given, fresh, "hydra.sweep.dir")
    last = _own_last(fresh) if resume == "auto" and not own else None
    if last is not None and last.jobs == fresh.jobs and not _done(last):
        claim = last.claim()
        if claim is not None:
            return last, claim
    claim = fresh.claim()
    if claim is None:
        raise BadInput(
            f"hydra.sweep.dir is {given}, where another process is at work, expected another folder"
        )
    return fresh, claim


def on_its_day(checked: Checked, again: Callable[[], Checked]) -> Checked:
    """The command as it is on the day of the sweep that it would go on with: prompts may name
    that day. again: checks the command anew. Raises BadInput."""
    day, last = today(), _candidate(checked)
    if last is None or last.date in (None, day):
        return checked
    begun_on(str(last.date))
    then, here = again(), Path(checked.base.hydra.sweep.dir).absolute()
    if (
        checked.base.resume == "auto"
        and last.path != here
        and SweepJob.numbered(then.jobs) != last.jobs
    ):  # its configs have changed: a new sweep
        begun_on(day)
        return checked
    return then


def _candidate(checked: Checked) -> SweepFolder | None:
    """The sweep that a command may go on with; None also where it cannot be read."""
    resume, given = str(checked.base.resume), Path(checked.base.hydra.sweep.dir).absolute()
    if resume == "auto":
        asked = SweepFolder(given, SweepJob.numbered(checked.jobs), (), os.getcwd(), None)
        last = _own_last(asked)
        return _sweep_in(given) or (None if last is None or _done(last) else last)
    return None if resume == "new" else _sweep_in(Path(resume).absolute())


def repeated(arguments: Sequence[str]) -> list[str]:
    """Where resume=DIR comes without saying what: the command that began that sweep, with what
    is given replaced. Raises BadInput."""
    given = [one for one in arguments if not one.startswith("-")]
    folders = [one.partition("=")[2].strip("'\"") for one in given if key_of(one) == "resume"]
    if (
        not folders
        or folders[-1] in ("auto", "new")
        or not all(of_the_sweep(key_of(one)) for one in given)
    ):
        return list(arguments)
    keys = {key_of(one) for one in given}
    return [
        "-m",
        *(
            one
            for one in _read(Path(folders[-1]).absolute(), "resume").overrides
            if key_of(one) not in keys
        ),
        *given,
    ]


def _again(path: Path, fresh: SweepFolder, key: str) -> tuple[SweepFolder, IO[str]]:
    """The same jobs, perhaps with configs that have changed since: those run again."""
    last = _read(path, key)
    if [job.name for job in last.jobs] != [job.name for job in fresh.jobs]:
        raise BadInput(
            f"{key} is {path}, which holds a sweep with other overrides, expected these: "
            f"{' '.join(last.overrides)}"
        )
    if last.cwd != fresh.cwd:
        raise BadInput(
            f"{key} is {path}, which was started in {last.cwd}, expected to be started there again"
        )
    again = SweepFolder(path, fresh.jobs, last.overrides, last.cwd, last.git_commit, today())
    claim = again.claim()
    if claim is None:
        raise BadInput(
            f"{key} is {path}, where another process is at work, expected to wait for its end"
        )
    return again, claim


def _read(path: Path, key: str) -> SweepFolder:
    try:
        return SweepFolder.read(path)
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        raise BadInput(
            f"{key} is {path}, which holds no {MANIFEST}, expected the folder of a sweep"
        ) from wrong


def _own_last(asked: SweepFolder) -> SweepFolder | None:
    """Of the sweeps beside a new one, the last of the same command, whatever others were started
    since; their configs may have changed. None also where none can be read."""
    names = [job.name for job in asked.jobs]
    # their names begin with the time
    for manifest in sorted(asked.path.parent.glob(f"*/{MANIFEST}"), reverse=True):
        one = _sweep_in(manifest.parent)
        if one and [job.name for job in one.jobs] == names and one.cwd == asked.cwd:
            return one
    return None


def _sweep_in(folder: Path) -> SweepFolder | None:
    try:
        return SweepFolder.read(folder)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _done(sweep: SweepFolder) -> bool:
    return all(sweep.done(job) for job in sweep.jobs)
