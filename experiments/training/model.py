"""A trainable Qwen 3.5 text model under transformers' own parameter names.

The same arithmetic, with a faster gated-delta rule.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn.functional import (
    embedding,
    linear,
    rms_norm,
    scaled_dot_product_attention,
    silu,
    softplus,
)

from experiments.config.checks import BadInput
from experiments.training.delta import gated_delta
from experiments.training.trainable import TargetRows, TrainableTarget

EPS = 1e-6


@dataclass(frozen=True)
class QwenShape:
    """Sizes of the model."""

    vocab: int = 2048
    hidden: int = 256
    layers: int = 8  # a multiple of `interval`
    interval: int = 4  # every interval-th layer is full attention
    intermediate: int = 704
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 64
    rotary: float = 0.5  # share of a head that is rotated
    theta: float = 10000.0
    linear_heads: int = 4
    linear_key: int = 32
    linear_value: int = 64
    kernel: int = 4
    context: int = 1024

    def __post_init__(self) -> None:
        """Raises BadInput."""
        if self.layers % self.interval:
            raise BadInput(
                f"shape.layers is {self.layers}, "
                f"expected a multiple of shape.interval ({self.interval})"
            )
        if self.heads % self.kv_heads:
            raise BadInput(
                f"shape.kv_heads is {self.kv_heads}, "
                f"expected a divisor of shape.heads ({self.heads})"
            )

    @property
    def layer_types(self) -> list[str]:
        return [
            "linear_attention" if (i + 1) % self.interval else "full_attention"
            for i in range(self.layers)
        ]

    def config(self, end: int) -> dict[str, Any]:
        """config.json. end: the stop id."""
        return {
            "architectures": ["Qwen3_5ForCausalLM"],
            "model_type": "qwen3_5_text",
            "dtype": "bfloat16",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "layer_types": self.layer_types,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_size,
            "linear_num_key_heads": self.linear_heads,
            "linear_num_value_heads": self.linear_heads,
            "linear_key_head_dim": self.linear_key,
            "linear_value_head_dim": self.linear_value,
            "linear_conv_kernel_dim": self.kernel,
            "hidden_act": "silu",
            "rms_norm_eps": EPS,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": self.theta,
                "partial_rotary_factor": self.rotary,
            },
            "partial_rotary_factor": self.rotary,
            "max_position_embeddings": self.context,
            "tie_word_embeddings": True,
            "attention_bias": False,
            "attn_output_gate": True,
            "eos_token_id": end,
            "pad_token_id": end,
            "num_mtp_layers": 1,
            "mtp_num_hidden_layers": 1,
            "mtp_layer_types": ["full_attention"],
        }

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Norm(nn.Module):
    """RMS; the stored weight is its offset from one."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x.float(), x.shape[-1:], 1 + self.weight.float(), EPS).to(x.dtype)


class Gate(nn.Module):
    """Of a gated-delta layer: norm per head, then SiLU gate. Its weight is stored as it is."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return rms_norm(x.float(), x.shape[-1:], self.weight.float(), EPS) * silu(gate.float())


def project(out: int, inner: int, scale: float = 1.0) -> nn.Linear:
    layer = nn.Linear(inner, out, bias=False)
    nn.init.normal_(layer.weight, std=0.02 * scale)
    return layer


class Rope(nn.Module):
    """Tables for positions 0..context + 7."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: QwenShape) -> None:
        super().__init__()
        size = int(shape.head_size * shape.rotary)
        frequency = shape.theta ** -(torch.arange(0, size, 2).float() / size)
        # [positions, size]
        angle = torch.outer(torch.arange(shape.context + 8).float(), frequency).repeat(1, 2)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x: [batch, heads, tokens, head size], its first token at position `start`."""
        size, tokens = self.cos.shape[1], x.shape[2]
        turned, rest = x[..., :size], x[..., size:]
        cos, sin = self.cos[start : start + tokens], self.sin[start : start + tokens]
        half = torch.cat([-turned[..., size // 2 :], turned[..., : size // 2]], -1)
        return torch.cat([turned * cos + half * sin, rest], -1)


class Attention(nn.Module):
    def __init__(self, shape: QwenShape) -> None:
        super().__init__()
        self.shape, size = shape, shape.head_size
        self.q_proj = project(shape.heads * size * 2, shape.hidden)
        self.k_proj = project(shape.kv_heads * size, shape.hidden)
        self.v_proj = project(shape.kv_heads * size, shape.hidden)
        self.o_proj = project(shape.hidden, shape.heads * size, 1 / math.sqrt(2 * shape.layers))
        self.q_norm, self.k_norm = Norm(size), Norm(size)

    def qkv(self, x: Tensor, rope: Rope, start: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys, values [batch, heads, tokens, head size] and the output gate.

        x: [batch, tokens, hidden], its first token at position `start`. The gate is [batch, tokens,
        heads * head size].
        """
        size = self.shape.head_size
        q, gate = rearrange(
            self.q_proj(x), "b t (head two size) -> two b t head size", two=2, size=size
        )
        k = rearrange(self.k_proj(x), "b t (head size) -> b t head size", size=size)
        v = rearrange(self.v_proj(x), "b t (head size) -> b head t size", size=size)
        q, k = (
            rearrange(norm(one), "b t head size -> b head t size")
            for norm, one in ((self.q_norm, q), (self.k_norm, k))
        )
        gate = rearrange(gate, "b t head size -> b t (head size)")
        return rope(q, start).to(v.dtype), rope(k, start).to(v.dtype), v, gate

    def leave(self, mixed: Tensor, gate: Tensor) -> Tensor:
        """mixed: [batch, heads, tokens, head size] -> [batch, tokens, hidden]."""
        return self.o_proj(rearrange(mixed, "b head t size -> b t (head size)") * gate.sigmoid())

    def forward(self, x: Tensor, rope: Rope, state: dict[str, Tensor] | None = None) -> Tensor:
        start = state["k"].shape[2] if state else 0
        q, k, v, gate = self.qkv(x, rope, start)
        if state is not None:
            if state:
                k, v = torch.cat([state["k"], k], 2), torch.cat([state["v"], v], 2)
            state.update(k=k, v=v)
        return self.leave(
            scaled_dot_product_attention(q, k, v, is_causal=x.shape[1] > 1, enable_gqa=True), gate
        )


