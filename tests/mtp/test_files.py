"""Caches on folders that several machines share (N06, N08)."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Any

import pytest

from mtp.costs import LinearCost
from mtp.costs.models import load_cost, save_cost
from mtp.files import code_digest, remembered


def of(held: Any) -> int:
    return int(held["value"] + 0)


def kept(file: Path, value: int) -> int:
    return remembered(file, lambda: {"value": value}, of)


def test_what_is_remembered_is_made_once(tmp_path: Path, capfd):
    file = tmp_path / "a" / "b.json"
    assert [kept(file, 1), kept(file, 2)] == [1, 1]
    assert capfd.readouterr().err == ""
    assert [one.name for one in file.parent.iterdir()] == ["b.json"]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"\xff\xfe", b"3", b"null", b'{"value": "x"}', b'{"other": 1}']
)
def test_N06_what_cannot_be_used_is_made_again_and_named(content: bytes, tmp_path: Path, capfd):
    file = tmp_path / "b.json"
    file.write_bytes(content)
    assert kept(file, 2) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"warning: {file} cannot be used (")
    assert json.loads(file.read_text()) == {"value": 2}


def test_N06_a_cache_that_cannot_be_written_costs_no_result(tmp_path: Path, capfd):
    (tmp_path / "file").touch()
    file = tmp_path / "file" / "b.json"
    assert kept(file, 2) == 2
    lines = capfd.readouterr().err.splitlines()
    assert lines[-1].startswith(f"warning: {file} cannot be written (")


def test_F06_a_full_disk_leaves_a_cache_as_it_was(tmp_path: Path, monkeypatch, capfd):
    def full(path: Path, *_: Any, **__: Any) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert kept(tmp_path / "b.json", 2) == 2
    assert not list(tmp_path.iterdir())
    assert "cannot be written (No space left on device)" in capfd.readouterr().err


def test_N08_of_two_makers_the_first_ones_value_counts(tmp_path: Path):
    file = tmp_path / "b.json"
    assert remembered(file, lambda: {"value": kept(file, 1) + 1}, of) == 1
    assert kept(file, 3) == 1


def test_a_code_digest_follows_names_and_content(tmp_path: Path):
    def digest() -> str:
        code_digest.cache_clear()
        return code_digest(tmp_path / "code", tmp_path / "one.py")

    (tmp_path / "code" / "sub").mkdir(parents=True)
    (tmp_path / "code" / "sub" / "a.py").write_text("1")
    (tmp_path / "one.py").write_text("1")
    first = digest()
    (tmp_path / "code" / "notes.txt").write_text("no code")
    assert digest() == first
    (tmp_path / "code" / "sub" / "a.py").write_text("2")
    second = digest()
    (tmp_path / "code" / "sub" / "a.py").rename(tmp_path / "code" / "sub" / "b.py")
    assert len({first, second, digest()}) == 3


def test_N06_a_cost_file_of_another_encoding_is_named(tmp_path: Path):
    file = tmp_path / "cost.yaml"
    file.write_bytes(b"kind: \xff")
    with pytest.raises(ValueError, match=rf"cost\.path is {file}: no YAML"):
        load_cost(file)
    save_cost(file, LinearCost(1.0, 0.1, 0.0, 0.0))
    assert load_cost(file) == LinearCost(1.0, 0.1, 0.0, 0.0)
    assert list(tmp_path.iterdir()) == [file]
