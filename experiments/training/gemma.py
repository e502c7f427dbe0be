"""A trainable Gemma 4 text model: transformers' own class, with quicker norms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, Gemma4AssistantConfig, Gemma4ForCausalLM, Gemma4TextConfig

from experiments.config.checks import BadInput
from experiments.training.gemma_norm import quicken
from experiments.training.trainable import TargetRows, TrainableTarget


@dataclass(frozen=True)
class GemmaShape:
    """Sizes of target and assistant; their head sizes, key heads and windows are the same."""

    vocab: int = 2048
    hidden: int = 192
    layers: int = 6
    interval: int = 3  # every interval-th layer is full attention
    shared: int = 3  # last layers that read an earlier layer's keys and values
    intermediate: int = 448
    heads: int = 3
    kv_heads: int = 1
    head_size: int = 64  # of sliding layers
    full_head_size: int = 128
    window: int = 64
    per_layer: int = 16
    softcap: float = 30.0
    context: int = 1024
    assistant_hidden: int = 192
    assistant_layers: int = 2  # the last one is full attention
    assistant_intermediate: int = 384
    clusters: int = 64  # of the assistant's vocabulary, 0: its head is not ordered
    top_clusters: int = 8

    def __post_init__(self) -> None:
        """Raises BadInput."""
        if self.layers % self.interval:
            raise BadInput(
                f"shape.layers is {self.layers}, "
                f"expected a multiple of shape.interval ({self.interval})"
            )
        if self.shared > self.layers - self.interval:
            most = self.layers - self.interval
            raise BadInput(
                f"shape.shared is {self.shared}, "
                f"expected at most shape.layers - shape.interval ({most})"
            )
        if self.heads % self.kv_heads:
            raise BadInput(
                f"shape.kv_heads is {self.kv_heads}, "
                f"expected a divisor of shape.heads ({self.heads})"
            )
        if self.clusters and self.vocab % self.clusters:
            raise BadInput(
                f"shape.clusters is {self.clusters}, "
                f"expected a divisor of shape.vocab ({self.vocab})"
            )
        if self.clusters and self.top_clusters > self.clusters:
            raise BadInput(
                f"shape.top_clusters is {self.top_clusters}, "
                f"expected at most shape.clusters ({self.clusters})"
            )

    def _config(self, hidden: int, layers: int, interval: int, **others: Any) -> Gemma4TextConfig:
        sizes: dict[str, Any] = {"global_head_dim": self.full_head_size, **others}
        return Gemma4TextConfig(
            vocab_size=self.vocab,
            hidden_size=hidden,
            num_hidden_layers=layers,
            layer_types=[
                "full_attention" if (i + 1) % interval == 0 else "sliding_attention"
                for i in range(layers)
            ],
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_size,
            sliding_window=self.window,
            max_position_embeddings=self.context,
            pad_token_id=None,  # its row would not be trained
            eos_token_id=[0],
            bos_token_id=None,
            **sizes,
        )

    def target_config(self) -> Gemma4TextConfig:
        return self._config(
            self.hidden,
            self.layers,
            self.interval,
            intermediate_size=self.intermediate,
            num_kv_shared_layers=self.shared,
            hidden_size_per_layer_input=self.per_layer,
            vocab_size_per_layer_input=self.vocab,
            final_logit_softcapping=self.softcap,
        )

    def assistant_config(self) -> Gemma4AssistantConfig:
        layers = self.assistant_layers
        text = self._config(
            self.assistant_hidden,
            layers,
            layers,
            intermediate_size=self.assistant_intermediate,
            num_kv_shared_layers=layers,
            hidden_size_per_layer_input=0,
            vocab_size_per_layer_input=0,
        )
        return Gemma4AssistantConfig(
            text_config=text,
            backbone_hidden_size=self.hidden,
            use_ordered_embeddings=self.clusters > 0,
            num_centroids=max(1, self.clusters),
            centroid_intermediate_top_k=self.top_clusters,
        )


class GemmaModel(TrainableTarget):
    def __init__(self, shape: GemmaShape) -> None:
        super().__init__()
        self.shape = shape
        self.net = Gemma4ForCausalLM(shape.target_config())
        quicken(self.net)

    def state(self) -> DynamicCache:
        return DynamicCache(config=self.net.config)

    def forward(self, ids: Tensor, state: DynamicCache | None = None) -> Tensor:
        out: Tensor = self.net.model(
            ids, cache=state, use_cache=state is not None
        ).last_hidden_state
        return out

    def read(self, ids: Tensor) -> TargetRows:
        out = self.net.model(ids, use_cache=False, return_shared_kv_states=True)
        return TargetRows(out.last_hidden_state, dict(out.shared_kv_states))

    def logits(self, hidden: Tensor) -> Tensor:
        cap = self.shape.softcap
        return torch.tanh(self.net.lm_head(hidden) / cap) * cap

    def embed(self, ids: Tensor) -> Tensor:
        out: Tensor = self.net.model.embed_tokens(ids)
        return out
