"""A run's state is decided by its work: not by what can be shown (F05), and kept whatever ends it:
a full disk (F06), an interrupt (F07)."""

from __future__ import annotations

import errno
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from experiments.config.overrides import quoted
from experiments.report.runs import read_run
from experiments.run import main
from experiments.runs import tape_runtime, validate
from tests.support.sweeps import SMALL, environment


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str) -> int:
    """The command in this process; its exit code."""
    overrides = [*SMALL, f"hydra.run.dir={quoted(str(folder))}", *options]
    monkeypatch.setattr(sys, "argv", ["run", *overrides])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def state(folder: Path) -> Any:
    return json.loads((folder / "status.json").read_text())["state"]


def test_F05_a_reader_that_leaves_early_ends_no_run(tmp_path: Path):
    command = [sys.executable, "-m", "experiments.run", *SMALL, "hydra.run.dir=here"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, env=environment(), **pipes) as started:
        assert started.stdout.readline().startswith(b"2 requests")
        started.stdout.close()
        assert started.stderr.read() == b""
        assert started.wait(timeout=60) == 0
    assert state(tmp_path / "here") == "ok"


class Raising(io.StringIO):
    """Its n-th write raises, and all that follow."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.left = at

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


@pytest.mark.parametrize("at", [0, 1, 3])
def test_F05_a_console_that_raises_ends_no_run(at: int, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Raising(at))
    assert run(monkeypatch, tmp_path / "here") == 0
    assert state(tmp_path / "here") == "ok"


def test_F05_a_console_that_knows_few_characters_ends_no_run(tmp_path: Path, monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert run(monkeypatch, tmp_path / "é [b]") == 0
    assert state(tmp_path / "é [b]") == "ok"
    assert b"\\xe9 [b]" in out.buffer.getvalue()


def test_F05_the_state_is_kept_before_anything_is_shown(tmp_path: Path, monkeypatch):
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.runs.job.show_run", interrupted)
    assert run(monkeypatch, tmp_path / "here") == 130
    assert state(tmp_path / "here") == "ok"


@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 9), (1, 1), (1, 9), (2, 9)])
def test_F06_a_full_disk_is_one_line(first: int, last: int, tmp_path: Path, monkeypatch, capfd):
    """The writes from `first` to `last` fail: of the config, the tokens, the figures, the state."""
    write, count = Path.write_bytes, iter(range(100))

    def full(path: Path, content: bytes) -> int:
        if first <= next(count) <= last:
            path.touch()  # as a full disk leaves it
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    folder = tmp_path / "here"
    assert run(monkeypatch, folder) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("failed: [Errno 28] No space left on device: ")
    assert str(folder) in line
    assert not [file for file in folder.iterdir() if file.name.startswith(".") and file.is_file()]
    if last == first:
        assert state(folder) == "failed"
    else:
        assert "its state is not kept" in line


def test_F06_a_state_that_cannot_be_kept_is_a_failure(tmp_path: Path, monkeypatch, capfd):
    folder = tmp_path / "here"
    (folder / "status.json").mkdir(parents=True)
    monkeypatch.setattr("experiments.run._take_folder", lambda base: None)
    assert run(monkeypatch, folder) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("failed: its state is not kept: ")


def test_F06_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path, monkeypatch, capfd):
    (tmp_path / "file").touch()
    assert run(monkeypatch, tmp_path / "file" / "here") == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("failed: ")


def interrupt(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def test_F07_an_interrupted_run_says_so(tmp_path: Path, monkeypatch, capfd):
    monkeypatch.setattr(tape_runtime.TapeRuntime, "executor", interrupt)
    folder = tmp_path / "here"
    assert run(monkeypatch, folder) == 130
    assert capfd.readouterr().err.splitlines() == [f"interrupted: {folder}"]
    assert (state(folder), read_run(folder).state) == ("interrupted", "interrupted")


@pytest.mark.parametrize("options", [[], ["-m", "seed=0,1"]])
def test_F07_what_is_interrupted_while_it_is_checked_starts_nothing(
    options: list[str], tmp_path: Path, monkeypatch, capfd
):
    monkeypatch.setattr(validate, "run_spec", interrupt)
    assert run(monkeypatch, tmp_path / "here", *options) == 130
    assert capfd.readouterr().err.splitlines() == ["interrupted"]
    assert not (tmp_path / "here").exists()
