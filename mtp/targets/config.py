"""What the Qwen text models' config.json says, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Family:
    norm_offset: float  # the runtime weight of a norm = offset + stored
    output_gate: bool  # full attention's output is gated by a part of its query projection
    rotary_share: float  # of a head's width, where config.json does not say


FAMILIES = {
    "qwen3_5_text": Family(norm_offset=1.0, output_gate=True, rotary_share=0.25),
    "qwen3": Family(norm_offset=0.0, output_gate=False, rotary_share=1.0),
}
ALIASES = {"qwen3_5": "qwen3_5_text"}
LINEAR, FULL = "linear_attention", "full_attention"


@dataclass(frozen=True)
class TextConfig:
    """Sizes in elements. linear_*: of the gated-delta layers, 0 in a model without them."""

    family: Family
    vocab: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_size: int
    rotary: int  # leading elements of a head that are rotated
    theta: float
    eps: float
    tied: bool
    layer_types: tuple[str, ...]
    max_positions: int
    linear_key_heads: int
    linear_value_heads: int
    linear_key_size: int
    linear_value_size: int
    taps: int  # of the causal convolution
    mtp_layers: int | None  # None: config.json does not say

    @property
    def linear_channels(self) -> int:
        """Queries, keys and values of a gated-delta layer: what its convolution runs over."""
        return 2 * self.linear_key_heads * self.linear_key_size + self.linear_value_heads * self.linear_value_size

    def check_context(self, context: int) -> None:
        if isinstance(context, bool) or not isinstance(context, int) or not 1 <= context <= self.max_positions:
            raise ValueError(f"context is {context!r}, expected 1 to {self.max_positions} (max_position_embeddings)")

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> TextConfig:
        """Refuses, in one line, another architecture and settings that the code here does not follow."""
        kind = raw.get("model_type")
        name = ALIASES.get(str(kind), str(kind))
        if name not in FAMILIES:
            raise ValueError(f"model_type is {kind!r}, supported: {', '.join(sorted({*FAMILIES, *ALIASES}))}")
        family = FAMILIES[name]

        def size(key: str, default: int | None = None) -> int:
            value = raw.get(key, default)
            value = default if value is None else value
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"config.json: {key} is {value!r}, expected a positive integer")
            return value

        rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
        hybrid = name == "qwen3_5_text"
        layers = size("num_hidden_layers")
        types = tuple(raw.get("layer_types") or _pattern(layers, size("full_attention_interval", 4) if hybrid else 1))
        head = size("head_dim", max(1, size("hidden_size") // size("num_attention_heads")))
        share = rope.get("partial_rotary_factor", raw.get("partial_rotary_factor", family.rotary_share))
        config = cls(
            family=family,
            vocab=size("vocab_size"),
            hidden=size("hidden_size"),
            intermediate=size("intermediate_size"),
            heads=size("num_attention_heads"),
            kv_heads=size("num_key_value_heads"),
            head_size=head,
            rotary=int(head * share),
            theta=float(rope.get("rope_theta", raw.get("rope_theta", 10000.0))),
            eps=float(raw.get("rms_norm_eps", 1e-6)),
            tied=bool(raw.get("tie_word_embeddings", False)),
            layer_types=types,
            max_positions=size("max_position_embeddings", 32768),
            linear_key_heads=size("linear_num_key_heads") if hybrid else 0,
            linear_value_heads=size("linear_num_value_heads") if hybrid else 0,
            linear_key_size=size("linear_key_head_dim") if hybrid else 0,
            linear_value_size=size("linear_value_head_dim") if hybrid else 0,
            taps=size("linear_conv_kernel_dim") if hybrid else 1,
            mtp_layers=raw.get("mtp_num_hidden_layers", raw.get("num_mtp_layers")),
        )
        config._check(raw, layers, rope.get("rope_type", rope.get("type", "default")), LINEAR if hybrid else FULL)
        return config

    def _check(self, raw: Mapping[str, Any], layers: int, rope_type: str, other_type: str) -> None:
        follows = {
            "hidden_act": (raw.get("hidden_act", "silu"), "silu"),
            "attention_bias": (bool(raw.get("attention_bias", False)), False),
            "use_sliding_window": (bool(raw.get("use_sliding_window", False)), False),
            "attn_output_gate": (raw.get("attn_output_gate", self.family.output_gate), self.family.output_gate),
            "mtp_use_dedicated_embeddings": (bool(raw.get("mtp_use_dedicated_embeddings", False)), False),
            "rope_type": (rope_type, "default"),
        }
        for key, (value, wanted) in follows.items():
            if value != wanted:
                raise ValueError(f"config.json: {key} is {value!r}, supported: {wanted!r}")
        if len(self.layer_types) != layers or not set(self.layer_types) <= {FULL, other_type}:
            raise ValueError(f"config.json: layer_types is {list(self.layer_types)}, expected {layers} of {sorted({FULL, other_type})}")
        if self.rotary < 2 or self.rotary % 2 or self.rotary > self.head_size:
            raise ValueError(f"config.json: {self.rotary} rotated elements of a head, expected an even number from 2 to {self.head_size}")
        for many, few in ((self.heads, self.kv_heads), (self.linear_value_heads, self.linear_key_heads or 1)):
            if many % few:
                raise ValueError(f"config.json: {many} heads cannot share {few} key heads evenly")


def _pattern(layers: int, interval: int) -> list[str]:
    return [FULL if (i + 1) % interval == 0 else LINEAR for i in range(layers)]
