"""The launchers that take a sweep's jobs elsewhere: they write the same files, and a failure is
told the same way."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.experiments.sweep.test_sweep import FAULTY
from tests.support.sweeps import folder_of, jobs_of, read, run_ids, sweep

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_a_launcher_runs_every_job_in_its_folder_and_the_same_command_goes_on(tmp_path, launcher):
    (tmp_path / "fails-2").touch()
    options = (
        *FAULTY,
        f"+policy.here={tmp_path}",
        "grant.budget=1,2,4",
        f"launcher={launcher}",
        "hydra.job.chdir=true",
    )
    ran = sweep(tmp_path, *options)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    folder = folder_of(tmp_path)
    jobs = jobs_of(folder)
    assert [read(folder, job, "status.json")["state"] for job in jobs] == ["ok", "failed", "ok"]
    assert [line.split()[1] for line in ran.stderr.splitlines() if line.startswith("failed: ")] == [
        jobs[1]["name"]
    ]
    kept = run_ids(folder)
    (tmp_path / "fails-2").unlink()
    again = sweep(tmp_path, *options)
    assert again.returncode == 0, again.stderr
    assert kept.items() <= run_ids(folder).items()
    assert len(run_ids(folder)) == 3
    for job in jobs:
        assert (folder / job["name"] / ".hydra" / "config.yaml").is_file()
        assert read(folder, job, "metrics.json")["fingerprint"] == job["fingerprint"]
    assert {file.name for file in tmp_path.iterdir()} == {"outputs"}


def test_a_cluster_that_is_not_there_is_told_and_nothing_is_lost(tmp_path):
    ran = sweep(tmp_path, "seed=0,1", "launcher=slurm")
    assert ran.returncode == 1
    assert "the launcher failed" in ran.stderr
    assert (
        sum(
            line.startswith("failed: ") and "it did not end" in line
            for line in ran.stderr.splitlines()
        )
        == 2
    )
    again = sweep(tmp_path, "seed=0,1")
    assert again.returncode == 0, again.stderr
    assert len(run_ids(folder_of(tmp_path))) == 2


def test_ray_runs_every_job_where_it_installs(tmp_path):
    """In a folder of its own: its launcher and joblib want different versions of cloudpickle."""
    library = tmp_path / "library"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--target",
        str(library),
        "hydra-ray-launcher>=1.2",
    ]
    try:
        installed = subprocess.run(install, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        pytest.skip("installing ray took more than 5 minutes")
    if installed.returncode:
        pytest.skip(f"ray does not install here: {installed.stderr.strip().splitlines()[-1]}")
    (tmp_path / "here").mkdir()
    ran = sweep(tmp_path / "here", "launcher=ray", "seed=0,1", library=library, HOME=str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(run_ids(folder_of(tmp_path / "here"))) == 2
