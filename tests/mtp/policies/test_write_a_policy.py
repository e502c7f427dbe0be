"""The code and the command of docs/write-a-policy.md work as they stand."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from mtp.costs import LinearCost
from mtp.policies import Decision, Learning
from mtp.windows import static_k
from tests.support import ROOT
from tests.support.policy_trial import engine_on, texts

TEXT = (ROOT / "docs" / "write-a-policy.md").read_text(encoding="utf-8")


def block(language: str, begins: str) -> str:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", TEXT, re.S | re.M)
    (found,) = [code for kind, code in blocks if kind == language and code.startswith(begins)]
    return found


def run(command: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    setting, _, *arguments = shlex.split(command)
    name, value = setting.split("=")
    environment = os.environ | {name: value, "PYTHONPATH": str(folder), "HYDRA_FULL_ERROR": "0"}
    return subprocess.run(
        [sys.executable, *arguments, *more],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_policy_runs_against_the_others(tmp_path: Path) -> None:
    code = block("python", "# my_policy.py")
    assert (
        len([line for line in code.splitlines() if line.strip() and not line.startswith("#")]) < 30
    )
    (tmp_path / "my_policy.py").write_text(code)
    command = block("", "MTPLAB_POLICY").strip()
    more = (
        f"hydra.sweep.dir={tmp_path}/sweep",
        "workload.requests=3",
        "max_new_tokens=32",
        "plain=false",
    )
    done = run(command, tmp_path, *more)
    assert done.returncode == 0, done.stderr
    metrics = [
        json.loads(file.read_text()) for file in sorted(tmp_path.glob("sweep/*/metrics.json"))
    ]
    assert len(metrics) == 3
    assert all(entry["parity"]["exact"] for entry in metrics)
    assert "hot" in metrics[0]["policy"]
    assert metrics[2]["policy"]["state"] == "planning"


def test_a_policy_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = run(
        "MTPLAB_POLICY=nowhere.Streak python -m experiments.run policy=own workload=synthetic",
        tmp_path,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "nowhere.Streak" in done.stderr


@dataclass(frozen=True)
class Whole:
    """Settings and state in one class."""

    sizes: tuple[int, ...] = (1, 2, 4)
    depth: int = 3
    seen: list[int] = field(default_factory=list, init=False, compare=False)

    def open(self):
        return replace(self)

    def decide(self, slots, *, rows, start):
        return Decision(static_k(slots, k=3, rows=rows, start=start), self.depth)

    def observe(self, result):
        self.seen.append(result.rows)

    def release(self, request): ...

    def report(self):
        return {"windows": len(self.seen)}


def test_one_class_may_hold_settings_and_state() -> None:
    settings = Whole()
    assert isinstance(settings, Learning)
    for _ in range(2):  # each engine opens its own
        engine = engine_on(settings, texts("code", 2, 40, 1), LinearCost())
        engine.run()
        assert engine.learning.report()["windows"] == engine.windows + 2  # and two prefills
    assert settings.seen == []
