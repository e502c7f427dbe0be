"""Blocks that the Qwen text models and their MTP head share: norm, rotation, attention with its cache, MLP.

On a CPU the vectorised sigmoid, SiLU and softplus and the scalar ones that end a contiguous stretch differ in the last bit.
So that a row's bits never depend on its place, they run here on column slices of a fused projection (rows with gaps between
them are walked one by one), or in double.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear, rms_norm, silu

from mtp.targets.config import TextConfig
from triton_kernels.attention import BLOCK, prefill_attention, window_attention

Weights = Mapping[str, Tensor]
Shapes = dict[str, tuple[int, ...]]


class Norm:
    """RMS over the last dimension; fp32 in and out. weight: as stored; the runtime weight is offset + weight, always."""

    def __init__(self, weight: Tensor, eps: float, offset: float) -> None:
        self.weight = weight.float() + offset
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        return rms_norm(x.float(), x.shape[-1:], eps=self.eps) * self.weight


class Rotation(NamedTuple):
    """Of some rows: cosines and signed sines [rows, 1, head size], 1 and 0 where a head is not rotated."""

    cos: Tensor
    sin: Tensor
    partner: Tensor  # [head size] long, the element that each is rotated with

    def __call__(self, x: Tensor) -> Tensor:
        """x: [rows, heads, head size] fp32."""
        return x * self.cos + x.index_select(-1, self.partner) * self.sin


class Rope:
    """Tables for positions 0..length-1 (the rope position, which is not the cache row wherever images count otherwise)."""

    def __init__(self, config: TextConfig, length: int, device: torch.device) -> None:
        size, rotary = config.head_size, config.rotary
        frequency = config.theta ** -(torch.arange(0, rotary, 2, dtype=torch.float32) / rotary)
        angle = torch.outer(torch.arange(length, dtype=torch.float32), frequency)  # [length, rotary / 2]
        rest = torch.ones(length, size - rotary)
        self.cos = torch.cat([angle.cos(), angle.cos(), rest], 1)[:, None].to(device)
        self.sin = torch.cat([-angle.sin(), angle.sin(), 0 * rest], 1)[:, None].to(device)
        half = rotary // 2
        self.partner = torch.cat([torch.arange(half, rotary), torch.arange(half), torch.arange(rotary, size)]).to(device)

    def at(self, positions: Tensor) -> Rotation:
        return Rotation(self.cos.index_select(0, positions), self.sin.index_select(0, positions), self.partner)


class WindowRows(NamedTuple):
    """Where a window's rows sit. counts: as in `window_attention`."""

    positions: Tensor  # [rows] int32 cache rows
    starts: Tensor  # [slots + 1] int32
    rotation: Rotation
    counts: Tensor | None = None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        return window_attention(q, k, v, keys, values, self.positions, self.starts, self.counts, scale=scale)


