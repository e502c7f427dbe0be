"""Attention with its cache."""

from __future__ import annotations

from functools import partial

import torch
from einops import rearrange
from torch import Tensor

from mtp.targets.layers.blocks import Norm, Place, PromptRows
from mtp.targets.layers.rope import Rotation
from mtp.targets.loading.config import AttentionForm
from mtp.targets.loading.weights import Shapes, Weights
from triton_kernels.attention import BLOCK
from triton_kernels.product import Matrix


class KvCache:
    """Keys and values [slots, kv heads, capacity, head size] of a layer.

    capacity: `length` rounded up to whole blocks
    """

    def __init__(
        self, form: AttentionForm, slots: int, length: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.layer_type = form.layer_type
        capacity = -(-length // BLOCK) * BLOCK
        self.keys = torch.zeros(
            slots, form.kv_heads, capacity, form.size, dtype=dtype, device=device
        )
        self.values = torch.zeros_like(self.keys)

    def clear(self, slot: int) -> None:
        self.keys[slot] = 0
        self.values[slot] = 0


class Attention:
    """A mixer: grouped-query attention with rotation.

    Where the form has them, with biases, q/k norm and an output gate.
    """

    def __init__(self, w: Weights, form: AttentionForm, cache: KvCache) -> None:
        self.form, self.cache = form, cache
        self.heads, self.kv_heads, self.size = form.heads, form.kv_heads, form.size
        self.project = Matrix(_fused(w, form))  # queries, keys, values, gates
        self.bias = w.stacked("q_proj.bias", "k_proj.bias", "v_proj.bias") if form.bias else None
        self.out = Matrix(w.tensor("o_proj.weight"))
        self.norm: Norm | None = None
        if form.qk_norm:
            q, k = w.tensor("q_norm.weight"), w.tensor("k_norm.weight")
            # [heads and kv heads, size]
            both = torch.cat([q.expand(self.heads, -1), k.expand(self.kv_heads, -1)])
            self.norm = Norm(both, form.eps, form.norm_offset)

    @staticmethod
    def shapes(form: AttentionForm) -> Shapes:
        queries, keys = form.heads * form.size, form.kv_heads * form.size
        shapes: Shapes = {
            "q_proj.weight": (queries * (2 if form.gated else 1), form.hidden),
            "k_proj.weight": (keys, form.hidden),
            "v_proj.weight": (keys, form.hidden),
            "o_proj.weight": (form.hidden, queries),
        }
        if form.bias:
            shapes |= {"q_proj.bias": (queries,), "k_proj.bias": (keys,), "v_proj.bias": (keys,)}
        if form.qk_norm:
            shapes |= {"q_norm.weight": (form.size,), "k_norm.weight": (form.size,)}
        return shapes

    def __call__(self, x: Tensor, place: Place) -> Tensor:
        q, k, v, gate = self._parts(x, place.rotations[self.form.layer_type])
        y = place.attend(q, k, v, self.cache.keys, self.cache.values, self.size**-0.5).flatten(1)
        if self.form.gated:
            y = y * gate.sigmoid()
        return self.out(y)

    def store(self, x: Tensor, place: PromptRows) -> None:
        """Writes the cache rows of a chunk of a prompt, no more. x: [rows, hidden]."""
        _, k, v, _ = self._parts(x, place.rotations[self.form.layer_type])
        here = slice(place.start, place.start + len(x))
        self.cache.keys[place.slot, :, here] = rearrange(k, "row head size -> head row size")
        self.cache.values[place.slot, :, here] = rearrange(v, "row head size -> head row size")

    def _parts(self, x: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        y = self.project(x)
        if self.bias is not None:
            y = y + self.bias  # apart from the product, whose bits are probed without one
        rotated = self.heads + self.kv_heads
        qk, v, gate = y.split_with_sizes(
            [
                rotated * self.size,
                self.kv_heads * self.size,
                y.shape[1] - (rotated + self.kv_heads) * self.size,
            ],
            1,
        )
        heads = qk.unflatten(1, (rotated, self.size))
        qk = rotation(heads.float() if self.norm is None else self.norm(heads)).to(y.dtype)
        return (
            qk[:, : self.heads],
            qk[:, self.heads :],
            v.unflatten(1, (self.kv_heads, self.size)),
            gate,
        )


def _fused(w: Weights, form: AttentionForm) -> Tensor:
    """[out, hidden]: queries, keys, values and, of a gated form, gates."""
    if not form.gated:
        return w.stacked("q_proj.weight", "k_proj.weight", "v_proj.weight")
    queries, keys = form.heads * form.size, form.kv_heads * form.size
    out = torch.empty(2 * (queries + keys), form.hidden, dtype=w.dtype, device=w.device)
    q, k, v, gate = out.split([queries, keys, keys, queries])
    for place, part in enumerate((q, gate)):
        by_head = rearrange(part, "(head size) hidden -> head size hidden", size=form.size)
        w.fill(by_head, "q_proj.weight", partial(_query_or_gate, place=place, size=form.size))
    w.fill(k, "k_proj.weight")
    w.fill(v, "v_proj.weight")
    return out


def _query_or_gate(whole: Tensor, *, place: int, size: int) -> Tensor:
    """One of the two, which are stored head by head: [heads, size, hidden]."""
    parts = rearrange(whole, "(head two size) hidden -> two head size hidden", two=2, size=size)
    return parts[place]
