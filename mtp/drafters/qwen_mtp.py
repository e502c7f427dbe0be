"""The Qwen family's own MTP head, which reads the target's hidden rows and chains on its own.

It is one attention layer, rarely several.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from mtp.buckets import Buckets
from mtp.drafters.chain import best_of, chain_after
from mtp.drafters.mtp_layers import FurtherLayers
from mtp.drafters.protocol import Drafted
from mtp.drafters.sidecar import draft_vocab_of
from mtp.executor import MAX_DEPTH
from mtp.targets.layers.attention import Attention, KvCache
from mtp.targets.layers.blocks import Block, Norm, PromptRows, WindowRows, prefixed
from mtp.targets.layers.rope import Rope, Rotation, frequencies
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.loading.config import FULL
from mtp.targets.loading.weights import Shapes, Weights
from mtp.targets.protocol import Target, TextTarget
from mtp.targets.qwen.config import QwenConfig
from mtp.targets.qwen.family import block, block_shapes
from triton_kernels import Packed
from triton_kernels.product import Matrix

# what is the target's; some files repeat it
SHARED = ("embed_tokens.weight", "lm_head.weight")


class QwenMtp:
    """See `Drafter`. Entry i pairs the target's hidden row i (after its last norm) with token i +
    1.

    Embedding and head are the target's. Where a sidecar has a `draft_vocab`, only these rows of the
    head are used: drafts are of these tokens, and confidence is over them.

    Of several layers (config.json: mtp_num_hidden_layers or num_mtp_layers) layer k makes draft k +
    1, see `FurtherLayers`; projection and norms are shared, as in the Qwen layout. Drafts beyond
    the last layer chain on that layer's own rows, as they do in a head of one layer.

    buckets: the chain's row count is rounded up as a window's is, so that drafts do not depend on
    the other requests in the batch
    context: its own limit, None = the target's

    Raises ValueError, one line, for a checkpoint without these tensors, with more of them, or with
    other shapes.
    """

    max_depth = MAX_DEPTH

    def __init__(
        self,
        checkpoint: Checkpoint,
        target: Target,
        *,
        buckets: Buckets,
        context: int | None = None,
    ) -> None:
        self.config, self.buckets, self._checkpoint = head_config(checkpoint), buckets, checkpoint
        self._vocab = draft_vocab_of(checkpoint)
        self.context = target.limits.context if context is None else context
        self.bind(target)

    @torch.inference_mode()
    def bind(self, target: Target) -> None:
        """Weights and cache go where the target's are; all earlier state is gone. See `Drafter`."""
        config = self.config
        if not isinstance(target, TextTarget) or (target.hidden_size, target.limits.vocab) != (
            config.hidden,
            config.vocab,
        ):
            raise ValueError(
                "this MTP head needs the target it was trained with "
                f"(hidden size {config.hidden}, {config.vocab} tokens)"
            )
        if not 1 <= self.context <= target.limits.context:
            raise ValueError(
                f"drafter context is {self.context}, "
                f"expected 1 to {target.limits.context} (the target's)"
            )
        self.target = target
        self.draft_vocab = (
            None
            if self._vocab is None
            else torch.tensor(self._vocab, dtype=torch.int32, device=target.device)
        )
        # [draft vocab, hidden]
        self.head = None
        if self.draft_vocab is not None:
            self.head = Matrix(target.head.weight[self.draft_vocab.long()])
        shapes = mtp_shapes(config, fused=not self._checkpoint.holds("mtp.layers.0.mlp.experts.0."))
        repeated = {f"mtp.{name}": (config.vocab, config.hidden) for name in SHARED}
        w = self._checkpoint.read(
            shapes | repeated,
            prefixes=("mtp.",),
            optional=repeated,
            dtype=target.dtype,
            device=target.device,
        ).under("mtp.")
        _check_shared(w, target, str(self._checkpoint.path))
        eps, offset = config.eps, config.dialect.norm_offset
        self.combine = Matrix(w.tensor("fc.weight"))  # [hidden, 2 * hidden]
        self.embedding_norm = Norm(w.tensor("pre_fc_norm_embedding.weight"), eps, offset)
        self.hidden_norm = Norm(w.tensor("pre_fc_norm_hidden.weight"), eps, offset)
        self.norm = Norm(w.tensor("norm.weight"), eps, offset)
        self.rope = Rope(
            frequencies(config.rope),
            config.head_size,
            target.limits.context + MAX_DEPTH,
            target.device,
        )
        # chained entries run past the last position that is drafted from
        form, length = config.attention, self.context + MAX_DEPTH
        self.caches = [
            KvCache(form, target.slots, length, target.dtype, target.device)
            for _ in range(config.mtp_layers)
        ]
        self.attention = [
            Attention(w.under(f"layers.{k}.self_attn."), form, cache)
            for k, cache in enumerate(self.caches)
        ]
        self.blocks = [
            block(w.under(f"layers.{k}."), config, mixer) for k, mixer in enumerate(self.attention)
        ]
        layers = [partial(self._run, layer) for layer in self.blocks[1:]]
        self.further = (
            FurtherLayers(layers, self._rotations, target.slots, config.hidden, like=self.combine)
            if layers
            else None
        )

    @torch.inference_mode()
    def prefill(self, slot: int, ids: Tensor, hidden: Tensor, start: int) -> None:
        count = min(len(hidden), self.context - start)
        if count < 1:
            return
        ids, hidden = ids[1 : 1 + count], hidden[:count]
        place = PromptRows(
            slot, start, self._rotations(torch.arange(start, start + count, device=ids.device))
        )
        if self.further is not None:
            self.further.prefill(slot, ids, self._run(self.blocks[0], ids, hidden, place), start)
            return
        x = self._enter(ids, hidden)
        self.attention[0].store(self.blocks[0].before_mixer(x).to(x.dtype), place)

    @torch.inference_mode()
    def advance(
        self, window: Packed, kept: Tensor, picks: Tensor, hidden: Tensor, depth: int
    ) -> Drafted:
        if not 0 <= depth <= MAX_DEPTH:
            raise ValueError(f"depth is {depth}, expected 0 to {MAX_DEPTH}")
        fed = WindowRows(window.positions, window.starts, self._rotations(window.positions), kept)
        out = self._run(self.blocks[0], picks, hidden, fed)  # [bucket, hidden]
        chain = chain_after(window, kept, self.buckets)
        if self.further is not None:
            self.further.feed(window, kept, picks, out)
        out, positions = out[chain.last], window.positions[chain.last]
        drafts = torch.zeros(len(out), depth, dtype=torch.int32, device=kept.device)
        confidence = torch.zeros(len(out), depth, device=kept.device)
        rows = out[:, None][:, :0]  # that a further layer left, none yet
        for step in range(depth):
            if self.further is not None and 0 < step <= len(self.further):
                rows = self.further.draft(step, drafts[:, :step], window, chain, rows)
                out = rows[:, -1]
            elif step:
                positions = positions + 1
                place = WindowRows(positions, chain.starts, self._rotations(positions))
                out = self._run(self.blocks[-1], drafts[:, step - 1], out, place)
            drafts[:, step], confidence[:, step] = self._pick(out)
        return Drafted(drafts[chain.row], confidence[chain.row], torch.full_like(kept, depth))

    @torch.inference_mode()
    def clear(self, slot: int) -> None:
        for cache in self.caches:
            cache.clear(slot)
        if self.further is not None:
            self.further.clear(slot)

    def _rotations(self, positions: Tensor) -> dict[str, Rotation]:
        return {FULL: self.rope.at(positions)}

    def _enter(self, ids: Tensor, hidden: Tensor) -> Tensor:
        tokens = self.embedding_norm(self.target.embed(ids))
        both = torch.cat([tokens, self.hidden_norm(hidden)], 1)
        return self.combine(both.to(self.combine.dtype))

    def _run(
        self, layer: Block, ids: Tensor, hidden: Tensor, place: WindowRows | PromptRows
    ) -> Tensor:
        """[rows, hidden] after the head's norm: its logits are read from it, its chain continues
        it.
        """
        x = self._enter(ids, hidden)
        return self.norm(layer(x, place)).to(x.dtype)

    def _pick(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        if self.head is None or self.draft_vocab is None:
            return best_of(self.target.logits(hidden), self.target.limits.vocab)
        ids, chance = best_of(self.head(hidden), len(self.head))
        return self.draft_vocab[ids.long()], chance


def head_config(checkpoint: Checkpoint) -> QwenConfig:
    """Raises ValueError, one line, for a family without MTP heads and for too many layers."""
    try:
        config = QwenConfig.read(checkpoint.config)
    except ValueError as error:
        raise ValueError(f"checkpoint {checkpoint.path}: {error}") from error
    if config.mtp_layers > MAX_DEPTH:
        raise ValueError(
            f"checkpoint {checkpoint.path}: {config.mtp_layers} MTP layers, "
            f"supported: 1 to {MAX_DEPTH}"
        )
    return config


def _check_shared(w: Weights, target: TextTarget, path: str) -> None:
    """Raises ValueError, one line, where what a file repeats of the target is not the same."""
    own: dict[str, Callable[[], Tensor]] = {
        "embed_tokens.weight": lambda: target.embed(
            torch.arange(target.limits.vocab, device=target.device)
        ),
        "lm_head.weight": lambda: target.head.weight,
    }
    for name in SHARED:
        if name in w and not torch.equal(w.tensor(name), own[name]()):
            raise ValueError(
                f"checkpoint {path}: mtp.{name} differs from the target's {name}, expected the "
                "same tensor or none (an MTP head of its own is not supported)"
            )


def mtp_shapes(config: QwenConfig, fused: bool = True) -> Shapes:
    """Every tensor of the head, by name."""
    own: Shapes = {
        "fc.weight": (config.hidden, 2 * config.hidden),
        "pre_fc_norm_embedding.weight": (config.hidden,),
        "pre_fc_norm_hidden.weight": (config.hidden,),
        "norm.weight": (config.hidden,),
    }
    for k in range(config.mtp_layers):
        own |= prefixed(f"layers.{k}.", block_shapes(config, FULL, fused))
    return prefixed("mtp.", own)
