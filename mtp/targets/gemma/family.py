"""The Gemma 3 and Gemma 4 text models, as a `Target`.

Sliding layers keep keys and values of the whole context and mask: so a rejected row never takes the
place of one that the sliding window still needs.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn.functional import embedding

from mtp.targets.decoder import DecoderTarget
from mtp.targets.gemma.config import GemmaConfig
from mtp.targets.gemma.layers import OWN, GemmaBlock, PerLayerInputs, rounded
from mtp.targets.layers.attention import KvCache
from mtp.targets.layers.blocks import Norm, Place, prefixed
from mtp.targets.layers.rope import Rope, frequencies
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.loading.tied import embedding_and_head, may_lack
from mtp.targets.loading.weights import EMBEDDING, HEAD, Shapes, Weights
from triton_kernels.product import Matrix


class GemmaTarget(DecoderTarget):
    @staticmethod
    def weights(checkpoint: Checkpoint, config: GemmaConfig, **options: Any) -> Weights:
        shared = [
            f"model.layers.{i}.self_attn.{name}"
            for i, form in enumerate(config.forms)
            if form.shared
            for name in OWN
        ]
        optional = shared + may_lack(checkpoint, config.tied)
        return checkpoint.read(
            model_shapes(config), prefixes=("model.", "lm_head."), optional=optional, **options
        )

    def build(self, config: GemmaConfig, w: Weights) -> None:
        self.embedding, head = embedding_and_head(w, config.tied)
        self.head = Matrix(head)
        self.scale, self.softcap = rounded(config.hidden**0.5, self.dtype), config.softcap
        self.per_layer = (
            PerLayerInputs(w.under("model."), config, self.dtype) if config.per_layer else None
        )
        last: dict[str, KvCache] = {}  # by layer type, of the layers so far that have their own
        blocks: list[GemmaBlock] = []
        for i, form in enumerate(config.forms):
            if not form.shared:
                last[form.layer_type] = KvCache(
                    form, self.slots, self.limits.context, self.dtype, self.device
                )
                self.caches.append(last[form.layer_type])
            if form.layer_type not in self.ropes:
                turns = frequencies(config.ropes[form.layer_type])
                self.ropes[form.layer_type] = Rope(
                    turns, form.size, self.limits.context, self.device
                )
            blocks.append(
                GemmaBlock(w.under(f"model.layers.{i}."), config, i, last[form.layer_type])
            )
        self.blocks = blocks
        self.norm = Norm(w.tensor("model.norm.weight"), config.eps, config.norm_offset)

    def embed(self, ids: Tensor) -> Tensor:
        return embedding(ids, self.embedding) * self.scale

    def enter(self, ids: Tensor, place: Place) -> tuple[Tensor, Place]:
        x = self.embed(ids)
        return x, place if self.per_layer is None else place._replace(inputs=self.per_layer(ids, x))

    def logits(self, hidden: Tensor) -> Tensor:
        """fp32 where they are capped: a cap brings neighbours closer than bf16 can tell apart."""
        logits = super().logits(hidden)
        return (
            logits
            if self.softcap is None
            else (logits.float() / self.softcap).tanh_() * self.softcap
        )

    def linear_weights(self) -> list[Matrix]:
        return super().linear_weights() + (
            [] if self.per_layer is None else [self.per_layer.project]
        )


def model_shapes(config: GemmaConfig) -> Shapes:
    """Every tensor of the target, by name."""
    shapes: Shapes = {
        EMBEDDING: (config.vocab, config.hidden),
        HEAD: (config.vocab, config.hidden),
        "model.norm.weight": (config.hidden,),
    }
    if config.per_layer:
        shapes |= prefixed("model.", PerLayerInputs.shapes(config))
    for i in range(len(config.forms)):
        shapes |= prefixed(f"model.layers.{i}.", GemmaBlock.shapes(config, i))
    return shapes
