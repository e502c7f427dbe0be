"""Arms: runs that differ in nothing but their seed. What varies between them names them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.report.runs import Run

APART = {
    "seed",
    "cache_dir",
    "parity",
    "plain",
    "launcher",
    "resume",
    "report",
}  # keys that make no arm
# named even where they do not vary: without them no row can be read
ALWAYS = (
    "policy",
    "policy.k",
)
NO_VALUE = "none"
WORST = ("invalid", "unchecked", "numerically equal", "exact")


@dataclass(frozen=True)
class Arm:
    """Runs that differ in nothing but their seed."""

    label: str
    values: dict[str, str]  # of the keys that vary, as text
    runs: tuple[Run, ...]  # in order of seed and run id

    @property
    def evidence(self) -> str:
        return self.runs[0].evidence

    @property
    def parity(self) -> str:
        """Of its worst run."""
        return min(
            (run.parity for run in self.runs),
            key=lambda label: WORST.index(label) if label in WORST else 0,
        )

    @property
    def ranks(self) -> bool:
        return self.parity in ("exact", "numerically equal")

    @property
    def plain(self) -> bool:
        return self.static and self.runs[0].config.get("policy.k") == 0

    @property
    def static(self) -> bool:
        return is_static(self.runs[0])


def arms_of(runs: Sequence[Run]) -> list[Arm]:
    """Of runs that have figures. In the order in which they were found, plain decoding first."""
    described = [(run, facts(run)) for run in runs if run.counts]
    keys = varying([known for _, known in described])
    grouped: dict[tuple[str | None, ...], list[Run]] = defaultdict(list)
    for run, known in described:
        grouped[tuple(known.get(key) for key in keys)].append(run)
    arms = []
    for group, own in grouped.items():
        values = {key: value for key, value in zip(keys, group, strict=True) if value is not None}
        own.sort(key=lambda run: (str(run.seed), str(run.metrics.get("run_id"))))
        arms.append(Arm(label(values, keys), values, tuple(own)))
    return sorted(arms, key=lambda arm: not arm.plain)


def facts(run: Run) -> dict[str, str]:
    """What may tell a run from another, as text: its config, the evidence, the machine, the
    code."""
    known = {
        key: text(value)
        for key, value in run.config.items()
        if key.partition(".")[0] not in APART and "._" not in key
    }
    if is_static(run):  # whichever file of the group named it
        known["policy"] = "static_k"
    commit, versions = run.code
    return known | {
        "evidence": run.evidence,
        "machine": str(run.metrics.get("device")),
        "commit": commit[:10] + "+" * commit.endswith("+"),
        "versions": versions,
    }


def is_static(run: Run) -> bool:
    return str(run.config.get("policy._target_", "")).endswith(".StaticK")


def varying(described: Sequence[dict[str, str]]) -> list[str]:
    """Keys that tell runs apart, in the order of the config. A group's own keys count where they
    differ between runs that made the same choice: another policy has other keys, and that is not
    news."""
    names = list(dict.fromkeys(name for known in described for name in known))
    found = []
    for name in names:
        group = name.partition(".")[0]
        within: dict[str | None, set[str | None]] = defaultdict(set)
        for known in described:
            within[known.get(group) if group != name else None].add(known.get(name))
        if any(len(values) > 1 for values in within.values()) or (
            name in ALWAYS and any(name in known for known in described)
        ):
            found.append(name)
    return sorted(
        found,
        key=lambda name: (name != "policy", not name.startswith("policy."), names.index(name)),
    )


def label(values: dict[str, str], keys: Sequence[str]) -> str:
    """Short: choices by their name alone, other keys by their last part where that is
    unambiguous."""
    ends = [key.rpartition(".")[2] for key in keys]
    parts = []
    for key, value in values.items():
        if key in ("policy", "workload", "evidence", "machine"):
            parts.append(value)
        else:
            short = key.rpartition(".")[2]
            parts.append(f"{short if ends.count(short) == 1 else key}={value}")
    return " ".join(parts) or "run"


def text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return NO_VALUE if value is None else json.dumps(value)
