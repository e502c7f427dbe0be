"""Rows of results, their comparison and report; pytest-benchmark around one case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench import compare, report
from bench.rows import OUT, read_rows, row_of, table, write_rows_to
from tests.support import ROOT

INFO = {
    "operation": "accept",
    "implementation": "twin",
    "shape": {"slots": 4, "rows": 8},
    "mode": "call",
    "bytes": 100,
    "per": 2,
}


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
    assert set(row) >= {
        "operation",
        "implementation",
        "shape",
        "mode",
        "bytes",
        "commit",
        "threads",
    }


def test_the_table_relates_to_the_first_implementation(tmp_path):
    lines = table(read_rows(written(tmp_path / "a.jsonl", 2.0, 3.0)))
    assert [line.split(" | ")[-2] for line in lines[2:]] == ["1.00", "1.50"]


def test_two_files_are_compared(tmp_path, monkeypatch, capsys):
    a, b = written(tmp_path / "a.jsonl", 2.0, 2.0), written(tmp_path / "b.jsonl", 2.2, 4.0)
    monkeypatch.setattr(sys, "argv", ["compare", str(a), str(b)])
    assert compare.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[-2:] for line in lines[2:4]] == [["1.10", " |"], ["2.00", "yes |"]]
    assert lines[-1] == "only in A: 0, only in B: 0"


@pytest.mark.parametrize(
    ("changes", "arguments", "said"),
    [
        ({}, 1, "1 files are given"),
        ({"evidence": "gpu"}, 2, "says nothing of a GPU"),
        (None, 2, "expected rows of"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    tmp_path, monkeypatch, capsys, changes, arguments, said
):
    a = written(tmp_path / "a.jsonl", 1.0, evidence="cpu")
    b = tmp_path / "b.jsonl" if changes is None else written(tmp_path / "b.jsonl", 1.0, **changes)
    monkeypatch.setattr(sys, "argv", ["compare", str(a), str(b)][: arguments + 1])
    assert compare.main() == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said.replace("says nothing", "say nothing") in error


def test_the_report_draws_every_implementation_and_says_whose_times_they_are(
    tmp_path, monkeypatch, capsys
):
    rows = written(tmp_path / "a.jsonl", 2.0, 3.0, device="a processor", evidence="cpu")
    monkeypatch.setattr(sys, "argv", ["report", str(rows)])
    assert report.main() == 0
    assert "| accept |" in capsys.readouterr().out
    plot = (tmp_path / "a.svg").read_text()
    assert all(
        text in plot
        for text in ("accept, call  [cpu: a processor]", ">a<", ">b<", "slots=4 rows=8")
    )


COMPILED = {
    "kind": "compiled",
    "operation": "window",
    "shape": {"slots": 4},
    "evidence": "compiled",
    "operations": ["aten::add"],
}


def test_the_report_has_the_roofline_of_the_machine_and_the_compiled_code(
    tmp_path, monkeypatch, capsys
):
    path = written(
        tmp_path / "a.jsonl",
        2.0,
        3.0,
        device="a processor",
        evidence="cpu",
        copy_bytes_per_us=9_000,
        share=0.5,
    )
    figures = {"registers": 90, "instructions": 700, "spills": 0, "shared": 256}
    launches = [{**figures, "launch": 1}, {**figures, "launch": 2, "registers": 50}]
    write_rows_to(
        path,
        [
            COMPILED | {"implementation": "staged", "architecture": "sm_90", "launches": 2} | each
            for each in launches
        ],
    )
    window = {
        "kind": "window",
        "operation": "window",
        "implementation": "rows",
        "model": "sum",
        "window_us": 12.5,
        "seam_share": 0.25,
    }
    write_rows_to(path, [window | {"shape": {"slots": 4}}])
    monkeypatch.setattr(sys, "argv", ["report", str(path)])
    assert report.main() == 0
    printed = capsys.readouterr().out
    assert "| window | staged | sm_90 | 2 | 1 | 90 | 1400 | 0 | 256 |" in printed
    assert "| sum | rows | 12.5 |" in printed
    assert "| 1.00 | 0.500 |" in printed
    plot = (tmp_path / "a.roofline.svg").read_text()
    assert all(
        text in plot
        for text in ("a copy, 9.0 GB/s measured", "[cpu: a processor", ">accept<", ">a<")
    )


def test_a_file_without_bytes_or_times_has_no_picture_of_them(tmp_path, monkeypatch, capsys):
    path = tmp_path / "a.jsonl"
    row = {
        "implementation": "fused",
        "architecture": "sm_90",
        "registers": 1,
        "instructions": 1,
        "spills": 0,
        "shared": 0,
    }
    write_rows_to(path, [COMPILED | row])
    monkeypatch.setattr(sys, "argv", ["report", str(path)])
    assert report.main() == 0
    assert [found.name for found in tmp_path.iterdir()] == ["a.jsonl"]
    monkeypatch.setattr(sys, "argv", ["compare", str(path), str(path)])
    capsys.readouterr()
    assert compare.main() == 0
    assert "only in A: 0, only in B: 0" in capsys.readouterr().out


def test_pytest_benchmark_times_a_case_and_leaves_rows(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "bench/ops/bench_host.py",
        "-q",
        "-k",
        "look_up/rows/slots2",
        "-p",
        "no:cacheprovider",
    ]
    timing = [
        "--benchmark-timer=time.thread_time",
        "--benchmark-max-time=0.01",
        "--benchmark-min-rounds=5",
    ]
    options = [*timing, f"--benchmark-json={tmp_path / 'whole.json'}"]
    # it would switch timing off
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"
    }
    environment[OUT] = str(tmp_path / "rows.jsonl")
    done = subprocess.run(
        command + options, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    (row,) = read_rows(tmp_path / "rows.jsonl")
    assert (row["operation"], row["implementation"], row["shape"], row["mode"]) == (
        "look_up",
        "rows",
        {"slots": 2, "rows": 8},
        "python",
    )
    assert row["samples"] >= 5
    assert row["clock"] == "time.thread_time"
    assert 0 < row["p20_us"] <= row["p50_us"] <= row["p80_us"]
    whole = json.loads((tmp_path / "whole.json").read_text())
    assert "node" not in whole["machine_info"]
    assert "data" not in whole["benchmarks"][0]["stats"]
