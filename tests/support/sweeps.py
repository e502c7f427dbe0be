"""Sweeps for tests: small jobs on tapes, through the command itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from experiments.io import PROJECT

SMALL = ("workload=synthetic", "workload.requests=2", "max_new_tokens=8", "plain=false")


def command(*overrides: str) -> list[str]:
    return [sys.executable, "-m", "experiments.run", "-m", *SMALL, *overrides]


def environment() -> dict[str, str]:
    return {"PYTHONPATH": str(PROJECT), "PATH": os.environ["PATH"]}


def sweep(
    cwd: Path, *overrides: str, library: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """library: a folder of more packages; variables: of the environment."""
    environ = (
        environment()
        | variables
        | ({"PYTHONPATH": f"{PROJECT}{os.pathsep}{library}"} if library else {})
    )
    return subprocess.run(
        command(*overrides), cwd=cwd, capture_output=True, text=True, env=environ, timeout=170
    )


def folder_of(cwd: Path, experiment: str = "sweep") -> Path:
    (manifest,) = cwd.glob(f"outputs/{experiment}/*/sweep.json")
    return manifest.parent


def jobs_of(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / "sweep.json").read_text())["jobs"]


def read(folder: Path, job: dict[str, Any], file: str) -> Any:
    return json.loads((folder / job["name"] / file).read_text())


def run_ids(folder: Path) -> dict[str, str]:
    """Of the jobs that are ok, by name."""
    return {
        file.parent.name: json.loads(file.with_name("metrics.json").read_text())["run_id"]
        for file in folder.glob("*/status.json")
        if json.loads(file.read_text())["state"] == "ok"
    }
