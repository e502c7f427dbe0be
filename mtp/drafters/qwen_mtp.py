"""The Qwen family's own MTP head: one attention layer that reads the target's hidden rows and chains on its own."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, pad

from mtp.drafters.protocol import Drafted
from mtp.execution.buckets import Buckets
from mtp.execution.protocol import MAX_DEPTH
from mtp.targets.checkpoint import Checkpoint
from mtp.targets.config import TextConfig
from mtp.targets.layers import Attention, Block, Norm, PromptRows, Rope, Shapes, WindowRows, prefixed, under
from mtp.targets.protocol import Target
from mtp.targets.qwen3_5 import Qwen35Target
from triton_kernels import Packed, row_argmax


class QwenMtp:
    """See `Drafter`. Entry i of a slot pairs the target's hidden row i (after its last norm) with token i + 1.

    Embedding and head are the target's. buckets: the chain's row count is rounded up as a window's is, so that drafts do not
    depend on company either. context: its own limit, None = the target's. Refuses, in one line, a checkpoint without these
    tensors, with more of them, or with other shapes.
    """

    max_depth = MAX_DEPTH

    def __init__(self, checkpoint: Checkpoint, target: Target, *, buckets: Buckets, context: int | None = None) -> None:
        config = TextConfig.read(checkpoint.config)
        if config.mtp_layers not in (None, 1):
            raise ValueError(f"checkpoint {checkpoint.path}: {config.mtp_layers} MTP layers, supported: 1")
        self._stored = checkpoint.read(mtp_shapes(config), prefixes=("mtp.",))
        self.config, self.buckets = config, buckets
        self.context = target.limits.context if context is None else context
        self.bind(target)

    @torch.inference_mode()
    def bind(self, target: Target) -> None:
        """Its weights and cache go where the target's are; all earlier state is gone."""
        if not isinstance(target, Qwen35Target) or target.hidden_size != self.config.hidden:
            raise ValueError(f"this MTP head needs the target it was trained with (hidden size {self.config.hidden})")
        if not 1 <= self.context <= target.limits.context:
            raise ValueError(f"drafter context is {self.context}, expected 1 to {target.limits.context} (the target's)")
        self.target, config = target, self.config
        w = {name.removeprefix("mtp."): tensor.to(target.device, target.dtype) for name, tensor in self._stored.items()}
        layer, offset = under(w, "layers.0."), config.family.norm_offset
        self.combine = w["fc.weight"]  # [hidden, 2 * hidden]
        self.embedding_norm = Norm(w["pre_fc_norm_embedding.weight"], config.eps, offset)
        self.hidden_norm = Norm(w["pre_fc_norm_hidden.weight"], config.eps, offset)
        self.norm = Norm(w["norm.weight"], config.eps, offset)
        # chained entries run past the last position that is asked for
        self.attention = Attention(under(layer, "self_attn."), config, target.slots, self.context + MAX_DEPTH)
        self.block = Block(layer, config, self.attention)
        self.rope = Rope(config, target.limits.context + MAX_DEPTH, target.device)

    @torch.inference_mode()
    def prefill(self, slot: int, ids: Tensor, hidden: Tensor, start: int) -> None:
        count = min(len(hidden), self.context - start)
        if count < 1:
            return
        place = PromptRows(slot, start, self.rope.at(torch.arange(start, start + count, device=ids.device)))
        x = self._enter(ids[1 : 1 + count], hidden[:count])
        self.attention.store(self.block.before_mixer(x).to(x.dtype), place)

    @torch.inference_mode()
    def advance(self, window: Packed, kept: Tensor, picks: Tensor, hidden: Tensor, depth: int) -> Drafted:
        if not 0 <= depth <= MAX_DEPTH:
            raise ValueError(f"depth is {depth}, expected 0 to {MAX_DEPTH}")
        slots, bucket = len(kept), len(window.ids)
        fed = WindowRows(window.positions, window.starts, self.rope.at(window.positions), kept)
        out = self._run(picks, hidden, fed)  # [bucket, hidden]
        # the chain is a window of its own: one row for each slot that kept something, in slot order
        active = kept > 0
        starts = pad(active.cumsum(0, dtype=torch.int32), (1, 0))
        width = self.buckets.round_up(min(slots, bucket))
        chained = pad(torch.argsort(~active, stable=True), (0, max(0, width - slots)))[:width]
        last = (window.starts[:-1] + kept - 1).clamp(min=0)[chained].clamp(max=bucket - 1)
        out, positions = out[last], window.positions[last]
        drafts = torch.zeros(width, depth, dtype=torch.int32, device=kept.device)
        confidence = torch.zeros(width, depth, device=kept.device)
        for step in range(depth):
            if step:
                positions = positions + 1
                out = self._run(drafts[:, step - 1], out, WindowRows(positions, starts, self.rope.at(positions)))
            drafts[:, step], confidence[:, step] = self._pick(out)
        row = starts[:-1].clamp(max=width - 1)  # of each slot that kept something
        return Drafted(drafts[row], confidence[row], torch.full_like(kept, depth))

    @torch.inference_mode()
    def clear(self, slot: int) -> None:
        self.attention.clear(slot)

    def _enter(self, ids: Tensor, hidden: Tensor) -> Tensor:
        tokens = self.embedding_norm(embedding(ids, self.target.embedding))
        return linear(torch.cat([tokens, self.hidden_norm(hidden)], 1).to(self.combine.dtype), self.combine)

    def _run(self, ids: Tensor, hidden: Tensor, place: WindowRows) -> Tensor:
        """[rows, hidden] after its last norm: what its logits are read from, and what it chains on."""
        x = self._enter(ids, hidden)
        return self.norm(self.block(x, place)).to(x.dtype)

    def _pick(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        vocab = self.target.limits.vocab
        logits = linear(hidden, self.target.head)
        picks = row_argmax(logits, vocab=vocab)
        chance = logits[:, :vocab].float().softmax(-1).gather(1, picks.ids[:, None].long())[:, 0]
        return picks.ids, torch.where(picks.faults, 0.0, chance)


def mtp_shapes(config: TextConfig) -> Shapes:
    """Every tensor of the head, by name."""
    own: Shapes = {
        "fc.weight": (config.hidden, 2 * config.hidden),
        "pre_fc_norm_embedding.weight": (config.hidden,),
        "pre_fc_norm_hidden.weight": (config.hidden,),
        "norm.weight": (config.hidden,),
    }
    return prefixed("mtp.", own | prefixed("layers.0.", Block.shapes(config, "self_attn.", Attention.shapes(config))))
