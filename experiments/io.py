"""Files appear whole or not at all; what a result was made with."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import polars as pl

from mtp.files import whole

PROJECT = Path(__file__).resolve().parent.parent


def write_json(path: Path, value: Mapping[str, Any], indent: int = 1) -> None:
    write_whole(path, (json.dumps(value, indent=indent) + "\n").encode())


def write_whole(path: Path, content: bytes) -> None:
    """The file appears complete: written aside, then renamed."""
    with whole(path) as aside:
        aside.write_bytes(content)


def write_table(
    path: Path, columns: Mapping[str, Sequence[Any]], schema: Mapping[str, Any]
) -> None:
    with whole(path) as aside:
        pl.DataFrame(columns, schema=schema).write_parquet(aside)


def fingerprint(value: Any) -> str:
    """16 hex digits of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def versions() -> dict[str, str]:
    found = {}
    for name in ("mtplab", "torch", "triton", "hydra-core", "numpy", "polars"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@cache
def git_commit() -> str | None:
    """The project's commit, with + where the working tree differs; None outside a checkout."""
    try:
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=PROJECT, capture_output=True, text=True, check=True
        ).stdout.strip()
        dirty = subprocess.run(
            ["git", "status", "--porcelain", "--untracked-files=no"],
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if dirty else "")
