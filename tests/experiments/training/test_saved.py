"""What a training leaves on disk is whole, and what is not is named (N06, N08, F06)."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.config.checks import BadInput
from experiments.training.drafters.store import Store
from experiments.training.saved import recipe_in, save, saved

STATE = {"recipe": {"steps": 3}, "model": {"weight": torch.ones(3)}}


def test_a_state_comes_back(tmp_path: Path):
    save(STATE, tmp_path / "checkpoint.pt")
    assert recipe_in(tmp_path / "checkpoint.pt") == STATE["recipe"]
    assert torch.equal(saved(tmp_path / "checkpoint.pt")["model"]["weight"], torch.ones(3))


def test_F06_a_full_disk_leaves_the_last_state(tmp_path: Path, monkeypatch):
    file = tmp_path / "checkpoint.pt"
    save(STATE, file)
    held = file.read_bytes()

    def full(state: Any, aside: Path) -> None:
        aside.write_bytes(held[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*checkpoint\.pt'"):
        save({"recipe": {}}, file)
    assert file.read_bytes() == held
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("kept", [0, 10, 400])
def test_N06_a_broken_state_is_named(kept: int, tmp_path: Path):
    file = tmp_path / "checkpoint.pt"
    save(STATE, file)
    file.write_bytes(file.read_bytes()[:kept])
    for read in (saved, recipe_in):
        with pytest.raises(BadInput, match=rf"out holds {file}, which cannot be read \("):
            read(file)
    save({"other": 1}, file)
    with pytest.raises(BadInput, match="it holds no recipe"):
        saved(file)


@pytest.mark.parametrize("content", ["", "[]", '{"about": {}, "rows": [{}]}'])
def test_N06_broken_notes_of_collected_texts_are_named(content: str, tmp_path: Path):
    (tmp_path / "rows.json").write_text(content)
    with pytest.raises(ValueError, match=r"rows\.json cannot be read"):
        Store(tmp_path, {}, rows=1, length=4, hidden=2)


def test_N08_two_writers_of_one_state_use_names_of_their_own(tmp_path: Path, monkeypatch):
    asides: list[Path] = []
    monkeypatch.setattr(torch, "save", lambda state, aside: (asides.append(aside), aside.touch()))
    for _ in range(2):
        save(STATE, tmp_path / "checkpoint.pt")
    assert len({*asides, tmp_path / "checkpoint.pt"}) == 3
