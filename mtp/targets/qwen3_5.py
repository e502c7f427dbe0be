"""The Qwen 3.5 text family (gated-delta and full-attention layers), and its dense relative Qwen 3, as a `Target`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from mtp.execution.protocol import Limits
from mtp.targets.checkpoint import Checkpoint
from mtp.targets.config import FULL, LINEAR, TextConfig
from mtp.targets.gated_delta import GatedDelta, LinearState
from mtp.targets.layers import Attention, Block, Norm, Place, PromptRows, Rope, Shapes, WindowRows, prefixed, under
from triton_kernels import Packed

DTYPES = (torch.float32, torch.bfloat16)


class Qwen35Target:
    """A checkpoint with `slots` places of `context` tokens. rows: most rows (padding included) of a window.

    Refuses, in one line, a checkpoint that is not of this family or whose tensors are missing, unknown or mis-shaped.
    """

    def __init__(
        self, checkpoint: Checkpoint, *, slots: int, context: int, dtype: torch.dtype, device: torch.device | str = "cpu", rows: int = 8
    ) -> None:
        config = checkpoint.text_config()
        if dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype}, expected {' or '.join(map(str, DTYPES))}")
        config.check_context(context)
        if slots < 1 or rows < 1:
            raise ValueError(f"slots is {slots} and rows {rows}, expected at least 1")
        device = torch.device(device)
        self.config, self.slots, self.rows, self.dtype, self.device = config, slots, rows, dtype, device
        self.limits = Limits(vocab=config.vocab, context=context, stop_ids=checkpoint.stop_ids)
        self.hidden_size, self.logit_width = config.hidden, config.vocab

        stored = checkpoint.read(model_shapes(config), prefixes=("model.", "lm_head."), optional=["lm_head.weight"] if config.tied else [])
        w = {name: tensor.to(device, dtype) for name, tensor in stored.items()}
        self.embedding = w["model.embed_tokens.weight"]  # [vocab, hidden]
        self.head = self.embedding if config.tied else w["lm_head.weight"]  # [vocab, hidden]
        self.rope = Rope(config, context, device)
        self.state = LinearState(config, config.layer_types.count(LINEAR), slots, rows, device)
        self.blocks: list[Block] = []
        self.attention: list[Attention] = []
        for i, kind in enumerate(config.layer_types):
            here = under(w, f"model.layers.{i}.")
            if kind == FULL:
                self.attention.append(Attention(under(here, "self_attn."), config, slots, context))
                self.blocks.append(Block(here, config, self.attention[-1]))
            else:
                # its gates' parameters are small and sensitive: as stored, not rounded to dtype
                exact = {name: stored[f"model.layers.{i}.linear_attn.{name}"].to(device) for name in ("A_log", "dt_bias")}
                mixer = GatedDelta(under(here, "linear_attn.") | exact, config, self.state, len(self.blocks) - len(self.attention))
                self.blocks.append(Block(here, config, mixer))
        self.norm = Norm(w["model.norm.weight"], config.eps, config.family.norm_offset)

    @torch.inference_mode()
    def prefill(self, slot: int, ids: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """See `Target.prefill`. A slot's chunks come in order, the first one at start 0 after `clear`."""
        stop = start + len(ids)
        if not (0 <= slot < self.slots and 0 <= start < stop <= self.limits.context):
            raise ValueError(f"tokens {start}..{stop - 1} of slot {slot} do not fit {self.slots} slots of {self.limits.context}")
        rotation = self.rope.at(torch.arange(start, stop, device=self.device))
        hidden = self._forward(ids, PromptRows(slot, start, rotation))
        return linear(hidden[-1:], self.head), hidden

    @torch.inference_mode()
    def verify(self, window: Packed) -> tuple[Tensor, Tensor]:
        if len(window.ids) > self.rows:
            raise ValueError(f"a window of {len(window.ids)} rows, expected at most {self.rows} (rows)")
        hidden = self._forward(window.ids, WindowRows(window.positions, window.starts, self.rope.at(window.positions)))
        return linear(hidden, self.head), hidden

    @torch.inference_mode()
    def commit(self, window: Packed, kept: Tensor) -> None:
        if LINEAR in self.config.layer_types:
            self.state.commit(window.starts, kept)

    def linear_weights(self) -> list[Tensor]:
        return [self.head, *(matrix for block in self.blocks for matrix in block.matrices())]

    @torch.inference_mode()
    def clear(self, slot: int) -> None:
        self.state.clear(slot)
        for layer in self.attention:
            layer.clear(slot)

    def kv(self, layer_type: str) -> tuple[Tensor, Tensor]:
        if layer_type != FULL or not self.attention:
            raise ValueError(f"layer type is {layer_type!r}, expected {FULL!r} (the type that has keys and values)")
        layer, context = self.attention[-1], self.limits.context
        return layer.keys[:, :, :context], layer.values[:, :, :context]

    def _forward(self, ids: Tensor, place: Place) -> Tensor:
        x = embedding(ids, self.embedding)
        for block in self.blocks:
            x = block(x, place)
        return self.norm(x).to(self.dtype)


def model_shapes(config: TextConfig) -> Shapes:
    """Every tensor of the target, by name."""
    shapes: Shapes = {
        "model.embed_tokens.weight": (config.vocab, config.hidden),
        "model.norm.weight": (config.hidden,),
        "lm_head.weight": (config.vocab, config.hidden),
    }
    for i, kind in enumerate(config.layer_types):
        if kind == FULL:
            layer = Block.shapes(config, "self_attn.", Attention.shapes(config))
        else:
            layer = Block.shapes(config, "linear_attn.", GatedDelta.shapes(config))
        shapes |= prefixed(f"model.layers.{i}.", layer)
    return shapes
