"""Runs, read from their files. A run is found by its saved config, never by its path; what is
missing or broken is reported."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import yaml

DATE = "workload.date"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Run:
    """One run's folder, as read."""

    folder: Path
    # ok, failed, running (or killed: no status yet), or
    # half-written (a file that should be there cannot be read)
    state: str
    error: str | None
    config: dict[str, Any] = field(repr=False)  # by dotted key; a group's own key: its choice
    metrics: dict[str, Any] = field(repr=False)  # of metrics.json; empty without one
    copies: tuple[Path, ...] = ()  # other folders that hold the same run, by its id

    @property
    def parity(self) -> str:
        """`exact`, `numerically equal` (where the run itself says so), `invalid`, or
        `unchecked`."""
        parity = self.metrics.get("parity") or {}
        if not parity.get("checked"):
            return "unchecked"
        return parity.get("label") or ("exact" if parity.get("exact") else "invalid")

    @property
    def counts(self) -> bool:
        """Whether it has figures to show: it is whole, or it failed for its tokens alone and is
        shown as invalid."""
        return bool(self.metrics) and (
            self.state == "ok" or (self.state == "failed" and self.parity == "invalid")
        )

    @property
    def evidence(self) -> str:
        return str(self.metrics["evidence"])

    @property
    def seed(self) -> Any:
        return self.config.get("seed")

    @property
    def code(self) -> tuple[str, str]:
        """The project's commit and the versions of what it stands on."""
        versions = self.metrics.get("versions") or {}
        return str(self.metrics.get("git_commit")), ", ".join(
            f"{name} {value}" for name, value in sorted(versions.items())
        )

    @cached_property
    def rounds(self) -> pl.DataFrame | None:
        return self.table("rounds")

    @cached_property
    def steps(self) -> pl.DataFrame | None:
        return self.table("steps")

    def table(self, name: str) -> pl.DataFrame | None:
        """None: the run has no such file, or none that can be read."""
        try:
            return pl.read_parquet(self.folder / f"{name}.parquet")
        except (OSError, pl.exceptions.PolarsError):
            return None

    @cached_property
    def texts(self) -> list[dict[str, Any]]:
        """The lines of tokens.jsonl."""
        try:
            return [
                json.loads(line)
                for line in (self.folder / "tokens.jsonl").read_text(encoding="utf-8").splitlines()
            ]
        except (OSError, ValueError):
            return []


def find_runs(folder: Path) -> list[Run]:
    """Every run at or below the folder, in the order of their paths; one whose folder was copied is
    there once. Raises ValueError where the folder does not exist."""
    if not folder.is_dir():
        raise ValueError(f"DIR is {folder}, expected a folder of runs")
    found = {file.parent.parent for file in folder.rglob(".hydra/config.yaml")} | {
        file.parent for file in folder.rglob("status.json")
    }
    return once([read_run(one) for one in sorted(found)])


def once(runs: Sequence[Run]) -> list[Run]:
    """A run id counts once: its first folder, of those that count where there are any."""
    same: dict[object, list[Run]] = defaultdict(list)
    for run in runs:
        same[run.metrics.get("run_id") or run.folder].append(run)
    kept = []
    for group in same.values():
        first = next((run for run in group if run.counts), group[0])
        others = tuple(run.folder for run in group if run is not first)
        kept.append(replace(first, copies=others) if others else first)
    return kept


def is_run(folder: Path) -> bool:
    return (folder / ".hydra" / "config.yaml").exists() or (folder / "status.json").exists()


def read_run(folder: Path) -> Run:
    unread = None
    try:
        config = read_config(folder / ".hydra") | date_of(folder)
    except (OSError, yaml.YAMLError, ValueError) as wrong:
        config, unread = {}, f"config.yaml: {first_line(wrong)}"
    if not (folder / "status.json").exists():
        return Run(folder, "half-written" if unread else "running", unread, config, {})
    try:
        status = json.loads((folder / "status.json").read_text(encoding="utf-8"))
        state, error = str(status["state"]), status.get("error")
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        return Run(folder, "half-written", f"status.json: {first_line(wrong)}", config, {})
    if unread:  # it may have ended before Hydra wrote its config: then its own error says why
        return Run(folder, state if state != "ok" else "half-written", error or unread, {}, {})
    try:
        metrics = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
        if not isinstance(metrics, dict) or "evidence" not in metrics:
            raise ValueError("no evidence in it")
    except (OSError, ValueError) as wrong:
        if state == "ok":
            return Run(folder, "half-written", f"metrics.json: {first_line(wrong)}", config, {})
        metrics = {}
    return Run(folder, state, error, config, metrics)


def date_of(folder: Path) -> dict[str, Any]:
    """The date that the run's prompts name, None where they name none. Hydra's saved config has
    only what was asked for."""
    try:
        saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return {DATE: saved["config"]["workload"]["date"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def read_config(hydra: Path) -> dict[str, Any]:
    """The saved config by dotted key. References stay as written: what they point at is a key of
    its own."""
    saved = yaml.load((hydra / "config.yaml").read_text(encoding="utf-8"), LOADER)
    if not isinstance(saved, dict):
        raise ValueError("not a mapping")
    flat = flatten(saved)
    return (
        {name: choice_of(node) for name, node in saved.items() if isinstance(node, dict)}
        | flat
        | choices(hydra / "hydra.yaml", saved)
    )


def choices(file: Path, saved: dict[str, Any]) -> dict[str, str]:
    """The chosen file of every config group, where Hydra's own notes are there."""
    try:
        notes = yaml.load(file.read_text(encoding="utf-8"), LOADER)["hydra"]["runtime"]["choices"]
        return {
            name: str(choice)
            for name, choice in notes.items()
            if name in saved and choice is not None
        }
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return {}


def choice_of(node: dict[str, Any]) -> str:
    """A group's choice from what it builds: mtp.policies.StaticK -> static_k."""
    name = str(node.get("_target_", "")).rpartition(".")[2]
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def flatten(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, dict):
            flat |= flatten(item, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = item
    return flat


def first_line(wrong: BaseException | str) -> str:
    lines = str(wrong).strip().splitlines()
    return lines[0] if lines else "empty"
