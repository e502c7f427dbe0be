"""Rows of results, their comparison and report; pytest-benchmark around one case; peers that are not installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench import compare, peers, report
from bench.rows import OUT, read_rows, row_of, table, write_rows_to

ROOT = Path(__file__).parents[2]
INFO = {"operation": "accept", "implementation": "twin", "shape": {"slots": 4, "rows": 8}, "mode": "call", "bytes": 100, "per": 2}


def written(path: Path, *factors: float, **changes) -> Path:
    rows = [
        row_of({**INFO, "implementation": name}, [factor * 1e-6 * n for n in range(1, 12)])
        for name, factor in zip("ab", factors, strict=False)
    ]
    write_rows_to(path, [{**row, **changes} for row in rows])
    return path


def test_a_row_has_quantiles_per_unit_and_names_where_it_comes_from(tmp_path):
    (row,) = read_rows(written(tmp_path / "a.jsonl", 2.0))
    assert (row["p20_us"], row["p50_us"], row["p80_us"], row["samples"]) == (3.0, 6.0, 9.0, 11)
    assert (row["evidence"] == "gpu") == torch.cuda.is_available()
    assert row["device"]
    assert row["versions"]["torch"] == torch.__version__
    assert set(row) >= {"operation", "implementation", "shape", "mode", "bytes", "commit", "threads"}


def test_the_table_relates_to_the_first_implementation(tmp_path):
    lines = table(read_rows(written(tmp_path / "a.jsonl", 2.0, 3.0)))
    assert [line.split(" | ")[-1] for line in lines[2:]] == ["1.00 |", "1.50 |"]


def test_two_files_are_compared(tmp_path, monkeypatch, capsys):
    a, b = written(tmp_path / "a.jsonl", 2.0, 2.0), written(tmp_path / "b.jsonl", 2.2, 4.0)
    monkeypatch.setattr(sys, "argv", ["compare", str(a), str(b)])
    assert compare.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[-2:] for line in lines[2:4]] == [["1.10", " |"], ["2.00", "yes |"]]
    assert lines[-1] == "only in A: 0, only in B: 0"


@pytest.mark.parametrize(
    ("changes", "arguments", "said"),
    [({}, 1, "1 files are given"), ({"evidence": "gpu"}, 2, "says nothing of a GPU"), (None, 2, "expected rows of")],
)
def test_what_cannot_be_compared_is_refused(tmp_path, monkeypatch, capsys, changes, arguments, said):
    a = written(tmp_path / "a.jsonl", 1.0, evidence="cpu")
    b = tmp_path / "b.jsonl" if changes is None else written(tmp_path / "b.jsonl", 1.0, **changes)
    monkeypatch.setattr(sys, "argv", ["compare", str(a), str(b)][: arguments + 1])
    assert compare.main() == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said.replace("says nothing", "say nothing") in error


def test_the_report_draws_every_implementation_and_says_whose_times_they_are(tmp_path, monkeypatch, capsys):
    rows = written(tmp_path / "a.jsonl", 2.0, 3.0, device="a processor", evidence="cpu")
    monkeypatch.setattr(sys, "argv", ["report", str(rows)])
    assert report.main() == 0
    assert "| accept |" in capsys.readouterr().out
    picture = (tmp_path / "a.svg").read_text()
    assert all(text in picture for text in ("accept, call  [cpu: a processor]", ">a<", ">b<", "slots=4 rows=8"))


def test_pytest_benchmark_times_a_case_and_leaves_rows(tmp_path):
    command = [sys.executable, "-m", "pytest", "bench/bench_host.py", "-q", "-k", "look_up/rows/slots2", "-p", "no:cacheprovider"]
    options = ["--benchmark-max-time=0.01", "--benchmark-min-rounds=5", f"--benchmark-json={tmp_path / 'whole.json'}"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}  # it would switch timing off
    environment[OUT] = str(tmp_path / "rows.jsonl")
    done = subprocess.run(command + options, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (row,) = read_rows(tmp_path / "rows.jsonl")
    assert (row["operation"], row["implementation"], row["shape"], row["mode"]) == ("look_up", "rows", {"slots": 2, "rows": 8}, "python")
    assert row["samples"] >= 5
    assert 0 < row["p20_us"] <= row["p50_us"] <= row["p80_us"]
    whole = json.loads((tmp_path / "whole.json").read_text())
    assert "node" not in whole["machine_info"]
    assert "data" not in whole["benchmarks"][0]["stats"]


def test_a_peer_that_is_absent_is_skipped_with_a_line(tmp_path):
    lines = list(peers.run(tmp_path / "rows.jsonl"))
    assert len(lines) == len(peers.PEERS)
    for peer, line in zip(peers.PEERS, lines, strict=True):
        assert line.startswith(f"peer {peer}: skipped, ")
        assert "not installed" in line or "no GPU" in line
    assert not (tmp_path / "rows.jsonl").exists()


def test_a_peer_that_fails_otherwise_is_skipped_with_its_last_line(tmp_path, monkeypatch):
    script = tmp_path / "process.py"
    script.write_text("raise TypeError('called otherwise')")
    monkeypatch.setattr(peers, "PROCESS", script)
    assert next(peers.run(tmp_path / "rows.jsonl")) == "peer vllm: skipped, TypeError: called otherwise"


def test_a_peer_that_was_timed_gets_rows_with_its_version(tmp_path, monkeypatch):
    script = tmp_path / "process.py"
    entry = {**{name: INFO[name] for name in ("operation", "shape", "bytes")}, "mode": "graph", "per": 1, "seconds": [1e-6] * 3}
    said = json.dumps({"version": "1.2", "timed": [entry]})
    script.write_text(f"import sys\nassert 'triton_kernels' not in sys.modules\nprint('noise')\nprint({said!r})")
    monkeypatch.setattr(peers, "PROCESS", script)
    assert next(peers.run(tmp_path / "rows.jsonl")) == "peer vllm 1.2: 1 cases"
    assert read_rows(tmp_path / "rows.jsonl")[0]["implementation"] == "vllm 1.2"


def test_what_peers_are_given_is_what_greedy_verification_keeps():
    given = peers.uniform(4, 8)
    kept = []
    for drafts, picks in zip(given["drafts"].tolist(), given["picks"].tolist(), strict=True):
        count = next((i for i, (a, b) in enumerate(zip(drafts, picks, strict=False)) if a != b), len(drafts))
        kept.append(picks[: count + 1])
    assert kept == given["expected"]
    assert len({len(tokens) for tokens in kept}) > 1