class PromptRows(NamedTuple):
    """A chunk of one slot's prompt, from position `start` on."""

    slot: int
    start: int
    rotation: Rotation

    def attend(self, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        return prefill_attention(q, k, v, keys, values, self.slot, self.start, scale=scale)


Place = WindowRows | PromptRows


class Mixer(Protocol):
    project: Tensor  # its fused input projection [out, hidden]
    out: Tensor  # its output projection [hidden, in]

    def __call__(self, x: Tensor, place: Place) -> Tensor: ...


class Attention:
    """Grouped-query attention with q/k norm, rotation and, where the family has it, an output gate. Owns its cache:
    keys and values [slots, kv heads, capacity, head size], capacity = `length` rounded up to whole blocks."""

    def __init__(self, w: Weights, config: TextConfig, slots: int, length: int) -> None:
        heads, kv_heads, size = config.heads, config.kv_heads, config.head_size
        self.heads, self.kv_heads, self.size, self.gated = heads, kv_heads, size, config.family.output_gate
        q = w["q_proj.weight"]
        parts = [q, w["k_proj.weight"], w["v_proj.weight"]]
        if self.gated:  # stored per head: its query, then its gate
            per_head = q.view(heads, 2, size, -1)
            parts = [per_head[:, 0].flatten(0, 1), *parts[1:], per_head[:, 1].flatten(0, 1)]
        self.project = torch.cat(parts)  # queries, keys, values, gates
        self.out = w["o_proj.weight"]
        both = torch.cat([w["q_norm.weight"].expand(heads, -1), w["k_norm.weight"].expand(kv_heads, -1)])  # [heads, size]
        self.norm = Norm(both, config.eps, config.family.norm_offset)
        capacity = -(-length // BLOCK) * BLOCK
        self.keys = torch.zeros(slots, kv_heads, capacity, size, dtype=q.dtype, device=q.device)
        self.values = torch.zeros_like(self.keys)

    @staticmethod
    def shapes(config: TextConfig) -> Shapes:
        hidden, size = config.hidden, config.head_size
        queries = config.heads * size
        return {
            "q_proj.weight": (queries * (2 if config.family.output_gate else 1), hidden),
            "k_proj.weight": (config.kv_heads * size, hidden),
            "v_proj.weight": (config.kv_heads * size, hidden),
            "o_proj.weight": (hidden, queries),
            "q_norm.weight": (size,),
            "k_norm.weight": (size,),
        }

    def __call__(self, x: Tensor, place: Place) -> Tensor:
        q, k, v, gate = self._parts(x, place.rotation)
        y = place.attend(q, k, v, self.keys, self.values, self.size**-0.5).flatten(1)
        if self.gated:
            y = y * gate.sigmoid()
        return linear(y, self.out)

    def store(self, x: Tensor, place: PromptRows) -> None:
        """Only the cache rows of a chunk of a prompt."""
        _, k, v, _ = self._parts(x, place.rotation)
        here = slice(place.start, place.start + len(x))
        self.keys[place.slot, :, here] = k.transpose(0, 1)
        self.values[place.slot, :, here] = v.transpose(0, 1)

    def clear(self, slot: int) -> None:
        self.keys[slot] = 0
        self.values[slot] = 0

    def _parts(self, x: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        y = linear(x, self.project)
        rotated = self.heads + self.kv_heads
        qk, v, gate = y.split_with_sizes(
            [rotated * self.size, self.kv_heads * self.size, y.shape[1] - (rotated + self.kv_heads) * self.size], 1
        )
        qk = rotation(self.norm(qk.unflatten(1, (rotated, self.size)))).to(y.dtype)
        return qk[:, : self.heads], qk[:, self.heads :], v.unflatten(1, (self.kv_heads, self.size)), gate


class Mlp:
    def __init__(self, w: Weights) -> None:
        self.gate_up = torch.cat([w["gate_proj.weight"], w["up_proj.weight"]])
        self.down = w["down_proj.weight"]

    @staticmethod
    def shapes(config: TextConfig) -> Shapes:
        inner, hidden = config.intermediate, config.hidden
        return {"gate_proj.weight": (inner, hidden), "up_proj.weight": (inner, hidden), "down_proj.weight": (hidden, inner)}

    def __call__(self, x: Tensor) -> Tensor:
        gate, up = linear(x, self.gate_up).chunk(2, 1)
        return linear(silu(gate) * up, self.down)


class Block:
    """One layer: mixer and MLP, each on a normed input, each added to the stream x [rows, hidden]."""

    def __init__(self, w: Weights, config: TextConfig, mixer: Mixer) -> None:
        offset = config.family.norm_offset
        self.before_mixer = Norm(w["input_layernorm.weight"], config.eps, offset)
        self.before_mlp = Norm(w["post_attention_layernorm.weight"], config.eps, offset)
        self.mixer = mixer
        self.mlp = Mlp(under(w, "mlp."))

    @staticmethod
    def shapes(config: TextConfig, mixer: str, mixer_shapes: Shapes) -> Shapes:
        norms: Shapes = {"input_layernorm.weight": (config.hidden,), "post_attention_layernorm.weight": (config.hidden,)}
        return norms | prefixed("mlp.", Mlp.shapes(config)) | prefixed(mixer, mixer_shapes)

    def __call__(self, x: Tensor, place: Place) -> Tensor:
        x = x + self.mixer(self.before_mixer(x).to(x.dtype), place)
        return x + self.mlp(self.before_mlp(x).to(x.dtype))

    def matrices(self) -> list[Tensor]:
        return [self.mixer.project, self.mixer.out, self.mlp.gate_up, self.mlp.down]


def under(w: Weights, prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in w.items() if name.startswith(prefix)}


def prefixed(prefix: str, shapes: Shapes) -> Shapes:
    return {prefix + name: shape for name, shape in shapes.items()}
