"""A Gemma 4 assistant that can be trained.

transformers' own class, run at every anchor of a text at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, one_hot, smooth_l1_loss
from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM

from experiments.training.gemma_norm import quicken
from experiments.training.trainable import KV, ChainStep, ChainTarget, TargetRows, TrainableDrafter

HIDDEN = 0.5  # weight of the distance of its rows to the target's
CLUSTERS = 0.2  # weight of the choice of clusters
ROUNDS = 20  # of balanced k-means


class Assistant(TrainableDrafter):
    """In training mode it gives the whole head's logits, in eval mode those it drafts with."""

    def __init__(self, config: Gemma4AssistantConfig) -> None:
        super().__init__()
        self.net = Gemma4AssistantForCausalLM(config)
        quicken(self.net)

    @classmethod
    def start(
        cls,
        config: Gemma4AssistantConfig,
        tensors: Mapping[str, Tensor],
        layer_types: Sequence[str],
    ) -> Assistant:
        """A copy of the target's last layer of each type, wherever shapes agree.

        At first a row goes straight through.

        tensors: the target's under transformers' names, its layers `model.layers.I.*`
        layer_types: of the target's layers
        """
        made = cls(config)
        kinds = config.get_text_config().layer_types
        last = {kind: i for i, kind in enumerate(layer_types)}
        with torch.no_grad():
            for name, tensor in made.net.state_dict().items():
                source = name
                if name.startswith("model.layers."):
                    layer, rest = name.removeprefix("model.layers.").split(".", 1)
                    source = f"model.layers.{last[kinds[int(layer)]]}.{rest}"
                if source in tensors and tensors[source].shape == tensor.shape:
                    tensor.copy_(tensors[source])
            nn.init.eye_(made.net.pre_projection.weight[:, config.backbone_hidden_size :])
            nn.init.eye_(made.net.post_projection.weight)
            if (ordered := made.net.masked_embedding) is not None:
                ordered.token_ordering.copy_(
                    balanced_clusters(made.net.lm_head.weight, config.num_centroids).argsort(
                        stable=True
                    )
                )
                members = rearrange(
                    made.net.lm_head.weight[ordered.token_ordering],
                    "(cluster member) hidden -> cluster member hidden",
                    cluster=config.num_centroids,
                )
                ordered.centroids.weight.copy_(members.mean(1))
        return made

    def chain(
        self, target: ChainTarget, ids: Tensor, read: TargetRows, depth: int, own: bool = False
    ) -> list[ChainStep]:
        """See `TrainableDrafter`. Every step of anchor t stands at position t + 1, its last
        token's.

        It reads the target's keys of 0..t: a frozen position and no entries of its own, as in
        transformers' candidate generator.
        """
        anchors = ids.shape[1] - depth
        kv = {
            kind: (keys[:, :, :anchors], values[:, :, :anchors])
            for kind, (keys, values) in read.kv.items()
        }
        masks, positions = self._masks(anchors), torch.arange(1, anchors + 1)[None]
        out, picks = read.hidden[:, :anchors], ids[:, 1 : 1 + anchors]
        steps = []
        for step in range(depth):
            token = picks if own else ids[:, 1 + step : 1 + step + anchors]
            steps.append(
                self._step(
                    torch.cat([target.embed(token), out.to(self.net.dtype)], -1),
                    kv,
                    masks,
                    positions,
                )
            )
            out, picks = steps[-1].hidden, steps[-1].picks if own else picks
        return steps

    def _step(self, pair: Tensor, kv: KV, masks: dict[str, Tensor], positions: Tensor) -> ChainStep:
        net = self.net
        row = net.model(
            inputs_embeds=net.pre_projection(pair),
            attention_mask=masks,
            position_ids=positions,
            shared_kv_states=dict(kv),
            use_cache=False,
            logits_to_keep=torch.zeros(()),  # a tensor keeps every row
        ).last_hidden_state
        hidden, logits = net.post_projection(row), net.lm_head(row)
        if net.masked_embedding is None:
            return ChainStep(hidden, logits)
        clusters = net.masked_embedding.centroids(row)
        if not self.training:
            chosen = clusters.topk(net.config.centroid_intermediate_top_k).indices
            seen = torch.zeros_like(clusters, dtype=torch.bool).scatter(-1, chosen, True)
            logits = logits.masked_fill(~seen[..., self._clusters()], -torch.inf)
        return ChainStep(hidden, logits, clusters)

    def _clusters(self) -> Tensor:
        """[vocabulary] int64: the cluster of each token."""
        assert self.net.masked_embedding is not None
        order = self.net.masked_embedding.token_ordering
        return order.argsort() // (len(order) // self.net.config.num_centroids)

    def _masks(self, anchors: int) -> dict[str, Tensor]:
        """By layer type, [1, 1, anchors, keys] bool.

        A sliding layer sees the last window + 1 keys: transformers' mask is inclusive here.
        """
        # how far a key lies behind the last committed token
        back = torch.arange(anchors)[:, None] - torch.arange(anchors)
        seen = back[None, None] >= 0
        return {
            "full_attention": seen,
            "sliding_attention": seen & (back <= self.net.config.get_text_config().sliding_window),
        }

    def beside(self, step: ChainStep, hidden: Tensor, wanted: Tensor) -> Tensor:
        """Smooth L1 to the target's rows in units of their RMS, and cross-entropy of the clusters.

        The clusters' wanted shares are what the target gives their tokens.
        """
        scale = hidden.float().pow(2).mean().sqrt()
        loss = HIDDEN * smooth_l1_loss(step.hidden.float() / scale, hidden.float() / scale)
        if step.clusters is not None:
            mass = wanted @ one_hot(self._clusters(), step.clusters.shape[-1]).to(wanted.dtype)
            logits, mass = (
                rearrange(x, "b anchor cluster -> (b anchor) cluster")
                for x in (step.clusters.float(), mass)
            )
            loss = loss + CLUSTERS * cross_entropy(logits, mass)
        return loss


@torch.no_grad()
def balanced_clusters(rows: Tensor, clusters: int) -> Tensor:
    """k-means with clusters of equal size: rows [rows, size] -> cluster of each [rows] int64.

    rows: a multiple of `clusters`

    Each round, the pairs of row and centre are taken in the order of their likeness, as long as
    both are free.
    """
    points = rows.float() / rows.float().norm(dim=-1, keepdim=True).clamp(min=1e-6)
    count, size = len(points), len(points) // clusters
    centres = points[torch.randperm(count, generator=torch.Generator().manual_seed(0))[:clusters]]
    places = torch.zeros(count, dtype=torch.long)
    for _ in range(ROUNDS):
        likeness = linear(points, centres)  # [rows, clusters]
        free, places = torch.full((clusters,), size), places.fill_(-1)
        while (left := (places < 0).nonzero()[:, 0]).numel():
            open_likeness = likeness[left].masked_fill(free == 0, -torch.inf)
            best, choice = open_likeness.max(-1)
            for cluster in choice.unique().tolist():
                asking = (choice == cluster).nonzero()[:, 0]
                taken = left[asking[best[asking].argsort(descending=True)[: int(free[cluster])]]]
                places[taken] = cluster
                free[cluster] -= len(taken)
        centres = torch.stack([points[places == cluster].mean(0) for cluster in range(clusters)])
    return places
