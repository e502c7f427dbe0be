"""A Qwen-style MTP head for a frozen target, differentiable.

Its parameters carry the sidecar's names without `mtp.`.
"""

from __future__ import annotations

import torch
from einops import rearrange, repeat
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu, smooth_l1_loss

from experiments.training.chain import attend_chained
from experiments.training.drafters.frozen import FrozenTarget
from experiments.training.trainable import ChainStep, TargetRows, TrainableDrafter
from mtp.targets.layers.rope import Rope, frequencies
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.loading.config import FULL, AttentionForm
from mtp.targets.qwen.config import QwenConfig
from mtp.targets.qwen.family import block_shapes

# its logits at first, relative to the target's: they are wrong then, and better not sure of it
UNSURE = 0.25
ROWS = 0.5  # weight of the distance of its rows to the target's
SOFT_TOKEN = 0.2  # the token's part of what enters the block at first, relative to the stream's


class Norm(nn.Module):
    """weight: as stored; the runtime weight is offset + weight."""

    def __init__(self, size: int, eps: float, offset: float) -> None:
        super().__init__()
        self.eps, self.offset = eps, offset
        self.weight = nn.Parameter(torch.full((size,), 1.0 - offset))

    def forward(self, x: Tensor) -> Tensor:
        return (rms_norm(x.float(), x.shape[-1:], eps=self.eps) * (self.offset + self.weight)).to(
            x.dtype
        )


