"""The Gemma 4 assistant: a small decoder without keys and values, which reads the target's."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from einops import rearrange
from torch import Tensor

from mtp.buckets import Buckets
from mtp.drafters.assistant_config import AssistantConfig
from mtp.drafters.chain import best_of, chain_after
from mtp.drafters.protocol import Drafted
from mtp.executor import MAX_DEPTH
from mtp.targets.gemma.layers import OWN, GemmaBlock
from mtp.targets.layers.blocks import Norm, WindowRows, prefixed
from mtp.targets.layers.rope import Rope, frequencies
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.loading.tied import may_lack, name_of_head
from mtp.targets.loading.weights import EMBEDDING, HEAD, Shapes, Weights
from mtp.targets.protocol import Target, TextTarget
from triton_kernels import Packed
from triton_kernels.product import Matrix

PARTS = ("model.", "lm_head.", "pre_projection.", "post_projection.", "masked_embedding.")


class TargetKv(NamedTuple):
    """Of the target's last layer of a type: [slots, kv heads, capacity, head size] each."""

    keys: Tensor
    values: Tensor


class Head(Protocol):
    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x: [rows, hidden] -> picks [rows] int32, their probabilities [rows] fp32."""
        ...


class GemmaAssistant:
    """See `Drafter`. Refuses, in one line, another target and a checkpoint of other tensors.

    Every round it reads the target's keys and values of each layer type up to the committed length,
    from a position that stays the anchor's for the whole chain; its rows store nothing. So a park
    takes nothing from it: what it drafts from is the target's committed state, and the hidden row
    and pick of the round itself.

    A step's input is the target's embedding of the last token beside a hidden row: at first the
    target's own (after its last norm), then its own brought to the target's width.

    buckets, context: as of `QwenMtp`.
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
        self.config = AssistantConfig.read(checkpoint.config)
        self.buckets, self._checkpoint = buckets, checkpoint
        self.context = target.limits.context if context is None else context
        self.bind(target)

    @torch.inference_mode()
    def bind(self, target: Target) -> None:
        """Its weights go where the target's are."""
        if not isinstance(target, TextTarget):
            raise ValueError("an assistant needs a target that shares its embedding")
        if not 1 <= self.context <= target.limits.context:
            raise ValueError(
                f"drafter context is {self.context}, "
                f"expected 1 to {target.limits.context} (the target's)"
            )
        config, text = self.config, self.config.text
        kv = {kind: TargetKv(*target.kv(kind)) for kind in dict.fromkeys(text.layer_types)}
        sizes = {kind: (each.keys.shape[1], each.keys.shape[3]) for kind, each in kv.items()}
        config.check_fit(target.hidden_size, target.limits.vocab, sizes)
        self.target = target
        optional = [
            f"model.layers.{i}.self_attn.{name}" for i in range(len(text.forms)) for name in OWN
        ]
        # its tokens are read from the target's embedding
        optional += may_lack(self._checkpoint, text.tied) or [EMBEDDING]
        w = self._checkpoint.read(
            assistant_shapes(config),
            prefixes=PARTS,
            optional=optional,
            dtype=target.dtype,
            device=target.device,
        )
        self.enter = Matrix(w.tensor("pre_projection.weight"))  # [hidden, 2 * the target's hidden]
        self.leave = Matrix(w.tensor("post_projection.weight"))  # [the target's hidden, hidden]
        self.blocks = [
            GemmaBlock(w.under(f"model.layers.{i}."), text, i, kv[form.layer_type])
            for i, form in enumerate(text.forms)
        ]
        self.norm = Norm(w.tensor("model.norm.weight"), text.eps, text.norm_offset)
        head = w.tensor(name_of_head(w, text.tied))
        self.head: Head = (
            ClusteredHead(w.under("masked_embedding."), head, config)
            if config.clusters
            else FullHead(head)
        )
        self.ropes = {
            form.layer_type: Rope(
                frequencies(text.ropes[form.layer_type]),
                form.size,
                target.limits.context + 1,
                target.device,
            )
            for form in text.forms
        }

    def prefill(self, slot: int, ids: Tensor, hidden: Tensor, start: int) -> None:
        """Has no state of its own."""

    @torch.inference_mode()
    def advance(
        self, window: Packed, kept: Tensor, picks: Tensor, hidden: Tensor, depth: int
    ) -> Drafted:
        if not 0 <= depth <= MAX_DEPTH:
            raise ValueError(f"depth is {depth}, expected 0 to {MAX_DEPTH}")
        chain = chain_after(window, kept, self.buckets)
        # the last committed row of each slot: rejected ones lie behind it
        newest = window.positions[chain.last]
        place = WindowRows(
            newest, chain.starts, {kind: rope.at(newest + 1) for kind, rope in self.ropes.items()}
        )
        tokens, hidden = picks[chain.last], hidden[chain.last]
        drafts = torch.zeros(len(newest), depth, dtype=torch.int32, device=kept.device)
        confidence = torch.zeros(len(newest), depth, device=kept.device)
        for step in range(depth):
            x = self.enter(torch.cat([self.target.embed(tokens), hidden], 1))
            for block in self.blocks:
                x = block(x, place)
            x = self.norm(x).to(x.dtype)
            tokens, confidence[:, step] = self.head(x)
            drafts[:, step] = tokens
            hidden = self.leave(x)
        return Drafted(drafts[chain.row], confidence[chain.row], torch.full_like(kept, depth))

    def clear(self, slot: int) -> None:
        """Has no state of its own."""


