"""The code and the command of docs/write-a-policy.md work as they stand."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT

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