class SelfAttention(nn.Module):
    def __init__(self, form: AttentionForm) -> None:
        super().__init__()
        self.form, queries, keys = form, form.heads * form.size, form.kv_heads * form.size
        self.q_proj = nn.Linear(form.hidden, queries * (2 if form.gated else 1), bias=form.bias)
        self.k_proj = nn.Linear(form.hidden, keys, bias=form.bias)
        self.v_proj = nn.Linear(form.hidden, keys, bias=form.bias)
        self.o_proj = nn.Linear(queries, form.hidden, bias=False)
        if form.qk_norm:
            self.q_norm, self.k_norm = (
                Norm(form.size, form.eps, form.norm_offset) for _ in range(2)
            )

    def qkv(
        self, x: Tensor, rope: Rope, start: int
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys, values [batch, heads, tokens, size], and the output's gate where there is
        one.

        x: [batch, tokens, hidden], its first token at position `start`. The gate is [batch, tokens,
        heads * size].
        """
        q = rearrange(self.q_proj(x), "b t (head size) -> b t head size", head=self.form.heads)
        gate = None
        if self.form.gated:
            q, gate = q.chunk(2, -1)
            gate = rearrange(gate, "b t head size -> b t (head size)")
        k, v = (
            rearrange(project(x), "b t (head size) -> b t head size", size=self.form.size)
            for project in (self.k_proj, self.v_proj)
        )
        if self.form.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        rotation = rope.at(torch.arange(start, start + x.shape[1]))
        q, k = (rotation(one.float()).to(v.dtype) for one in (q, k))
        share = self.form.heads // self.form.kv_heads
        k, v = (
            repeat(one, "b t head size -> b t (head share) size", share=share) for one in (k, v)
        )
        q, k, v = (rearrange(one, "b t head size -> b head t size") for one in (q, k, v))
        return q, k, v, gate

    def leave(self, mixed: Tensor, gate: Tensor | None) -> Tensor:
        """mixed: [batch, heads, tokens, size] -> [batch, tokens, hidden]."""
        y = rearrange(mixed, "b head t size -> b t (head size)")
        return self.o_proj(y if gate is None else y * gate.sigmoid())


class Mlp(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = (nn.Linear(hidden, inner, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, config: QwenConfig) -> None:
        super().__init__()
        offset = config.dialect.norm_offset
        self.input_layernorm, self.post_attention_layernorm = (
            Norm(config.hidden, config.eps, offset) for _ in range(2)
        )
        self.self_attn = SelfAttention(config.attention)
        self.mlp = Mlp(config.hidden, config.intermediate)


class SidecarHead(TrainableDrafter):
    def __init__(self, config: QwenConfig, length: int) -> None:
        """length: positions that are rotated."""
        super().__init__()
        hidden, offset = config.hidden, config.dialect.norm_offset
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = (
            Norm(hidden, config.eps, offset) for _ in range(3)
        )
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        self.layers = nn.ModuleList([Block(config)])
        self.rope = Rope(frequencies(config.rope), config.head_size, length, torch.device("cpu"))

    @torch.no_grad()
    def begin_as(
        self, target: Checkpoint, config: QwenConfig, hidden_rms: float, stream_rms: float
    ) -> None:
        """As the target's last layer of full attention.

        The hidden row is taken back to where it came from, before the last norm. The stream is
        scaled down to the root of its RMS, and what the layer adds to it likewise: one learning
        rate then fits all matrices.

        hidden_rms, stream_rms: of the target's rows after and before that norm
        """
        last = max(i for i, kind in enumerate(config.layer_types) if kind == FULL)
        shapes = {
            f"model.layers.{last}.{name}": shape
            for name, shape in block_shapes(config, FULL, fused=True).items()
        }
        w = target.read(
            shapes | {"model.norm.weight": (config.hidden,)},
            prefixes=(),
            dtype=torch.float32,
            device=torch.device("cpu"),
        )
        block, scale = self.layers[0], stream_rms**0.5
        assert isinstance(block, Block)
        block.load_state_dict(
            {name.removeprefix(f"model.layers.{last}."): w.tensor(name) for name in shapes}
        )
        block.self_attn.o_proj.weight /= stream_rms / scale
        block.mlp.down_proj.weight /= stream_rms / scale
        norm, offset = w.tensor("model.norm.weight"), config.dialect.norm_offset
        self.norm.weight.copy_(UNSURE * (offset + norm) - offset)
        self.pre_fc_norm_hidden.weight.copy_(
            scale * hidden_rms / (offset + norm).clamp(min=0.05) - offset
        )
        random = torch.randn(config.hidden, config.hidden) * config.hidden**-0.5
        self.fc.weight.copy_(torch.cat([SOFT_TOKEN * scale * random, torch.eye(config.hidden)], 1))

    def chain(
        self, target: FrozenTarget, ids: Tensor, read: TargetRows, depth: int, own: bool = False
    ) -> list[ChainStep]:
        """See `TrainableDrafter`. Step s of anchor t stands for position t + s.

        As in use, it attends to the committed entries 0..t, which all are made from the target's
        rows, and to its own provisional entries of the steps before. Logits are of the draft
        vocabulary.
        """
        block, anchors = self.layers[0], ids.shape[1] - depth
        assert isinstance(block, Block)
        attention, scale = block.self_attn, block.self_attn.form.size**-0.5
        out, token = read.hidden[:, :anchors].float(), ids[:, 1 : 1 + anchors]
        keys: list[Tensor] = []
        values: list[Tensor] = []
        steps: list[ChainStep] = []
        for step in range(depth):
            if step:
                token = (
                    target.draft_vocab[steps[-1].picks]
                    if own
                    else ids[:, 1 + step : 1 + step + anchors]
                )
            entering = [
                self.pre_fc_norm_embedding(target.embed(token).float()),
                self.pre_fc_norm_hidden(out),
            ]
            x = self.fc(torch.cat(entering, -1))
            q, k, v, gate = attention.qkv(block.input_layernorm(x), self.rope, step)
            keys.append(k)
            values.append(v)
            x = x + attention.leave(attend_chained(q, keys, values, scale), gate)
            out = self.norm(x + block.mlp(block.post_attention_layernorm(x))).float()
            steps.append(ChainStep(out, target.logits(out)))
        return steps

    def beside(self, step: ChainStep, hidden: Tensor, wanted: Tensor) -> Tensor:
        """Smooth L1 to the target's rows in units of their RMS."""
        scale = hidden.float().square().mean().sqrt()
        return ROWS * smooth_l1_loss(step.hidden / scale, hidden.float() / scale)
