"""One job of a sweep, in a process of its own: fresh caches, counters, seeds and peak memory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

from experiments.config.overrides import quoted
from experiments.io import write_json
from experiments.runs.dates import TODAY
from experiments.sweep.folder import LOG, named

PARENT_PIPE = "MTPLAB_ENDS_WITH_PARENT"
SHOWN = 4000  # characters of a log that are kept with a failure


def attempt(sweep: Path, name: str, *, threads: int | None = None) -> None:
    """Runs the job unless it is done; whatever an earlier attempt left goes. Afterwards its folder
    has a status.json.

    threads: for products of a job that does not say how many it takes. Two that attempt the same
    job do it once."""
    folder, job = named(sweep, name)
    with folder.lock(job) as held:
        if folder.done(job):
            return
        target = folder.path / job.name
        # first: what is left when this is cut short has no state
        (target / "status.json").unlink(missing_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        command = [
            sys.executable,
            "-m",
            "experiments.run",
            *job.overrides,
            f"hydra.run.dir={quoted(str(target))}",
        ]
        environment = {**os.environ, PARENT_PIPE: "1", "PYTHONUNBUFFERED": "1"}
        environment |= {"OMP_NUM_THREADS": str(threads)} if threads else {}
        environment |= {TODAY: folder.date} if folder.date else {}
        with (target / LOG).open("wb") as log:
            code = subprocess.Popen(
                command,
                cwd=folder.cwd,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(held.fileno(),),
                start_new_session=True,  # Ctrl-C is the sweep's: a job that it ends has not failed
            ).wait()
        if folder.status(job) is None:
            output = (target / LOG).read_text(encoding="utf-8", errors="replace")[-SHOWN:].strip()
            write_json(
                target / "status.json",
                {
                    "state": "failed",
                    "error": f"{output}\n{_ended(code)}".strip(),
                    "fingerprint": job.fingerprint,
                },
            )


def die_with_parent() -> None:
    """In a job's process: it ends when the process that started it does, even by kill -9."""
    if os.environ.pop(PARENT_PIPE, None):
        Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    os.read(0, 1)  # nothing is ever written: this returns when the other end is gone
    os._exit(1)


def _ended(code: int) -> str:
    if code < 0:
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process ended with exit code {code} and no status.json"
