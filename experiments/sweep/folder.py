"""The folder of a sweep: what its jobs are, how far each one is, and who works on it."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

from experiments.io import fingerprint, write_json

MANIFEST, LOCKS, CLAIM, LOG = "sweep.json", ".locks", "claim", "job.log"
State = Literal["waiting", "running", "ok", "failed", "interrupted"]


@dataclass(frozen=True)
class SweepJob:
    """One job of a sweep."""

    name: str  # of its folder: a number and a hash of its overrides, never their text
    overrides: tuple[str, ...]
    fingerprint: str  # of its config

    @classmethod
    def numbered(cls, jobs: Sequence[tuple[tuple[str, ...], str]]) -> tuple[SweepJob, ...]:
        return tuple(
            cls(f"{n:03d}-{fingerprint(list(overrides))[:8]}", overrides, of)
            for n, (overrides, of) in enumerate(jobs)
        )


@dataclass(frozen=True)
class SweepFolder:
    """A sweep's folder and what its command asked for."""

    path: Path
    jobs: tuple[SweepJob, ...]
    overrides: tuple[str, ...]  # of the command
    cwd: str  # the launch folder; relative paths start there
    git_commit: str | None  # when it began
    date: str | None = None  # that prompts name; None: of a sweep older than this

    @classmethod
    def read(cls, path: Path) -> SweepFolder:
        """Raises OSError or ValueError where there is no sweep."""
        held: dict[str, Any] = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        jobs = tuple(
            SweepJob(job["name"], tuple(job["overrides"]), job["fingerprint"])
            for job in held["jobs"]
        )
        about = (held["cwd"], held["git_commit"], held.get("date"))
        return cls(path, jobs, tuple(held["overrides"]), *about)

    def claim(self) -> IO[str] | None:
        """Written, and this process's until what is returned is closed or the process ends; None
        while another one has it."""
        (self.path / LOCKS).mkdir(parents=True, exist_ok=True)
        held = (self.path / LOCKS / CLAIM).open("w")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.close()
            return None
        write_json(self.path / MANIFEST, {**asdict(self), "path": None})
        return held

    def axes(self, job: SweepJob) -> str:
        """The overrides of a job that not all jobs have."""
        return " ".join(one for one in job.overrides if one not in self._common)

    @cached_property
    def _common(self) -> frozenset[str]:
        if len(self.jobs) == 1:
            return frozenset()
        return frozenset.intersection(*(frozenset(job.overrides) for job in self.jobs))

    def status(self, job: SweepJob) -> dict[str, Any] | None:
        """status.json, None without a whole one."""
        try:
            held = json.loads((self.path / job.name / "status.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return held if isinstance(held, dict) else None

    def state(self, job: SweepJob) -> State:
        status = self.status(job)
        if status is not None:
            ends: tuple[State, ...] = ("ok", "interrupted")
            return next((state for state in ends if state == status.get("state")), "failed")
        return "running" if (self.path / job.name).exists() else "waiting"

    def done(self, job: SweepJob) -> bool:
        """Whether its results are there and are those of its config."""
        status = self.status(job)
        return (
            status is not None
            and status.get("state") == "ok"
            and status.get("fingerprint") == job.fingerprint
        )

    @contextmanager
    def lock(self, job: SweepJob) -> Iterator[IO[str]]:
        """One process at a time; also of those that inherit it, until they end, however they
        end. Waits for it."""
        with (self.path / LOCKS / job.name).open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield held


def named(path: Path, job: str) -> tuple[SweepFolder, SweepJob]:
    folder = SweepFolder.read(path)
    return folder, next(one for one in folder.jobs if one.name == job)