class FullHead:
    def __init__(self, head: Tensor) -> None:
        self.head = Matrix(head)  # [vocab, hidden]

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return best_of(self.head(x), len(self.head))


class ClusteredHead:
    """A head with logits for the tokens of the best few clusters only.

    Each of the other tokens counts as one that is 1 below the least of them. That their logits are
    not written out, [rows, vocab], is what makes this head cheap; picks and probabilities are the
    same.
    """

    def __init__(self, w: Weights, head: Tensor, config: AssistantConfig) -> None:
        order = w.tensor("token_ordering", torch.long)
        if not torch.equal(order.sort().values, torch.arange(len(order), device=order.device)):
            raise ValueError(
                f"token_ordering is no order of the {len(order)} tokens, expected each of them once"
            )
        self.head, self.chosen = head, config.chosen
        self.centroids = Matrix(w.tensor("centroids.weight"))  # [clusters, hidden]
        # [clusters, members] token ids
        self.clusters = rearrange(
            order, "(cluster member) -> cluster member", cluster=config.clusters
        )

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        best_clusters = self.centroids(x).topk(self.chosen).indices
        ids = self.clusters[best_clusters].flatten(1)  # [rows, tokens looked at]
        logits = (self.head[ids] @ x[:, :, None])[..., 0].float()
        best = logits.amax(1, keepdim=True)
        others = (len(self.head) - ids.shape[1]) * (logits.amin(1) - 1 - best[:, 0]).exp()
        chance = 1 / ((logits - best).exp().sum(1) + others)
        # the lowest id wins; any where a row is faulty
        picks = torch.where(logits == best, ids, len(self.head) - 1).amin(1)
        return picks.int(), chance.nan_to_num(0.0)


def assistant_shapes(config: AssistantConfig) -> Shapes:
    """Every tensor of an assistant, by name."""
    text = config.text
    shapes: Shapes = {
        EMBEDDING: (text.vocab, text.hidden),
        HEAD: (text.vocab, text.hidden),
        "model.norm.weight": (text.hidden,),
        "pre_projection.weight": (text.hidden, 2 * config.backbone),
        "post_projection.weight": (config.backbone, text.hidden),
    }
    if config.clusters:
        shapes["masked_embedding.centroids.weight"] = (config.clusters, text.hidden)
        shapes["masked_embedding.token_ordering"] = (text.vocab,)
    for i in range(len(text.forms)):
        shapes |= prefixed(f"model.layers.{i}.", GemmaBlock.shapes(text, i))
    return shapes
