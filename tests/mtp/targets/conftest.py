"""A checkpoint, and a copy of it to change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.checkpoints import write_qwen3_5


@pytest.fixture(scope="package")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_qwen3_5(tmp_path_factory.mktemp("original"))


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "copy"))
