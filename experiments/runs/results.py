"""The files of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from experiments.io import fingerprint, write_table, write_whole
from mtp.grants.entry import Grant
from mtp.records import Round, Step
from mtp.request import Finished


def write_rounds(path: Path, rounds: Sequence[Round]) -> None:
    """rounds.parquet: one row per slot and window."""
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
    write_table(
        path, {name: [getattr(round_, name) for round_ in rounds] for name in schema}, schema
    )


def write_steps(path: Path, steps: Sequence[Step], began_s: float) -> None:
    """steps.parquet: one row per step of the engine. Seconds since its start; `path`: how a
    window ran, null for a prefill."""
    schema = {
        "kind": pl.String,
        "rows": pl.Int32,
        "padded": pl.Int32,
        "speculative": pl.Boolean,
        "path": pl.String,
        "start_s": pl.Float64,
        "end_s": pl.Float64,
        "verify_s": pl.Float64,
        "commit_s": pl.Float64,
        "capture_s": pl.Float64,
    }
    columns: dict[str, list[Any]] = {
        name: [getattr(step, name) for step in steps]
        for name in ("kind", "rows", "padded", "speculative")
    }
    columns["path"] = [step.phases.path if step.kind == "window" else None for step in steps]
    columns |= {
        name: [getattr(step, name) - began_s for step in steps] for name in ("start_s", "end_s")
    }
    columns |= {
        f"{name}_s": [getattr(step.phases, name) for step in steps]
        for name in ("verify", "commit", "capture")
    }
    write_table(path, columns, schema)


def write_grants(path: Path, log: Sequence[Grant]) -> None:
    """grants.parquet: one row per grant that ended, on the clock of granted rounds; see `Grant`."""
    schema: dict[str, Any] = {"request": pl.String} | dict.fromkeys(
        ("began", "ended", "rounds", "tokens", "waited"), pl.Int64
    )
    schema["again"] = pl.Boolean
    write_table(path, {name: [getattr(grant, name) for grant in log] for name in schema}, schema)


def write_tokens(
    path: Path, finished: Sequence[Finished], decode: Callable[[Sequence[int]], str]
) -> None:
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
    write_whole(
        path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    )
