"""Checkpoints that a test changes: what of them is refused, and how."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mtp.targets import load_target
from mtp.targets.decoder import DecoderTarget
from tests.support.teacher import Teacher


def load(folder: Path, **options: Any) -> DecoderTarget:
    return load_target(folder, **({"slots": 2, "context": 128, "dtype": torch.float32} | options))


def refusal(folder: Path, **options: Any) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        load(folder, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def configure(
    folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]], file: str = "config.json"
) -> None:
    path = folder / file
    path.write_text(json.dumps(change(json.loads(path.read_text()) if path.is_file() else {})))


def renamed(old: str, new: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda tensors: {
        new if name == old else name: tensor for name, tensor in tensors.items()
    }


def some_logits(target: DecoderTarget) -> torch.Tensor:
    return Teacher(target, {0: torch.arange(3, 40)}, 2).prefill(0, 30)[0]


def shard(folder: Path, *, index: bool, doubled: str | None = None) -> None:
    """The same tensors in two files."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    phases = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    if doubled is not None:
        phases = {file: sorted({*part, doubled}) for file, part in phases.items()}
    for file, part in phases.items():
        save_file({name: tensors[name] for name in part}, folder / file)
    if index:
        listed = {"weight_map": {name: file for file, part in phases.items() for name in part}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(listed))
