"""What Gemma layers, an assistant's too, have of their own.

Keys and values that layers share, four norms, per-layer embeddings.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding, rms_norm

from mtp.targets.gemma.config import GemmaConfig, GemmaForm
from mtp.targets.gemma.experts import GemmaExperts
from mtp.targets.layers.blocks import Mlp, Norm, Place, gelu_tanh, prefixed
from mtp.targets.loading.weights import Shapes, Weights
from triton_kernels.product import Matrix

NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
# what a layer that shares keys and values does without
OWN = ("k_proj.weight", "v_proj.weight", "k_norm.weight")


class Kv(Protocol):
    """[slots, kv heads, capacity, head size] each."""

    @property
    def keys(self) -> Tensor: ...

    @property
    def values(self) -> Tensor: ...


class GemmaAttention:
    """kv: the layer's own cache, or the one that it reads and never writes."""

    def __init__(self, w: Weights, form: GemmaForm, kv: Kv) -> None:
        self.form, self.kv = form, kv
        names = (
            ["q_proj.weight"]
            if form.shared
            else ["q_proj.weight", "k_proj.weight", "v_proj.weight"]
        )
        if form.keys_are_values and not form.shared:
            names.pop()
        self.project = Matrix(w.stacked(*names))  # queries, keys, values
        self.out = Matrix(w.tensor("o_proj.weight"))
        norms = [w.tensor("q_norm.weight").expand(form.heads, -1)]
        if not form.shared:
            norms.append(w.tensor("k_norm.weight").expand(form.kv_heads, -1))
        self.norm = Norm(torch.cat(norms), form.eps, form.norm_offset)

    @staticmethod
    def shapes(form: GemmaForm) -> Shapes:
        """Of all that a layer can have: one that shares may lack OWN."""
        queries, keys = form.heads * form.size, form.kv_heads * form.size
        shapes: Shapes = {
            "q_proj.weight": (queries, form.hidden),
            "k_proj.weight": (keys, form.hidden),
            "v_proj.weight": (keys, form.hidden),
            "o_proj.weight": (form.hidden, queries),
            "q_norm.weight": (form.size,),
            "k_norm.weight": (form.size,),
        }
        if form.keys_are_values:
            del shapes["v_proj.weight"]
        return shapes

    def __call__(self, x: Tensor, place: Place) -> Tensor:
        form = self.form
        # [rows, heads and kv heads, size]
        y = self.project(x).unflatten(1, (-1, form.size))
        rotated = len(self.norm.weight)
        qk = place.rotations[form.layer_type](self.norm(y[:, :rotated])).to(y.dtype)
        k = v = None
        if not form.shared:
            k, v = qk[:, form.heads :], y[:, -form.kv_heads :]
            if form.value_norm:
                v = rms_norm(v.float(), (form.size,), eps=form.eps).to(y.dtype)
        y = place.attend(
            qk[:, : form.heads], k, v, self.kv.keys, self.kv.values, form.scale, form.sliding
        )
        return self.out(y.flatten(1))


class PerLayerGate:
    """A layer's own embedding of each row, weighted by a gate that the stream sets."""

    def __init__(self, w: Weights, config: GemmaConfig, layer: int) -> None:
        self.layer = layer
        self.gate = Matrix(w.tensor("per_layer_input_gate.weight"))
        self.out = Matrix(w.tensor("per_layer_projection.weight"))
        self.norm = Norm(
            w.tensor("post_per_layer_input_norm.weight"), config.eps, config.norm_offset
        )

    @staticmethod
    def shapes(hidden: int, width: int) -> Shapes:
        return {
            "per_layer_input_gate.weight": (width, hidden),
            "per_layer_projection.weight": (hidden, width),
            "post_per_layer_input_norm.weight": (hidden,),
        }

    def __call__(self, x: Tensor, inputs: Tensor) -> Tensor:
        """x: [rows, hidden], the stream; inputs: [rows, layers, width]."""
        gate = gelu_tanh(self.gate(x).double()).to(x.dtype)  # in double: see layers.py
        return x + self.norm(self.out(gate * inputs[:, self.layer])).to(x.dtype)