class GatedDelta(nn.Module):
    def __init__(self, shape: QwenShape) -> None:
        super().__init__()
        self.shape = shape
        self.widths = [shape.linear_heads * shape.linear_key] * 2 + [
            shape.linear_heads * shape.linear_value
        ]
        self.in_proj_qkv = project(sum(self.widths), shape.hidden)
        self.in_proj_z = project(self.widths[2], shape.hidden)
        self.in_proj_b = project(shape.linear_heads, shape.hidden)
        self.in_proj_a = project(shape.linear_heads, shape.hidden)
        self.conv1d = nn.Conv1d(
            sum(self.widths), sum(self.widths), shape.kernel, groups=sum(self.widths), bias=False
        )
        # half-lives from one token to a few hundred, as in Mamba
        step = torch.exp(torch.linspace(math.log(0.001), math.log(0.1), shape.linear_heads))
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.A_log = nn.Parameter(torch.linspace(1, 8, shape.linear_heads).log())
        self.norm = Gate(shape.linear_value)
        self.out_proj = project(shape.hidden, self.widths[2], 1 / math.sqrt(2 * shape.layers))

    def forward(self, x: Tensor, rope: Rope, state: dict[str, Tensor] | None = None) -> Tensor:
        shape, (batch, tokens, _) = self.shape, x.shape
        rows = self.in_proj_qkv(x)
        before = state["conv"] if state else rows.new_zeros(batch, shape.kernel - 1, rows.shape[2])
        rows = torch.cat([before.to(rows.dtype), rows], 1)  # [batch, kernel - 1 + tokens, channels]
        taps = self.conv1d.weight[:, 0].to(rows.dtype)  # [channels, kernel]
        mixed = silu(
            sum(
                (rows[:, i : i + tokens] * taps[:, i] for i in range(1, shape.kernel)),
                rows[:, :tokens] * taps[:, 0],
            )
        )
        q, k, v = (
            rearrange(part, "b t (head size) -> b head t size", head=shape.linear_heads).float()
            for part in mixed.split(self.widths, -1)
        )
        beta = self.in_proj_b(x).float().sigmoid()  # [batch, tokens, heads]
        decay = -self.A_log.float().exp() * softplus(self.in_proj_a(x).float() + self.dt_bias)
        beta, decay = (rearrange(one, "b t head -> b head t") for one in (beta, decay))
        out, last = gated_delta(q, k, v, decay, beta, state["memory"] if state else None)
        if state is not None:
            state.update(conv=rows[:, tokens:], memory=last)
        z = rearrange(
            self.in_proj_z(x), "b t (head size) -> b t head size", head=shape.linear_heads
        )
        gated = self.norm(rearrange(out, "b head t size -> b t head size"), z)
        return self.out_proj(rearrange(gated, "b t head size -> b t (head size)").to(x.dtype))


class Mlp(nn.Module):
    def __init__(self, shape: QwenShape) -> None:
        super().__init__()
        self.gate_proj = project(shape.intermediate, shape.hidden)
        self.up_proj = project(shape.intermediate, shape.hidden)
        self.down_proj = project(shape.hidden, shape.intermediate, 1 / math.sqrt(2 * shape.layers))

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, shape: QwenShape, layer_type: str) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(shape.hidden), Norm(shape.hidden)
        self.full = layer_type == "full_attention"
        if self.full:
            self.self_attn = Attention(shape)
        else:
            self.linear_attn = GatedDelta(shape)
        self.mlp = Mlp(shape)

    @property
    def mixer(self) -> Attention | GatedDelta:
        return self.self_attn if self.full else self.linear_attn

    def forward(self, x: Tensor, rope: Rope, state: dict[str, Tensor] | None = None) -> Tensor:
        return self.finish(x + self.mixer(self.input_layernorm(x), rope, state))

    def finish(self, x: Tensor) -> Tensor:
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, shape: QwenShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        self.layers = nn.ModuleList(Block(shape, layer_type) for layer_type in shape.layer_types)
        self.norm = Norm(shape.hidden)


State = list[dict[str, Tensor]]


class QwenModel(TrainableTarget):
    """Its head is the embedding."""

    def __init__(self, shape: QwenShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Decoder(shape)
        self.rope = Rope(shape)

    def state(self) -> State:
        return [{} for _ in range(self.shape.layers)]

    def forward(self, ids: Tensor, state: State | None = None) -> Tensor:
        x = self.embed(ids)
        for i, layer in enumerate(self.model.layers):
            x = layer(x, self.rope, None if state is None else state[i])
        return self.model.norm(x)

    def read(self, ids: Tensor) -> TargetRows:
        return TargetRows(self(ids), {})

    def logits(self, hidden: Tensor) -> Tensor:
        return linear(hidden, self.model.embed_tokens.weight)

    def embed(self, ids: Tensor) -> Tensor:
        return embedding(ids, self.model.embed_tokens.weight)
