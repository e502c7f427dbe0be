"""Folders of runs, written as the job writes them, but made up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from experiments.io import fingerprint
from experiments.runs.results import write_rounds
from mtp.metrics import acceptance_by_position, mean_acceptance_length
from mtp.records import Round

COMMIT = "a" * 40
TARGETS = {
    "static_k": "mtp.policies.StaticK",
    "rotate_grow": "mtp.policies.RotateGrow",
    "hindsight": "mtp.policies.Hindsight",
}
Group = tuple[str, int, int]  # request, rows, committed


def write_run(
    folder: Path,
    *,
    policy: str = "rotate_grow",
    k: int | None = None,
    windows: Sequence[Sequence[Group]] = (
        (("a", 4, 3), ("b", 2, 2)),
        (("a", 2, 1), ("b", 4, 4)),
        (("a", 4, 4), ("b", 1, 1)),
    ),
    window_s: float = 0.05,
    config: dict[str, Any] | None = None,
    metrics: dict[str, Any] | None = None,
    parity: dict[str, Any] | None = None,
    state: str = "ok",
    error: str | None = None,
    captures: Sequence[int] = (),
    text: str = "text",
) -> Path:
    """windows: of groups, in the order of their slots; config: by dotted key, beside the policy."""
    saved: dict[str, Any] = {
        "policy": {"_target_": TARGETS[policy]} | ({} if k is None else {"k": k})
    }
    saved |= {
        "grant": {"_target_": "mtp.grants.Everyone"},
        "layout": {"key": "slots" if captures else "off"},
        "seed": 0,
    }
    chosen = {"policy": policy, "grant": "off", "layout": "slots" if captures else "off"}
    for key, value in (config or {}).items():
        node = saved
        *groups, name = key.split(".")
        for group in groups:
            node = node.setdefault(group, {})
        node[name] = value
    rounds = rounds_of(windows, window_s)
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text(yaml.safe_dump(saved))
    (folder / ".hydra" / "hydra.yaml").write_text(
        yaml.safe_dump({"hydra": {"runtime": {"choices": chosen}}})
    )
    write_rounds(folder / "rounds.parquet", rounds)
    write_steps(folder / "steps.parquet", windows, window_s, captures)
    emitted: dict[str, int] = {}
    for entry in rounds:
        emitted[entry.request] = emitted.get(entry.request, 1) + entry.committed
    lines = [
        {
            "request": name,
            "prompt_hash": f"hash of {name}",
            "tokens": list(range(count)),
            "text": text,
            "finish": "length",
        }
        for name, count in emitted.items()
    ]
    (folder / "tokens.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    whole = figures(rounds, len(windows) * window_s, len(captures)) | {
        "run_id": fingerprint(str(folder))[:8],
        "parity": parity or {"checked": 2, "exact": True},
    }
    (folder / "metrics.json").write_text(json.dumps(whole | (metrics or {})))
    (folder / "status.json").write_text(json.dumps({"state": state, "error": error}))
    return folder


def rounds_of(windows: Sequence[Sequence[Group]], window_s: float) -> list[Round]:
    return [
        Round(
            w,
            slot,
            name,
            rows,
            rows - 1,
            max(0, committed - 1),
            committed,
            None,
            w * window_s,
            (w + 1) * window_s,
        )
        for w, groups in enumerate(windows)
        for slot, (name, rows, committed) in enumerate(groups)
    ]


def write_steps(
    path: Path, windows: Sequence[Sequence[Group]], window_s: float, captures: Sequence[int]
) -> None:
    paths = [
        "capturing" if w in captures else "replayed" if captures else "eager"
        for w in range(len(windows))
    ]
    rows = [sum(group[1] for group in groups) for groups in windows]
    times = {
        "start_s": [w * window_s for w in range(len(rows))],
        "end_s": [(w + 1) * window_s for w in range(len(rows))],
    }
    phases = {name: [window_s / 2] * len(rows) for name in ("verify_s", "commit_s", "capture_s")}
    kinds = {
        "kind": ["window"] * len(rows),
        "rows": rows,
        "padded": [-count % 4 for count in rows],
        "speculative": [True] * len(rows),
    }
    pl.DataFrame({**kinds, "path": paths, **times, **phases}).write_parquet(path)


def figures(rounds: Sequence[Round], decode_s: float, captures: int) -> dict[str, Any]:
    committed = sum(entry.committed for entry in rounds)
    return {
        "git_commit": COMMIT,
        "versions": {"mtplab": "0.1.0", "torch": "2.13.0"},
        "device": "cpu, 1 threads",
        "evidence": "cpu",
        "tokens_per_s": committed / decode_s,
        "plain_tokens_per_s": 40.0,
        "decode_s": decode_s,
        "tokens_committed": committed,
        "windows": len({entry.window for entry in rounds}),
        "rows_verified": sum(entry.rows for entry in rounds),
        "rows_padded": 0,
        "rows_kept": committed,
        "mean_acceptance_length": mean_acceptance_length(rounds),
        "acceptance_by_position": acceptance_by_position(rounds),
        "acceptance_novel": 0.7,
        "repetition": 0.1,
        "split_s": {
            "verify": decode_s / 2,
            "commit_and_draft": decode_s / 4,
            "host": decode_s / 4,
            "capture": 0.0,
        },
        "layouts": {"key": "slots", "hits": 3, "misses": 1, "captures": captures},
        "latency": {name: {"p50": 10.0, "p99": 20.0} for name in ("ttft_ms", "tpot_ms", "itl_ms")},
        "requests": [{"id": name, "tokens_per_s": 20.0} for name in ("a", "b")],
    }