class GemmaBlock:
    """A layer: attention, MLP and, in some models, experts and a per-layer embedding.

    Each is normed before and after.
    """

    def __init__(self, w: Weights, config: GemmaConfig, layer: int, kv: Kv) -> None:
        norms = (Norm(w.tensor(f"{name}.weight"), config.eps, config.norm_offset) for name in NORMS)
        self.before_mixer, self.after_mixer, self.before_mlp, self.after_mlp = norms
        self.mixer = GemmaAttention(w.under("self_attn."), config.forms[layer], kv)
        self.mlp = Mlp(w.under("mlp."), gelu_tanh)
        self.experts = GemmaExperts(w, config) if config.experts is not None else None
        self.per_layer = PerLayerGate(w, config, layer) if config.per_layer else None
        self.scalar = w.tensor("layer_scalar") if config.scaled_layers else None

    @staticmethod
    def shapes(config: GemmaConfig, layer: int) -> Shapes:
        shapes: Shapes = {f"{name}.weight": (config.hidden,) for name in NORMS}
        shapes |= prefixed("self_attn.", GemmaAttention.shapes(config.forms[layer]))
        shapes |= prefixed("mlp.", Mlp.shapes(config.hidden, config.inner[layer]))
        if config.experts is not None:
            shapes |= GemmaExperts.shapes(config)
        if config.per_layer:
            shapes |= PerLayerGate.shapes(config.hidden, config.per_layer)
        return shapes | ({"layer_scalar": (1,)} if config.scaled_layers else {})

    def __call__(self, x: Tensor, place: Place) -> Tensor:
        x = x + self.after_mixer(self.mixer(self.before_mixer(x).to(x.dtype), place)).to(x.dtype)
        y = self.mlp(self.before_mlp(x).to(x.dtype))
        if self.experts is not None:
            y = self.experts(x, y)
        x = x + self.after_mlp(y).to(x.dtype)
        if self.per_layer is not None:
            assert place.inputs is not None
            x = self.per_layer(x, place.inputs)
        return x if self.scalar is None else x * self.scalar

    def matrices(self) -> list[Matrix]:
        more = [] if self.per_layer is None else [self.per_layer.gate, self.per_layer.out]
        # its experts are multiplied with one row each
        more += [] if self.experts is None else [self.experts.route]
        return [self.mixer.project, self.mixer.out, *self.mlp.matrices(), *more]


class PerLayerInputs:
    """What each layer is given of a row: of its id and of its embedding, in equal parts."""

    def __init__(self, w: Weights, config: GemmaConfig, dtype: torch.dtype) -> None:
        self.table = w.tensor("embed_tokens_per_layer.weight")  # [vocab, layers * width]
        # [layers * width, hidden]
        self.project = Matrix(w.tensor("per_layer_model_projection.weight"))
        self.norm = Norm(
            w.tensor("per_layer_projection_norm.weight"), config.eps, config.norm_offset
        )
        self.scale, self.project_scale = rounded(config.per_layer**0.5, dtype), config.hidden**-0.5

    @staticmethod
    def shapes(config: GemmaConfig) -> Shapes:
        width = len(config.forms) * config.per_layer
        return {
            "embed_tokens_per_layer.weight": (config.per_layer_vocab, width),
            "per_layer_model_projection.weight": (width, config.hidden),
            "per_layer_projection_norm.weight": (config.per_layer,),
        }

    def __call__(self, ids: Tensor, x: Tensor) -> Tensor:
        """ids: [rows], x: [rows, hidden], their embedding -> [rows, layers, width]."""
        shape = (-1, len(self.norm.weight))
        of_id = (embedding(ids, self.table) * self.scale).unflatten(1, shape)
        of_x = self.norm((self.project(x) * self.project_scale).unflatten(1, shape))
        return ((of_x + of_id.float()) * 2.0**-0.5).to(x.dtype)


def rounded(value: float, dtype: torch.dtype) -> float:
    """The family scales its embeddings by a number of their own precision: sqrt(3072) is 55.5 in
    bf16.
    """
    return float(torch.tensor(value).to(dtype))
