"""What is said of a window's time on a CPU."""

from __future__ import annotations

import json

import pytest

from bench.host import cpu_paths, window_parts

pytestmark = pytest.mark.slow
WINDOWS = ["1", "4 x 1", "4 x 2", "4 x 4"]


def test_parts_of_a_window_make_the_window(tmp_path, capsys):
    out = tmp_path / "parts.json"
    arguments = ["--passes", "2", "--depth", "1", "--out", str(out), "target.dtype=fp32"]
    assert window_parts.main(arguments) == 0
    found = json.loads(out.read_text())
    assert list(found) == WINDOWS
    for of in found.values():
        assert min(of[kind] for kind in ("products", "attention", "delta rule", "drafter")) > 0
        assert sum(of.values()) - of["window"] >= 0.99 * of["window"]
    assert "| products |" in capsys.readouterr().out


def test_both_paths_are_timed(capsys):
    assert cpu_paths.main(["--passes", "1", "target.dtype=fp32"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0].removeprefix("| ") for line in said[-4:]] == WINDOWS


def test_bad_input_is_one_line(capsys):
    for main in (window_parts.main, cpu_paths.main):
        assert main(["--target", "nothing"]) == 2
        assert capsys.readouterr().err.startswith("error: --target is nothing, expected")
