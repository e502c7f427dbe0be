"""style=qwen_mtp: a Qwen-style MTP head, for Qwen and Llama targets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments.config.checks import BadInput
from experiments.training.drafters.frozen import FrozenTarget
from experiments.training.drafters.head import SidecarHead
from experiments.training.drafters.recipe import DrafterRecipe
from experiments.training.drafters.sidecar import WEIGHTS, sidecar_config, write_config, write_head
from experiments.training.drafters.store import Store
from mtp.targets.decoder import DecoderTarget
from mtp.targets.layers.blocks import Norm
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.qwen.config import MODEL_TYPES, QwenConfig

SCALE_ROWS = 8  # texts that say how large the target's stream is


class QwenStyle:
    layer_types: tuple[str, ...] = ()  # whose keys and values it reads

    def __init__(self, checkpoint: Checkpoint, recipe: DrafterRecipe) -> None:
        kind = checkpoint.config.get("model_type")
        if kind not in MODEL_TYPES:
            raise BadInput(
                f"style is qwen_mtp, but the target's model_type is {kind!r}, expected one of "
                f"{', '.join(sorted(MODEL_TYPES))}"
            )
        self.checkpoint, self.recipe = checkpoint, recipe
        self.config = QwenConfig.read(checkpoint.config)
        if self.config.experts is not None:
            raise BadInput(
                f"style is qwen_mtp, but the target's model_type is {kind!r}, whose heads have "
                "experts: they are not trained here"
            )

    def start(self, target: DecoderTarget, frozen: FrozenTarget, store: Store) -> SidecarHead:
        head = SidecarHead(self.config, self.recipe.length)
        head.begin_as(self.checkpoint, self.config, *scales(target, store))
        return head

    def write(self, head: SidecarHead, frozen: FrozenTarget, folder: Path) -> None:
        ids = frozen.draft_vocab.tolist() if len(frozen.draft_vocab) < self.config.vocab else None
        write_config(sidecar_config(self.checkpoint, ids), folder)
        write_head(head, folder / WEIGHTS)

    def keep(self, head: Any, folder: Path, step: int) -> None:
        write_head(head, folder / "heads" / f"{step:06}.safetensors")


@torch.inference_mode()
def scales(target: DecoderTarget, store: Store) -> tuple[float, float]:
    """RMS of the target's hidden rows after and before its last norm."""
    watch = target.norm = Watched(target.norm)
    hidden = []
    for ids in store.tokens[store.chosen(held_out=False)[:SCALE_ROWS]]:
        target.clear(0)
        hidden.append(target.prefill(0, ids, 0)[1])
    target.norm = watch.norm
    return _rms(torch.cat(hidden)), _rms(torch.cat(watch.seen))


class Watched(Norm):
    """A norm that keeps what it is given."""

    def __init__(self, norm: Norm) -> None:
        self.norm, self.weight, self.eps = norm, norm.weight, norm.eps
        self.seen: list[Tensor] = []

    def __call__(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        return self.norm(x)


def _rms(rows: Tensor) -> float:
    """Median over rows: a few first positions are far larger."""
    return float(rows.float().square().mean(-1).sqrt().median())
