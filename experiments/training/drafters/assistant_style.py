"""style=assistant: a Gemma 4 assistant, for Gemma targets. Needs the extra `train`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import Gemma4AssistantConfig, Gemma4TextConfig

from experiments.config.checks import BadInput
from experiments.training.assistant import Assistant
from experiments.training.drafters.frozen import FrozenTarget
from experiments.training.drafters.recipe import DrafterRecipe
from experiments.training.drafters.store import Store
from experiments.training.gemma_folder import write_assistant
from mtp.targets.decoder import DecoderTarget
from mtp.targets.families import text_config
from mtp.targets.gemma.config import GemmaConfig
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.loading.config import FULL, SLIDING

LAYERS = (SLIDING, FULL)
SAME = (
    "vocab_size", "num_attention_heads", "attention_k_eq_v", "rope_parameters", "sliding_window",
    "max_position_embeddings", "rms_norm_eps", "hidden_activation", "intermediate_size",
    "eos_token_id", "bos_token_id", "pad_token_id",
)  # fmt: skip


class AssistantStyle:
    layer_types = LAYERS

    def __init__(self, checkpoint: Checkpoint, recipe: DrafterRecipe) -> None:
        self.checkpoint, self.recipe = checkpoint, recipe
        config = text_config(checkpoint)
        if not isinstance(config, GemmaConfig) or not set(LAYERS) <= set(config.layer_types):
            kind = checkpoint.config.get("model_type")
            raise BadInput(
                f"style is assistant, but the target's model_type is {kind!r}, expected a Gemma "
                "with sliding and full layers"
            )
        if recipe.draft_vocab is not None:
            raise BadInput(
                f"draft_vocab is {recipe.draft_vocab}, but an assistant drafts any token, by "
                "clusters: expected null"
            )
        if recipe.clusters and config.vocab % recipe.clusters:
            raise BadInput(
                f"clusters is {recipe.clusters}, expected 0 or a divisor of the vocabulary "
                f"({config.vocab})"
            )
        self.config = config

    def start(self, target: DecoderTarget, frozen: FrozenTarget, store: Store) -> Assistant:
        config = assistant_config(
            self.checkpoint.config, self.config, self.recipe.clusters, self.recipe.top_clusters
        )
        shapes = self.checkpoint.shapes("model.")
        stored = self.checkpoint.read(
            shapes, prefixes=(), dtype=torch.float32, device=torch.device("cpu")
        )
        last = {kind: f"model.layers.{i}." for i, kind in enumerate(self.config.layer_types)}
        wanted = ("model.embed_tokens.", "model.norm.", *last.values())
        tensors = {name: stored.tensor(name) for name in shapes if name.startswith(wanted)}
        return Assistant.start(config, tensors, self.config.layer_types)

    def write(self, assistant: Assistant, frozen: FrozenTarget, folder: Path) -> None:
        write_assistant(assistant, folder)

    def keep(self, assistant: Any, folder: Path, step: int) -> None:
        write_assistant(assistant, folder / "heads" / f"{step:06}")


def assistant_config(
    stored: dict[str, Any], target: GemmaConfig, clusters: int, top_clusters: int
) -> Gemma4AssistantConfig:
    """As wide as its target, one layer of each type, attention as the target's, whose keys it
    reads.

    stored: the target's config.json
    """
    own: dict[str, Any] = {key: stored[key] for key in SAME if stored.get(key) is not None}
    sliding, full = target.kv_forms[SLIDING], target.kv_forms[FULL]
    own |= {
        "head_dim": sliding.size,
        "global_head_dim": full.size,
        "num_key_value_heads": sliding.kv_heads,
    }
    # transformers looks only beside attention_k_eq_v; these layers have no keys of their own
    if full.kv_heads != sliding.kv_heads:
        own |= {"num_global_key_value_heads": full.kv_heads, "attention_k_eq_v": True}
    text = Gemma4TextConfig(
        **own,
        hidden_size=target.hidden,
        num_hidden_layers=len(LAYERS),
        num_kv_shared_layers=len(LAYERS),
        layer_types=list(LAYERS),
        hidden_size_per_layer_input=0,
        vocab_size_per_layer_input=0,
    )
    return Gemma4AssistantConfig(
        text_config=text,
        backbone_hidden_size=target.hidden,
        use_ordered_embeddings=clusters > 0,
        num_centroids=max(1, clusters),
        centroid_intermediate_top_k=top_clusters,
    )
