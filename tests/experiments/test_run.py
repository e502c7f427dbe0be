"""The command itself, on the shipped model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import torch
from safetensors.torch import save_file

from experiments import load
from experiments.io import PROJECT


def run(tmp_path: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "experiments.run",
        *overrides,
        "max_new_tokens=24",
        "device=cpu",
    ]
    return subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(PROJECT), "PATH": "/usr/bin:/bin"},
    )


def folder_of(tmp_path: Path) -> Path:
    (status,) = tmp_path.glob("outputs/run/*/status.json")
    return status.parent


def test_a_run_writes_its_files_and_says_that_its_tokens_are_exact(tmp_path):
    ran = run(tmp_path, "layout=slots", "layout.capture_on=1")
    assert ran.returncode == 0, ran.stderr
    assert "parity: exact, 4 of 4 requests" in ran.stdout
    folder = folder_of(tmp_path)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert json.loads((folder / "status.json").read_text()) == {
        "state": "ok",
        "error": None,
        "fingerprint": metrics["fingerprint"],
    }
    rounds = pl.read_parquet(folder / "rounds.parquet")
    lines = [json.loads(line) for line in (folder / "tokens.jsonl").read_text().splitlines()]
    assert metrics["evidence"] == "cpu"
    assert metrics["tokens_per_s"] > 0
    assert metrics["plain_tokens_per_s"] > 0
    assert (
        metrics["rows_kept"]
        == rounds["committed"].sum()
        == sum(len(line["tokens"]) - 1 for line in lines)
    )
    assert metrics["drafts_accepted"] == rounds["accepted"].sum() > 0
    assert metrics["layouts"]["hits"] + metrics["layouts"]["misses"] == metrics["windows"]
    stats = {"checked": 4, "exact": True, "label": "exact", "first_difference": None}
    assert stats.items() <= metrics["parity"].items()
    assert {line["finish"] for line in lines} <= {"length", "stop"}
    assert all(line["text"] for line in lines)
    windows = pl.read_parquet(folder / "steps.parquet").filter(pl.col("kind") == "window")
    assert windows.height == metrics["windows"]
    assert (windows["rows"].sum(), windows["padded"].sum()) == (
        metrics["rows_verified"],
        metrics["rows_padded"],
    )
    paths = [windows.filter(path=path).height for path in ("replayed", "capturing")]
    assert paths == [metrics["layouts"]["hits"], metrics["layouts"]["captures"]]
    assert not (folder / "grants.parquet").exists()
    assert (folder / ".hydra" / "config.yaml").exists()
    table = load(tmp_path)
    assert table.height == 1
    assert table["parity.exact"].to_list() == [True]


@pytest.mark.slow
def test_a_run_that_the_device_plans_is_exact(tmp_path):
    ran = run(
        tmp_path,
        "plan=device",
        "layout=rows",
        "plain=false",
        "slots=3",
        "grant=rotate",
        "grant.budget=2",
    )
    assert ran.returncode == 0, ran.stderr
    assert "parity: exact, 4 of 4 requests" in ran.stdout
    metrics = json.loads((folder_of(tmp_path) / "metrics.json").read_text())
    assert metrics["layouts"]["hits"] > 5
    assert metrics["drafts_accepted"] > 0
    assert metrics["grants"]["switches"] > 1
    grants = pl.read_parquet(folder_of(tmp_path) / "grants.parquet").sort("began")
    assert (grants["request"] != grants["request"].shift(1)).sum() == metrics["grants"]["switches"]
    assert grants.filter(pl.col("again"))["waited"].max() == metrics["grants"]["max_gap_rounds"]


def test_tokens_that_differ_from_plain_decoding_fail_the_run(tmp_path):
    cached = ["cache_dir=kept", "plain=false"]
    assert run(tmp_path, *cached, "hydra.run.dir=first").returncode == 0
    for file in (tmp_path / "kept" / "plain").iterdir():
        held = json.loads(file.read_text())
        held["tokens"][5] += 1
        file.write_text(json.dumps(held))
    failed = run(tmp_path, *cached, "hydra.run.dir=second")
    assert failed.returncode == 1
    assert "tokens differ from plain decoding" in failed.stderr
    assert json.loads((tmp_path / "second" / "status.json").read_text())["state"] == "failed"
    assert (tmp_path / "second" / "metrics.json").exists()
    reported = run(tmp_path, *cached, "hydra.run.dir=third", "parity=report")
    assert reported.returncode == 0
    assert "parity: NOT exact" in reported.stdout


@pytest.mark.slow
def test_a_folder_is_never_written_twice(tmp_path):
    once = ["plain=false", "parity=off", "hydra.run.dir=here"]
    assert run(tmp_path, *once).returncode == 0
    held = {file: file.read_bytes() for file in (tmp_path / "here").rglob("*") if file.is_file()}
    assert tmp_path / "here" / ".hydra" / "config.yaml" in held
    again = run(tmp_path, *once, "seed=1")
    assert again.returncode == 2
    assert "holds a run already" in again.stderr
    assert held == {
        file: file.read_bytes() for file in (tmp_path / "here").rglob("*") if file.is_file()
    }


@pytest.mark.slow
def test_a_workload_file_with_priorities_arrivals_and_limits(tmp_path):
    lines = [
        {"id": "[/b]", "prompt": "def f(x):", "max_new_tokens": 5},
        {"id": "b", "prompt_ids": [50, 60, 70], "arrival_s": 0.05, "ignore_stop": True},
    ]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    ran = run(
        tmp_path,
        "workload=file",
        "workload.path=prompts.jsonl",
        "drafter=prompt_lookup",
        "hydra.job.chdir=true",
    )
    assert ran.returncode == 0, ran.stderr
    tokens = [
        json.loads(line) for line in (folder_of(tmp_path) / "tokens.jsonl").read_text().splitlines()
    ]
    assert [(line["request"], len(line["tokens"])) for line in tokens] == [("[/b]", 5), ("b", 24)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"prompt_ids": [1] * 1024}, "the prompt has 1024 tokens, expected at most 1023"),
        *(
            pytest.param(line, message, marks=pytest.mark.slow)
            for line, message in (
                ({"prompt_ids": [99999]}, "prompt token 99999 is outside the vocabulary"),
                ({"prompt_ids": [5], "stop_ids": [*range(20)]}, "20 stop ids, expected at most 16"),
                ({"prompt": "a", "temperature": 1}, "line 1: temperature: not supported yet"),
            )
        ),
    ],
)
def test_requests_that_cannot_be_served_exit_with_2_and_one_line(tmp_path, line, message):
    (tmp_path / "prompts.jsonl").write_text(json.dumps(line))
    ran = run(tmp_path, "workload=file", "workload.path=prompts.jsonl")
    assert ran.returncode == 2
    assert message in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_checkpoint_of_another_architecture_is_refused(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({"model_type": "bert"}))
    save_file({"embeddings.weight": torch.zeros(2, 2)}, tmp_path / "other" / "model.safetensors")
    ran = run(tmp_path, "target=checkpoint", "target.path=other")
    assert ran.returncode == 2
    assert "bert" in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_H01_on_the_model_a_failing_job_of_a_sweep_is_named_and_the_others_complete(tmp_path):
    (tmp_path / "long.jsonl").write_text(json.dumps({"prompt_ids": [1] * 2000}))
    (tmp_path / "short.jsonl").write_text(json.dumps({"prompt_ids": [5, 6, 7]}))
    ran = run(
        tmp_path,
        "-m",
        "workload=file",
        "workload.path=short.jsonl,long.jsonl",
        "plain=false",
        "hydra.sweep.dir=out",
    )
    assert ran.returncode == 1
    states = {
        file.parent.name[:3]: json.loads(file.read_text())["state"]
        for file in (tmp_path / "out").glob("*/status.json")
    }
    assert states == {"000": "ok", "001": "failed"}
    assert sum("2000 tokens, expected at most" in line for line in ran.stderr.splitlines()) == 1
    table = load(tmp_path / "out")
    assert table.height == 2
    assert table["run_id"].drop_nulls().n_unique() == 1
