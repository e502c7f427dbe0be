"""The files of a run: written whole or not at all, and read back as one table."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import polars as pl

from mtp.metrics import Round
from mtp.request import Finished

PROJECT = Path(__file__).resolve().parent.parent


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_whole(path, (json.dumps(value, indent=1) + "\n").encode())


def write_whole(path: Path, content: bytes) -> None:
    """The file appears complete: written aside, then renamed."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_bytes(content)
    aside.replace(path)


def write_rounds(path: Path, rounds: Sequence[Round]) -> None:
    """rounds.parquet: one row per slot and window."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    schema = {
        "window": pl.Int64,
        "slot": pl.Int32,
        "request": pl.String,
        "rows": pl.Int32,
        "drafted": pl.Int32,
        "accepted": pl.Int32,
        "committed": pl.Int32,
        "finish": pl.String,
        "start_s": pl.Float64,
        "end_s": pl.Float64,
    }
    columns = {name: [getattr(round_, name) for round_ in rounds] for name in schema}
    pl.DataFrame(columns, schema=schema).write_parquet(aside)
    aside.replace(path)


def write_tokens(path: Path, finished: Sequence[Finished], decode: Callable[[Sequence[int]], str]) -> None:
    """tokens.jsonl: one request per line."""
    lines = [
        {
            "request": done.id,
            "prompt_hash": fingerprint(list(done.prompt)),
            "tokens": list(done.tokens),
            "text": decode(done.tokens),
            "finish": done.finish,
        }
        for done in sorted(finished, key=lambda done: done.id)
    ]
    write_whole(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())


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
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout.strip()
        dirty = subprocess.run(["git", "status", "--porcelain"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if dirty else "")


def load(folder: str | Path) -> pl.DataFrame:
    """One row per run below the folder: its status, the scalar figures of metrics.json, nested ones as `group.name`."""
    rows = []
    for status_file in sorted(Path(folder).rglob("status.json")):
        row: dict[str, Any] = {"folder": str(status_file.parent)} | _flat(json.loads(status_file.read_text()))
        metrics = status_file.with_name("metrics.json")
        if metrics.exists():
            row |= _flat(json.loads(metrics.read_text()))
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, Mapping):
            flat |= _flat(item, f"{prefix}{name}.")
        elif not isinstance(item, list):
            flat[prefix + name] = item
    return flat
