"""Sweeps through the command itself: what is kept and said of failures, resuming, folders,
killing."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path
from random import Random

import pytest
import yaml

from experiments import load
from tests.support.sweeps import command, environment, folder_of, jobs_of, read, run_ids, sweep

FAULTY = (
    "grant=rotate",
    "policy=static_k",
    "policy._target_=tests.support.faulty_policy.Faulty",
    "+policy.budget=${grant.budget}",
)


def wait_for(folder, pattern):
    deadline = time.monotonic() + 120
    while not list(folder.glob(pattern)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def alive(text):
    """Processes with the text in their command line."""
    return [
        file
        for file in Path("/proc").glob("[0-9]*/cmdline")
        if text.encode() in read_or_nothing(file)
    ]


def read_or_nothing(file):
    try:
        return file.read_bytes()
    except OSError:
        return b""


def test_H01_every_failure_is_kept_and_told_the_others_complete_and_the_same_command_goes_on(
    tmp_path,
):
    (tmp_path / "fails-2").touch()
    (tmp_path / "dies-3").touch()
    # H05: the launch folder's, and nothing is written beside it
    (tmp_path / "times.txt").write_text("0.0 0.5")
    options = (
        *FAULTY,
        f"+policy.here={tmp_path}",
        "grant.budget=1,2,2,3",
        "workload.arrivals=trace",
        "workload.trace=times.txt",
    )
    ran = sweep(tmp_path, *options, "launcher.jobs=2")
    assert ran.returncode == 1
    folder = folder_of(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {
        "outputs",
        "times.txt",
        "fails-2",
        "dies-3",
    }
    jobs = jobs_of(folder)
    assert [read(folder, job, "status.json")["state"] for job in jobs] == [
        "ok",
        "failed",
        "failed",
        "failed",
    ]
    for job in jobs[1:3]:
        assert "Traceback" in read(folder, job, "status.json")["error"]
        assert "budget 2 is bad luck" in (folder / job["name"] / "job.log").read_text()
    assert read(folder, jobs[3], "status.json")["error"].endswith(
        "the process was ended by SIGKILL"
    )
    told = [line for line in ran.stderr.splitlines() if line.startswith("failed: ")]
    assert [line.split()[1] for line in told] == [job["name"] for job in jobs[1:]]
    assert ["bad luck" in line for line in told] == [True, True, False]
    assert "grant.budget=3" in told[2]
    assert "SIGKILL" in told[2]
    assert load(folder).height == 4
    kept = run_ids(folder)

    (tmp_path / "fails-2").unlink()
    (tmp_path / "dies-3").unlink()
    again = sweep(tmp_path, *options, "launcher.jobs=1")
    assert again.returncode == 0, again.stderr
    assert "sweep of 4 jobs, 1 of them done already" in again.stdout
    assert folder_of(tmp_path) == folder  # the same one, and no other
    after = run_ids(folder)
    assert len(set(after.values())) == 4
    assert kept.items() <= after.items()
    for job in jobs:
        metrics, config = read(folder, job, "metrics.json"), read(folder, job, "config.json")
        assert (
            metrics["fingerprint"]
            == config["fingerprint"]
            == read(folder, job, "status.json")["fingerprint"]
            == job["fingerprint"]
        )
        assert metrics["run_id"] == config["run_id"]
        # resolved
        assert config["config"]["policy"]["budget"] == config["config"]["grant"]["budget"]
        assert {"git_commit", "versions"} <= config.keys()


@pytest.mark.slow
def test_H05_H07_folders_are_safe_and_found_by_config_and_inputs_are_the_launch_folders(
    tmp_path,
):
    (tmp_path / "times.txt").write_text("0.0 0.5")
    paths = ("workload.arrivals=trace", "workload.trace=times.txt", "cache_dir=kept")
    names = (
        "tag='a/b','c,d'",
        "hydra.sweep.subdir=${hydra.job.override_dirname}",
        "hydra.sweep.dir=out",
    )
    ran = sweep(tmp_path, *paths, *names, "hydra.job.chdir=true")
    assert ran.returncode == 0, ran.stderr
    assert {file.name for file in tmp_path.iterdir()} <= {"times.txt", "out", "kept"}
    folders = sorted(file.parents[1] for file in tmp_path.rglob(".hydra/config.yaml"))
    assert all(
        folder.parent == tmp_path / "out" and re.fullmatch(r"\d{3}-[0-9a-f]{8}", folder.name)
        for folder in folders
    )
    assert [
        yaml.safe_load((folder / ".hydra" / "config.yaml").read_text())["tag"] for folder in folders
    ] == ["a/b", "c,d"]
    assert all((folder / "metrics.json").is_file() for folder in folders)
    other = sweep(tmp_path, "hydra.sweep.dir=out", "seed=1,2")
    assert other.returncode == 2
    assert "which holds a sweep with other overrides" in other.stderr


def test_kill_9_loses_at_most_the_job_in_flight_and_leaves_no_process(tmp_path):
    started = subprocess.Popen(
        command("seed=range(0,3)"), cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL
    )
    wait_for(tmp_path, "outputs/sweep/*/001-*/.hydra/config.yaml")
    started.send_signal(signal.SIGKILL)
    started.wait()
    folder = folder_of(tmp_path)
    kept = run_ids(folder)
    jobs = jobs_of(folder)
    assert jobs[0]["name"] in kept
    while alive(str(folder)):
        assert len(run_ids(folder)) <= 2
        time.sleep(0.05)
    assert not (folder / jobs[2]["name"]).exists()
    kept = run_ids(folder)
    again = sweep(tmp_path, "seed=range(0,3)")
    assert again.returncode == 0, again.stderr
    assert kept.items() <= run_ids(folder).items()
    assert len(run_ids(folder)) == 3
    # nothing half-written
    assert not [file for file in folder.rglob(".*.[0-9]*") if file.is_file()]


def test_a_sweep_is_refused_once_before_any_job(tmp_path):
    ran = sweep(tmp_path, "sizes=1,2,4")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines() == [
        "error: sizes is 1,2,4: sizes must be a list, expected brackets: sizes=[1,2,4], or "
        "sizes=[...],[...] for two jobs"
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_ctrl_c_ends_at_once_and_marks_no_job_as_failed(tmp_path):
    long = command("seed=range(0,3)", "workload.requests=2000", "max_new_tokens=500")
    started = subprocess.Popen(
        long, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    )
    wait_for(tmp_path, "outputs/sweep/*/000-*/.hydra/config.yaml")
    started.send_signal(signal.SIGINT)
    assert started.wait(timeout=20) == 130
    assert "interrupted: 0 of 3 jobs are done; the same command goes on" in started.stderr.read()
    deadline = time.monotonic() + 20  # the job's own process ends with the one that started it
    while alive(str(tmp_path)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    # F07: what ran is not left as if it were still running
    (status,) = tmp_path.glob("outputs/sweep/*/*/status.json")
    assert json.loads(status.read_text())["state"] == "interrupted"


@pytest.mark.slow
def test_kill_9_at_random_times(tmp_path):
    """Only the jobs in flight may be lost: what was done before a kill keeps its run id for
    ever."""
    random = Random(7)
    options = ("seed=range(0,6)", "launcher.jobs=2")
    done: dict[str, str] = {}
    for _ in range(12):
        started = subprocess.Popen(
            command(*options),
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(random.uniform(3, 11))
        started.kill()
        started.wait()
        for manifest in tmp_path.glob("outputs/sweep/*/sweep.json"):
            now = run_ids(manifest.parent)
            assert done.items() <= now.items()
            done = now
            for file in manifest.parent.rglob("*.json"):
                json.loads(file.read_text())  # whole, or not there
        if len(done) == 6:
            break
    final = sweep(tmp_path, *options)
    if len(done) < 6:
        assert final.returncode == 0, final.stderr
        assert done.items() <= run_ids(folder_of(tmp_path)).items()
        assert len(run_ids(folder_of(tmp_path))) == 6
