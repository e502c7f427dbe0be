"""The Triton interpreter agrees with the twins, and every line of every kernel runs in it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import ROOT


def interpret(*seeds: int | str, program: str = "interpret") -> None:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        f"tests.support.kernels.{program}",
        *map(str, seeds),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_line_runs_and_every_result_is_the_twins():
    interpret(5, "plan=10")  # one window of each policy, with bans, stops and proposals


@pytest.mark.slow
def test_windows_of_both_policies_with_bans_stops_and_proposals():
    interpret(5, 10)


@pytest.mark.slow
def test_faults_planted_in_the_attention_kernels_are_noticed():
    interpret(program="interpret_faults")


@pytest.mark.slow
def test_a_whole_model_on_the_kernels_gives_what_it_gives_on_the_twins():
    interpret(program="interpret_model")


@pytest.mark.slow
def test_more_windows():
    interpret(*range(40))
