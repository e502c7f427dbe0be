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
    flag_in,
    follow,
    layer_types_in,
    number_in,
    part_in,
    size_in,
    whole_rotary,
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
        raw = {**(ABSENT4 if four else ABSENT3), **raw}
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
        wide = 2 if flag_in(raw, "use_double_wide_mlp") else 1
        inner = size_in(raw, "intermediate_size")
        per_layer = size_in(raw, "hidden_size_per_layer_input", 0, least=0) if four else 0
        config = cls(
            vocab=size_in(raw, "vocab_size"),
            hidden=size_in(raw, "hidden_size"),
            eps=number_in(raw, "rms_norm_eps", default=1e-6),
            tied=flag_in(raw, "tie_word_embeddings", True),
            layer_types=types,
            max_positions=size_in(raw, "max_position_embeddings"),
            forms=forms,
            inner=tuple(inner * (wide if form.shared else 1) for form in forms),
            ropes={form.layer_type: _rope(raw, form.layer_type, form.size, four) for form in forms},
            norm_offset=0.0 if four else 1.0,
            scaled_layers=four,
            softcap=number_in(raw, "final_logit_softcapping")
            if raw.get("final_logit_softcapping") is not None
            else None,
            experts=ExpertForm.read(raw, "top_k_experts")
            if four and flag_in(raw, "enable_moe_block")
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
    follow(
        {
            "hidden_activation": (
                raw.get("hidden_activation", "gelu_pytorch_tanh"),
                "gelu_pytorch_tanh",
            ),
            "attention_bias": (raw.get("attention_bias") or False, False),
            "attn_logit_softcapping": (raw.get("attn_logit_softcapping"), None),
        }
    )
    # "vision": text sees what lies before it, as ever
    allowed = (None, "vision") if four else (None, False)
    if (value := raw.get("use_bidirectional_attention")) not in allowed:
        raise ValueError(
            f"config.json: use_bidirectional_attention is {value!r}, "
            f"supported: {' or '.join(map(repr, allowed))}"
        )


def _layer_types(raw: Mapping[str, Any], layers: int, four: bool) -> tuple[str, ...]:
    pattern = 6 if four else size_in(raw, "sliding_window_pattern", 6)
    if raw.get("layer_types") is None:  # transformers reads no other key for it
        keys = ("sliding_window_pattern", "_sliding_window_pattern")
        follow({key: (raw.get(key) or pattern, pattern) for key in keys})
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
    same = flag_in(raw, "attention_k_eq_v")
    # an empty one: all layers are alike
    by_layer = part_in(raw, "per_layer_config") if raw.get("per_layer_config") is not None else None
    scale = 1.0 if four else number_in(raw, "query_pre_attn_scalar") ** -0.5
    forms = []
    for i, kind in enumerate(types):
        special: Mapping[str, Any] = {}
        if four and kind == FULL:
            special = {"head_dim": raw["global_head_dim"]}
            if same and raw.get("num_global_key_value_heads") is not None:
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


def _rope(raw: Mapping[str, Any], kind: str, size: int, four: bool) -> RopeSettings:
    """Of a layer type whose heads have `size` elements."""
    rope, theta = _rope4(raw, kind) if four else _rope3(raw, kind)
    if rope.get("rope_type") not in (None, "default", "proportional"):
        whole_rotary(rope)
    return RopeSettings.read(rope, rotary=size, theta=theta)


def _rope3(raw: Mapping[str, Any], kind: str) -> tuple[Mapping[str, Any], float]:
    """In today's keys or as Gemma 3 was first published.

    Then rope_theta and rope_scaling are for full layers, rope_local_base_freq for sliding ones.
    """
    if raw.get("rope_parameters") is not None:
        rope = part_in(part_in(raw, "rope_parameters"), kind)
    else:
        rope = part_in(raw, "rope_scaling") if kind == FULL else {}
        if "type" in rope and "rope_type" not in rope:  # which transformers reads as default
            raise ValueError(
                f"config.json: rope_scaling.type is {rope['type']!r}, expected rope_type beside it"
            )
    outer = "rope_theta" if kind == FULL else "rope_local_base_freq"
    theta = number_in(raw, outer, default=THETA[kind])
    return rope, number_in(rope, "rope_theta", default=theta)


def _rope4(raw: Mapping[str, Any], kind: str) -> tuple[Mapping[str, Any], float]:
    """Blocks for both layer types, or none: then no older key counts either."""
    if raw.get("rope_parameters") is None:
        keys = ("rope_theta", "rope_local_base_freq", "rope_scaling", "partial_rotary_factor")
        follow({key: (raw.get(key) or None, None) for key in keys})
        proportional = {"rope_type": "proportional", "partial_rotary_factor": 0.25}
        return proportional if kind == FULL else {}, THETA[kind]
    rope = part_in(raw, "rope_parameters").get(kind)
    if not isinstance(rope, Mapping):
        raise ValueError(f"config.json: rope_parameters.{kind} is {rope!r}, expected an object")
    return rope, number_in(rope, "rope_theta")
