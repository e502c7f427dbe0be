"""The folder that a trained head is written to: `drafter.path=DIR` loads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from experiments.io import write_whole
from mtp.drafters.sidecar import about_target
from mtp.files import whole
from mtp.targets.loading.checkpoint import Checkpoint

WEIGHTS = "model.safetensors"
LEFT_OUT = (
    "text_config",
    "vision_config",
    "audio_config",
    "num_mtp_layers",
    "transformers_version",
)


def sidecar_config(target: Checkpoint, draft_vocab: list[int] | None) -> dict[str, Any]:
    """The target's text settings, and what a sidecar says besides."""
    own = {name: value for name, value in target.config.items() if name not in LEFT_OUT}
    own |= {"mtp_num_hidden_layers": 1, "mtp_target": about_target(target), "dtype": "bfloat16"}
    return own | ({} if draft_vocab is None else {"draft_vocab": draft_vocab})


def write_config(config: dict[str, Any], folder: Path) -> None:
    """The draft vocabulary on one line."""
    ids = config.get("draft_vocab")
    text = json.dumps(config | ({} if ids is None else {"draft_vocab": "@"}), indent=2)
    write_whole(folder / "config.json", (text.replace('"@"', json.dumps(ids)) + "\n").encode())


def write_head(head: nn.Module, file: Path) -> None:
    """In bf16, aside, then renamed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"mtp.{name}": tensor.detach().to(torch.bfloat16).contiguous()
        for name, tensor in head.state_dict().items()
    }
    with whole(file) as aside:
        save_file(tensors, aside, metadata={"format": "pt"})
