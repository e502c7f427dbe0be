"""Jobs of a sweep that have no run: what its sweep.json names against the folders that are
there."""

from __future__ import annotations

import json
from pathlib import Path

from experiments.report.runs import first_line, is_run


def not_run(folder: Path) -> list[str]:
    """Of every sweep at or below the folder, one line a job: its overrides, and whether it has
    begun."""
    missing: list[str] = []
    for file in sorted(folder.rglob("sweep.json")):
        try:
            jobs = [
                (str(job["name"]), " ".join(job["overrides"]))
                for job in json.loads(file.read_text(encoding="utf-8"))["jobs"]
            ]
        except (OSError, ValueError, KeyError, TypeError) as wrong:
            missing.append(
                f"the jobs of {file.parent.name}: sweep.json cannot be read ({first_line(wrong)})"
            )
            continue
        for name, overrides in jobs:
            if not is_run(job := file.parent / name):
                missing.append(
                    f"{name}: {overrides}{' (just begun, or killed)' if job.exists() else ''}"
                )
    return missing
