"""config.json of the Gemma 3 and Gemma 4 text models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mtp.targets.loading.config import (
    FULL,
    SLIDING,
    AttentionForm,
    ExpertForm,
    RopeSettings,
    TextConfig,
    follow,
    layer_types_in,
    number_in,
    part_in,
    size_in,
)

GEMMA3, GEMMA4 = "gemma3_text", "gemma4_text"
ALIASES = {"gemma3": GEMMA3, "gemma4": GEMMA4}
MODEL_TYPES = (GEMMA3, GEMMA4, *ALIASES)
ABSENT = {  # what transformers' configuration classes take where config.json leaves a key out
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
}
ABSENT3 = ABSENT | {
    "vocab_size": 262_208,
    "num_hidden_layers": 26,
    "sliding_window": 4096,
    "query_pre_attn_scalar": 256,
}
ABSENT4 = ABSENT | {
    "vocab_size": 262_144,
    "num_hidden_layers": 30,
    "sliding_window": 512,
    "global_head_dim": 512,
    "hidden_size_per_layer_input": 256,
    "vocab_size_per_layer_input": 262_144,
}
THETA = {SLIDING: 10_000.0, FULL: 1_000_000.0}


@dataclass(frozen=True, kw_only=True)
class GemmaForm(AttentionForm):
    scale: float  # of the scores
    sliding: int | None  # positions that a row sees, its own included; None: all
    shared: bool = False  # has no keys and values of its own
    keys_are_values: bool = False  # one projection makes both
    value_norm: bool = False


@dataclass(frozen=True, kw_only=True)
class GemmaConfig(TextConfig):
    forms: tuple[GemmaForm, ...]  # each layer's attention
    inner: tuple[int, ...]  # width of each layer's MLP
    ropes: Mapping[str, RopeSettings]  # by layer type
    norm_offset: float  # the runtime weight of a norm = offset + stored
    scaled_layers: bool  # each layer ends in a product with a stored number
    softcap: float | None  # of the logits
    experts: ExpertForm | None  # beside the MLP of each layer
    per_layer: int  # width of the per-layer embeddings, 0 = none
    per_layer_vocab: int

    @property
    def kv_forms(self) -> dict[str, GemmaForm]:
        return {form.layer_type: form for form in self.forms if not form.shared}

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> GemmaConfig:
        """From config.json's text part, with a model_type of MODEL_TYPES.

        Raises ValueError, one line, for settings that the code here does not follow.
        """
        if "backbone_hidden_size" in raw:
            raise ValueError(
                "config.json: backbone_hidden_size says an assistant, expected a target "
                "(drafter=gemma_assistant reads these)"
            )
        config = cls.layers_of(raw)
        if all(form.shared for form in config.forms):
            raise ValueError(
                f"config.json: num_kv_shared_layers is {len(config.forms)} of as many layers, "
                "expected fewer"
            )
        return config

    @classmethod
    def layers_of(cls, raw: Mapping[str, Any]) -> GemmaConfig:
        """The same for an assistant, whose layers are of the same kind and all share."""
        four = ALIASES.get(str(raw["model_type"]), raw["model_type"]) == GEMMA4
        raw = (ABSENT4 if four else ABSENT3) | {
            key: value for key, value in raw.items() if value is not None
        }
        _follow(raw, four)
        layers = size_in(raw, "num_hidden_layers")
        types = _layer_types(raw, layers, four)
        shared = size_in(raw, "num_kv_shared_layers", 0, least=0) if four else 0
        own = types[: layers - shared]
        if shared > layers or (own and set(own) != set(types)):
            raise ValueError(
                f"config.json: num_kv_shared_layers is {shared}: "
                f"of {layers} layers, some would share what no layer has"
            )
        forms = _forms(raw, types, len(own), four)
        wide = 2 if raw.get("use_double_wide_mlp") else 1
        inner = size_in(raw, "intermediate_size")
        per_layer = size_in(raw, "hidden_size_per_layer_input", 0, least=0) if four else 0
        config = cls(
            vocab=size_in(raw, "vocab_size"),
            hidden=size_in(raw, "hidden_size"),
            eps=number_in(raw, "rms_norm_eps", default=1e-6),
            tied=bool(raw.get("tie_word_embeddings", True)),
            layer_types=types,
            max_positions=size_in(raw, "max_position_embeddings"),
            forms=forms,
            inner=tuple(inner * (wide if form.shared else 1) for form in forms),
            ropes={form.layer_type: _rope(raw, form, four) for form in forms},
            norm_offset=0.0 if four else 1.0,
            scaled_layers=four,
            softcap=number_in(raw, "final_logit_softcapping")
            if "final_logit_softcapping" in raw
            else None,
            experts=ExpertForm.read(raw, "top_k_experts")
            if four and raw.get("enable_moe_block")
            else None,
            per_layer=per_layer,
            per_layer_vocab=size_in(raw, "vocab_size_per_layer_input") if per_layer else 0,
        )
        if per_layer and config.per_layer_vocab < config.vocab:
            raise ValueError(
                f"config.json: vocab_size_per_layer_input is {config.per_layer_vocab}, "
                f"expected at least {config.vocab}"
            )
        return config


def _follow(raw: Mapping[str, Any], four: bool) -> None:
    bidirectional = raw.get("use_bidirectional_attention") or False
    follow(
        {
            "hidden_activation": (
                raw.get("hidden_activation", "gelu_pytorch_tanh"),
                "gelu_pytorch_tanh",
            ),
            "attention_bias": (bool(raw.get("attention_bias", False)), False),
            "attn_logit_softcapping": (raw.get("attn_logit_softcapping"), None),
            # "vision": text sees what lies before it, as ever
            "use_bidirectional_attention": (
                False if four and bidirectional == "vision" else bidirectional,
                False,
            ),
        }
    )


def _layer_types(raw: Mapping[str, Any], layers: int, four: bool) -> tuple[str, ...]:
    pattern = size_in(raw, "sliding_window_pattern", size_in(raw, "_sliding_window_pattern", 6))
    types = layer_types_in(
        raw, (SLIDING, FULL), [SLIDING if (i + 1) % pattern else FULL for i in range(layers)]
    )
    if four:
        types[-1] = FULL  # as transformers has it, whatever is written
    return tuple(types)


def _forms(
    raw: Mapping[str, Any], types: tuple[str, ...], own: int, four: bool
) -> tuple[GemmaForm, ...]:
    """Of each layer. Full layers have a size and key heads of their own.

    They are set by `global_*`, or layer by layer by `per_layer_config`.
    """
    same = bool(raw.get("attention_k_eq_v", False))
    # an empty one: all layers are alike
    by_layer = part_in(raw, "per_layer_config") if "per_layer_config" in raw else None
    scale = 1.0 if four else number_in(raw, "query_pre_attn_scalar") ** -0.5
    forms = []
    for i, kind in enumerate(types):
        special: Mapping[str, Any] = {}
        if four and kind == FULL:
            special = {"head_dim": raw["global_head_dim"]}
            if same and "num_global_key_value_heads" in raw:
                special["num_key_value_heads"] = raw["num_global_key_value_heads"]
        special = special if by_layer is None else part_in(by_layer, str(i))
        if unknown := set(special) - {"head_dim", "num_key_value_heads"}:
            raise ValueError(
                f"config.json: per_layer_config of layer {i} sets {sorted(unknown)[0]}, "
                "supported: head_dim, num_key_value_heads"
            )
        heads, here = size_in(raw, "num_attention_heads"), {**raw, **special}
        kv_heads = size_in(here, "num_key_value_heads")
        if heads % kv_heads:
            raise ValueError(
                f"config.json: {heads} heads cannot share {kv_heads} key heads evenly (layer {i})"
            )
        form = GemmaForm(
            size_in(raw, "hidden_size"),
            heads,
            kv_heads,
            size_in(here, "head_dim"),
            kind,
            number_in(raw, "rms_norm_eps", default=1e-6),
            norm_offset=0.0 if four else 1.0,
            qk_norm=True,
            scale=scale,
            sliding=size_in(raw, "sliding_window") if kind == SLIDING else None,
            shared=i >= own,
            keys_are_values=same and kind == FULL,
            value_norm=four,
        )
        forms.append(form)
    for kind in set(types):
        if len({(form.size, form.kv_heads) for form in forms if form.layer_type == kind}) > 1:
            raise ValueError(
                f"config.json: per_layer_config gives {kind} layers different heads, "
                "expected one size and number for all"
            )
    return tuple(forms)


def _rope(raw: Mapping[str, Any], form: GemmaForm, four: bool) -> RopeSettings:
    """One layer's positions, in today's keys or as Gemma 3 was first published.

    Then rope_theta and rope_scaling are for full layers, rope_local_base_freq for sliding ones.
    """
    kind = form.layer_type
    proportional = (
        {"rope_type": "proportional", "partial_rotary_factor": 0.25}
        if four and kind == FULL
        else {}
    )
    old: Mapping[str, Any] = part_in(raw, "rope_scaling") if kind == FULL else {}
    rope = (
        part_in(part_in(raw, "rope_parameters"), kind)
        if "rope_parameters" in raw
        else {**proportional, **old}
    )
    outer = number_in(
        raw, "rope_theta" if kind == FULL else "rope_local_base_freq", default=THETA[kind]
    )
    return RopeSettings.read(
        rope, rotary=form.size, theta=number_in(rope, "rope_theta", default=outer)
    )
