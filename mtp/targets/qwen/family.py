"""The Qwen text models and Llama, as a `Target`.

Dense models, and hybrids with gated-delta layers and experts.
"""

from __future__ import annotations

from typing import Any

from mtp.targets.decoder import DecoderTarget
from mtp.targets.layers.attention import Attention, KvCache
from mtp.targets.layers.blocks import Block, Mixer, Mlp, Norm, prefixed
from mtp.targets.layers.experts import Experts
from mtp.targets.layers.rope import Rope, frequencies
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.loading.config import FULL, LINEAR
from mtp.targets.loading.tied import embedding_and_head, may_lack
from mtp.targets.loading.weights import EMBEDDING, HEAD, Shapes, Weights
from mtp.targets.qwen.config import QwenConfig
from mtp.targets.qwen.gated_delta import GatedDelta, LinearState
from triton_kernels.product import Matrix


class QwenTarget(DecoderTarget):
    @staticmethod
    def weights(checkpoint: Checkpoint, config: QwenConfig, **options: Any) -> Weights:
        optional = may_lack(checkpoint, config.tied)
        shapes = model_shapes(config, fused=not checkpoint.holds("model.layers.0.mlp.experts.0."))
        return checkpoint.read(
            shapes, prefixes=("model.", "lm_head."), optional=optional, **options
        )

    def build(self, config: QwenConfig, w: Weights) -> None:
        self.embedding, head = embedding_and_head(w, config.tied)
        self.head = Matrix(head)
        self.ropes[FULL] = Rope(
            frequencies(config.rope), config.head_size, self.limits.context, self.device
        )
        linear_layers = config.layer_types.count(LINEAR)
        self.state = LinearState(config, linear_layers, self.slots, self.rows, self.device)
        self.states = [self.state] if linear_layers else []
        blocks: list[Block] = []
        for i, kind in enumerate(config.layer_types):
            here = w.under(f"model.layers.{i}.")
            mixer: Mixer
            if kind == FULL:
                self.caches.append(
                    KvCache(
                        config.attention, self.slots, self.limits.context, self.dtype, self.device
                    )
                )
                mixer = Attention(here.under("self_attn."), config.attention, self.caches[-1])
            else:
                mixer = GatedDelta(
                    here.under("linear_attn."), config, self.state, len(blocks) - len(self.caches)
                )
            blocks.append(block(here, config, mixer))
        self.blocks = blocks
        self.norm = Norm(w.tensor("model.norm.weight"), config.eps, config.dialect.norm_offset)


def block(w: Weights, config: QwenConfig, mixer: Mixer) -> Block:
    mlp = (
        Mlp(w.under("mlp.")) if config.experts is None else Experts(w.under("mlp."), config.experts)
    )
    return Block(w, mixer, mlp, config.eps, config.dialect.norm_offset)


def block_shapes(config: QwenConfig, layer_type: str, fused: bool = True) -> Shapes:
    """Every tensor of a layer, by name. fused: how a file holds experts, see `Experts.shapes`."""
    if config.experts is None:
        mlp = Mlp.shapes(config.hidden, config.intermediate)
    else:
        mlp = Experts.shapes(config.hidden, config.experts, fused)
    shapes = Block.shapes(config.hidden) | prefixed("mlp.", mlp)
    if layer_type == FULL:
        return shapes | prefixed("self_attn.", Attention.shapes(config.attention))
    return shapes | prefixed("linear_attn.", GatedDelta.shapes(config))


def model_shapes(config: QwenConfig, fused: bool = True) -> Shapes:
    """Every tensor of the target, by name."""
    shapes: Shapes = {
        EMBEDDING: (config.vocab, config.hidden),
        HEAD: (config.vocab, config.hidden),
        "model.norm.weight": (config.hidden,),
    }
    for i, kind in enumerate(config.layer_types):
        shapes |= prefixed(f"model.layers.{i}.", block_shapes(config, kind, fused))
    return shapes
