"""What is said while a run gets on, and tab completion."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console

from experiments.io import PROJECT
from experiments.runs import console, progress
from experiments.runs.progress import ProgressLine, hours, rate

FIGURES = (
    *("mean_acceptance_length", "acceptance_novel", "repetition", "rows_kept", "rows_verified"),
    *("rows_padded", "windows", "tokens_committed", "evidence", "device"),
)


class Engine:
    """As far as a line looks."""

    def __init__(self):
        self.now = 0.0
        self.executor = SimpleNamespace(now=lambda: self.now)
        self.windows, self.rounds, self.on_tokens = 0, [], None


@pytest.fixture
def clock(monkeypatch):
    at = SimpleNamespace(s=0.0)
    monkeypatch.setattr(progress, "perf_counter", lambda: at.s)
    return at


@pytest.mark.parametrize("terminal", [False, True])
def test_a_line_tells_windows_speed_acceptance_and_the_time_left(clock, terminal):
    engine, said = Engine(), io.StringIO()
    console = Console(file=said, width=150, force_terminal=terminal)
    with ProgressLine(console, engine, 100, "decoding"):
        for second in range(1, 6):
            clock.s, engine.now = float(second), second / 2  # a virtual clock goes at its own pace
            engine.windows += 1
            engine.rounds += [SimpleNamespace(accepted=3), SimpleNamespace(accepted=0)]
            engine.on_tokens("a", [1, 2, 3, 4, 5])
    assert engine.on_tokens is None
    text = said.getvalue()
    if terminal:
        assert "25 tokens" not in text
        assert "5 windows, 10 tokens/s, acceptance length 2.50, at most 15 s left" in text
    else:
        assert text.splitlines() == [
            "decoding: 2 windows, 10 tokens/s, acceptance length 2.50, at most 18 s left",
            "decoding: 4 windows, 10 tokens/s, acceptance length 2.50, at most 16 s left",
        ]


def test_F26_a_slow_model_is_not_said_to_stand_still(clock):
    engine, said = Engine(), io.StringIO()
    with ProgressLine(Console(file=said, width=150), engine, 10, "decoding"):
        clock.s = engine.now = 5.0
        engine.on_tokens("a", [1, 2])
    assert said.getvalue().startswith("decoding: 0 windows, 0.4 tokens/s")
    assert [rate(speed) for speed in (0.0123, 0.4, 9.97, 12.3, 1234.5)] == [
        *("0.012", "0.4", "10", "12", "1,234")
    ]
    shown = console._figures(
        {**dict.fromkeys(FIGURES), "tokens_per_s": 0.04, "plain_tokens_per_s": 0.02}
    )
    assert list(shown.columns[1].cells)[:3] == ["0.04", "0.02", "2.00"]


def test_hours():
    assert [hours(seconds) for seconds in (0.4, 59.6, 125, 3725)] == [
        "0 s",
        "1:00 min",
        "2:05 min",
        "1:02:05 h",
    ]


def test_tab_completion_works_in_bash(tmp_path):
    script = """
eval "$(python -m experiments.run -sc install=bash)"
for typed in "poli" "policy=rotate" "policy=static_k policy.k"; do
  line="python -m experiments.run $typed"
  COMP_LINE="$line"; COMP_POINT=${#line}; words=($line); COMP_CWORD=$((${#words[@]} - 1))
  hydra_bash_completion
  echo "${COMPREPLY[@]}"
done
"""
    bins = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PATH": bins, "PYTHONPATH": str(PROJECT)},
    )
    assert ran.stdout.splitlines() == [
        "policy. policy=",
        "policy=rotate_anchors_first policy=rotate_grow",
        "policy.k=",
    ]


def test_completion_and_jobs_on_tapes_import_no_torch():
    program = """
import sys
from experiments.config import resolvers
import experiments.run
assert "torch" not in sys.modules
import experiments.runs.job
from experiments.runs.validate import validate
resolvers.register()
validate(["workload=synthetic"], experiments.run.CONFIGS, "run")
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=PROJECT)
