"""experiment=quick: the whole way in, on the shipped model."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from experiments.io import PROJECT
from tests.support.sweeps import folder_of, jobs_of, read

pytestmark = pytest.mark.slow


def test_quick_compares_four_policies_on_two_texts_and_makes_the_report_in_a_minute_of_two_cores(
    tmp_path,
):
    command = [
        sys.executable,
        "-m",
        "experiments.run",
        "-m",
        "experiment=quick",
        "report=true",
        "device=cpu",
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(PROJECT), "PATH": os.environ["PATH"]},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran.returncode == 0, ran.stderr
    folder = folder_of(tmp_path, "quick")
    metrics = [read(folder, job, "metrics.json") for job in jobs_of(folder)]
    assert len(metrics) == 8
    assert all(
        (one["parity"]["checked"], one["parity"]["label"]) == (2, "exact") for one in metrics
    )
    chosen = [read(folder, job, "config.json")["config"] for job in jobs_of(folder)]
    policies = [
        (one["policy"]["_target_"].rsplit(".", 1)[1], one["policy"].get("k")) for one in chosen
    ]
    assert policies == 2 * [
        ("StaticK", 1),
        ("StaticK", 3),
        ("RotateGrow", None),
        ("Adaptive", None),
    ]
    page = (folder / "report" / "index.html").read_text()
    assert all(one["run_id"] in page for one in metrics)
    spent = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
    assert spent / 2 < 60, f"{spent:.0f} CPU seconds"
