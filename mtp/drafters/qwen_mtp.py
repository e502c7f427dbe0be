"""The Qwen family's own MTP head: one attention layer that reads the target's hidden rows and chains on its own."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from mtp.drafters.chain import best_of, chain_after
from mtp.drafters.protocol import Drafted
from mtp.drafters.sidecar import draft_vocab_of
from mtp.execution.buckets import Buckets
from mtp.execution.protocol import MAX_DEPTH
from mtp.targets.attention import Attention, KvCache
from mtp.targets.checkpoint import Checkpoint
from mtp.targets.config import FULL
from mtp.targets.layers import Norm, PromptRows, WindowRows, prefixed
from mtp.targets.protocol import Target, TextTarget
from mtp.targets.qwen import block, block_shapes
from mtp.targets.qwen_config import QwenConfig
from mtp.targets.rope import Rope, Rotation, frequencies
from mtp.targets.weights import Shapes
from triton_kernels import Packed


class QwenMtp:
    """See `Drafter`. Entry i of a slot pairs the target's hidden row i (after its last norm) with token i + 1.

    Embedding and head are the target's; of the head only the rows of a sidecar's `draft_vocab`, where it has one: then drafts are
    of these tokens, and confidence is over them. buckets: the chain's row count is rounded up as a window's is, so that drafts do not
    depend on company either. context: its own limit, None = the target's. Refuses, in one line, a checkpoint without these
    tensors, with more of them, or with other shapes.
    """

    max_depth = MAX_DEPTH

    def __init__(self, checkpoint: Checkpoint, target: Target, *, buckets: Buckets, context: int | None = None) -> None:
        config = QwenConfig.read(checkpoint.config)
        if config.mtp_layers not in (None, 1):
            raise ValueError(f"checkpoint {checkpoint.path}: {config.mtp_layers} MTP layers, supported: 1")
        self.config, self.buckets, self._checkpoint = config, buckets, checkpoint
        self._vocab = draft_vocab_of(checkpoint)
        self.context = target.limits.context if context is None else context
        self.bind(target)

    @torch.inference_mode()
    def bind(self, target: Target) -> None:
        """Its weights and cache go where the target's are; all earlier state is gone."""
        config = self.config
        if not isinstance(target, TextTarget) or (target.hidden_size, target.limits.vocab) != (config.hidden, config.vocab):
            raise ValueError(f"this MTP head needs the target it was trained with (hidden size {config.hidden}, {config.vocab} tokens)")
        if not 1 <= self.context <= target.limits.context:
            raise ValueError(f"drafter context is {self.context}, expected 1 to {target.limits.context} (the target's)")
        self.target = target
        self.draft_vocab = None if self._vocab is None else torch.tensor(self._vocab, dtype=torch.int32, device=target.device)
        self.head = None if self.draft_vocab is None else target.head[self.draft_vocab.long()]  # [draft vocab, hidden]
        shapes = mtp_shapes(config, fused=self._checkpoint.holds("mtp.layers.0.mlp.experts.gate_up_proj"))
        w = self._checkpoint.read(shapes, prefixes=("mtp.",), dtype=target.dtype, device=target.device).under("mtp.")
        eps, offset = config.eps, config.dialect.norm_offset
        self.combine = w.tensor("fc.weight")  # [hidden, 2 * hidden]
        self.embedding_norm = Norm(w.tensor("pre_fc_norm_embedding.weight"), eps, offset)
        self.hidden_norm = Norm(w.tensor("pre_fc_norm_hidden.weight"), eps, offset)
        self.norm = Norm(w.tensor("norm.weight"), eps, offset)
        # chained entries run past the last position that is asked for
        self.cache = KvCache(config.attention, target.slots, self.context + MAX_DEPTH, target.dtype, target.device)
        self.attention = Attention(w.under("layers.0.self_attn."), config.attention, self.cache)
        self.block = block(w.under("layers.0."), config, self.attention)
        self.rope = Rope(frequencies(config.rope), config.head_size, target.limits.context + MAX_DEPTH, target.device)

    @torch.inference_mode()
    def prefill(self, slot: int, ids: Tensor, hidden: Tensor, start: int) -> None:
        count = min(len(hidden), self.context - start)
        if count < 1:
            return
        place = PromptRows(slot, start, self._rotations(torch.arange(start, start + count, device=ids.device)))
        x = self._enter(ids[1 : 1 + count], hidden[:count])
        self.attention.store(self.block.before_mixer(x).to(x.dtype), place)

    @torch.inference_mode()
    def advance(self, window: Packed, kept: Tensor, picks: Tensor, hidden: Tensor, depth: int) -> Drafted:
        if not 0 <= depth <= MAX_DEPTH:
            raise ValueError(f"depth is {depth}, expected 0 to {MAX_DEPTH}")
        fed = WindowRows(window.positions, window.starts, self._rotations(window.positions), kept)
        out = self._run(picks, hidden, fed)  # [bucket, hidden]
        chain = chain_after(window, kept, self.buckets)
        out, positions = out[chain.last], window.positions[chain.last]
        drafts = torch.zeros(len(out), depth, dtype=torch.int32, device=kept.device)
        confidence = torch.zeros(len(out), depth, device=kept.device)
        for step in range(depth):
            if step:
                positions = positions + 1
                out = self._run(drafts[:, step - 1], out, WindowRows(positions, chain.starts, self._rotations(positions)))
            drafts[:, step], confidence[:, step] = self._pick(out)
        return Drafted(drafts[chain.row], confidence[chain.row], torch.full_like(kept, depth))

    @torch.inference_mode()
    def clear(self, slot: int) -> None:
        self.cache.clear(slot)

    def _rotations(self, positions: Tensor) -> dict[str, Rotation]:
        return {FULL: self.rope.at(positions)}

    def _enter(self, ids: Tensor, hidden: Tensor) -> Tensor:
        tokens = self.embedding_norm(self.target.embed(ids))
        return linear(torch.cat([tokens, self.hidden_norm(hidden)], 1).to(self.combine.dtype), self.combine)

    def _run(self, ids: Tensor, hidden: Tensor, place: WindowRows) -> Tensor:
        """[rows, hidden] after its last norm: what its logits are read from, and what it chains on."""
        x = self._enter(ids, hidden)
        return self.norm(self.block(x, place)).to(x.dtype)

    def _pick(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        if self.head is None or self.draft_vocab is None:
            return best_of(self.target.logits(hidden), self.target.limits.vocab)
        ids, chance = best_of(linear(hidden, self.head), len(self.head))
        return self.draft_vocab[ids.long()], chance


def mtp_shapes(config: QwenConfig, fused: bool = True) -> Shapes:
    """Every tensor of the head, by name."""
    own: Shapes = {
        "fc.weight": (config.hidden, 2 * config.hidden),
        "pre_fc_norm_embedding.weight": (config.hidden,),
        "pre_fc_norm_hidden.weight": (config.hidden,),
        "norm.weight": (config.hidden,),
    }
    return prefixed("mtp.", own | prefixed("layers.0.", block_shapes(config, FULL, fused)))
