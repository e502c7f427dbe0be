"""config.json of the Qwen text models and of Llama, which are built alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mtp.targets.loading.config import (
    FULL,
    LINEAR,
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


@dataclass(frozen=True)
class Dialect:
    """How one architecture differs from the others."""

    norm_offset: float = 0.0  # the runtime weight of a norm = offset + stored
    qk_norm: bool = False
    qkv_bias: bool = False
    output_gate: bool = False  # attention's output is gated by a part of its query projection
    hybrid: bool = False  # has gated-delta layers
    experts: bool = False  # a mixture of experts in the place of each MLP
    # where config.json does not say, as transformers has it:
    rotary_share: float = 1.0  # of a head's width; another one is known to hybrids alone
    head_size: int | None = None  # None: hidden size / heads
    positions: int = 32768


ROPES = ("default", "linear", "llama3")
DIALECTS = {
    "llama": Dialect(positions=2048),
    "qwen2": Dialect(qkv_bias=True),
    "qwen3": Dialect(qk_norm=True, head_size=128),
    "qwen3_5_text": Dialect(
        norm_offset=1.0,
        qk_norm=True,
        output_gate=True,
        hybrid=True,
        rotary_share=0.25,
        head_size=256,
    ),
}
DIALECTS["qwen3_5_moe_text"] = replace(DIALECTS["qwen3_5_text"], experts=True)
ALIASES = {"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}
MODEL_TYPES = (*DIALECTS, *ALIASES)


@dataclass(frozen=True)
class QwenConfig(TextConfig):
    """linear_*: of the gated-delta layers, 0 in a model without them."""

    dialect: Dialect
    rope: RopeSettings
    intermediate: int  # 0 in a model of experts
    experts: ExpertForm | None
    heads: int
    kv_heads: int
    head_size: int
    linear_key_heads: int
    linear_value_heads: int
    linear_key_size: int
    linear_value_size: int
    taps: int  # of the causal convolution
    mtp_layers: int  # of an MTP head, where there is one

    @property
    def linear_channels(self) -> int:
        """Queries, keys and values of a gated-delta layer: what its convolution runs over."""
        return (
            2 * self.linear_key_heads * self.linear_key_size
            + self.linear_value_heads * self.linear_value_size
        )

    @property
    def kv_forms(self) -> dict[str, AttentionForm]:
        return {FULL: self.attention}

    @property
    def attention(self) -> AttentionForm:
        d = self.dialect
        return AttentionForm(
            self.hidden,
            self.heads,
            self.kv_heads,
            self.head_size,
            FULL,
            self.eps,
            d.norm_offset,
            d.qk_norm,
            d.qkv_bias,
            d.output_gate,
        )

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> QwenConfig:
        """From config.json's text part.

        Raises ValueError, one line, for another architecture and settings that the code does not
        follow.
        """
        name = raw.get("model_type")
        if name not in MODEL_TYPES:
            raise ValueError(f"model_type is {name!r}, supported: {', '.join(sorted(MODEL_TYPES))}")
        dialect = DIALECTS[ALIASES.get(name, name)]
        split = max(1, size_in(raw, "hidden_size") // size_in(raw, "num_attention_heads"))
        head = size_in(raw, "head_dim", dialect.head_size or split)
        positions = size_in(raw, "max_position_embeddings", dialect.positions)

        def linear(key: str, absent: int = 0) -> int:
            return size_in(raw, f"linear_{key}") if dialect.hybrid else absent

        config = cls(
            dialect=dialect,
            rope=_rope(raw, dialect, head, positions),
            vocab=size_in(raw, "vocab_size"),
            hidden=size_in(raw, "hidden_size"),
            intermediate=0 if dialect.experts else size_in(raw, "intermediate_size"),
            experts=ExpertForm.read(raw, "num_experts_per_tok", "shared_expert_intermediate_size")
            if dialect.experts
            else None,
            heads=size_in(raw, "num_attention_heads"),
            kv_heads=size_in(raw, "num_key_value_heads", size_in(raw, "num_attention_heads")),
            head_size=head,
            eps=number_in(raw, "rms_norm_eps", default=1e-6),
            tied=flag_in(raw, "tie_word_embeddings"),
            layer_types=_layer_types(raw, dialect),
            max_positions=positions,
            linear_key_heads=linear("num_key_heads"),
            linear_value_heads=linear("num_value_heads"),
            linear_key_size=linear("key_head_dim"),
            linear_value_size=linear("value_head_dim"),
            taps=linear("conv_kernel_dim", 1),
            mtp_layers=max(
                1,
                *(
                    size_in(raw, key, 0, least=0)
                    for key in ("mtp_num_hidden_layers", "num_mtp_layers")
                ),
            ),
        )
        config._check(raw)
        return config

    def _check(self, raw: Mapping[str, Any]) -> None:
        follow(
            {
                "hidden_act": (raw.get("hidden_act", "silu"), "silu"),
                "attention_bias": (raw.get("attention_bias") or False, False),
                "mlp_bias": (raw.get("mlp_bias") or False, False),
                "dual_chunk_attention_config": (raw.get("dual_chunk_attention_config"), None),
                "use_sliding_window": (raw.get("use_sliding_window") or False, False),
                "attn_output_gate": (
                    raw.get("attn_output_gate", self.dialect.output_gate),
                    self.dialect.output_gate,
                ),
                "mtp_use_dedicated_embeddings": (
                    raw.get("mtp_use_dedicated_embeddings") or False,
                    False,
                ),
            }
        )
        rotary = self.rope.rotary
        if rotary < 2 or rotary % 2 or rotary > self.head_size:
            raise ValueError(
                f"config.json: {rotary} rotated elements of a head, "
                f"expected an even number from 2 to {self.head_size}"
            )
        for many, few in (
            (self.heads, self.kv_heads),
            (self.linear_value_heads, self.linear_key_heads or 1),
        ):
            if many % few:
                raise ValueError(f"config.json: {many} heads cannot share {few} key heads evenly")


def _rope(raw: Mapping[str, Any], dialect: Dialect, head: int, positions: int) -> RopeSettings:
    """What rope_parameters (or rope_scaling) says comes before the keys beside it."""
    where = "rope_parameters" if raw.get("rope_parameters") else "rope_scaling"
    rope = part_in(raw, where)
    if nested := [key for key, value in rope.items() if isinstance(value, Mapping)]:
        raise ValueError(
            f"config.json: {where}.{nested[0]} is {rope[nested[0]]!r}, "
            "expected one block for all layers"
        )
    outer = {key: raw[key] for key in ("rope_theta", "partial_rotary_factor") if key in raw}
    rope = {"original_max_position_embeddings": positions, **outer, **rope}
    if raw.get("original_max_position_embeddings") is not None:  # as Phi 3 writes it
        rope["original_max_position_embeddings"] = raw["original_max_position_embeddings"]
    if not dialect.hybrid:
        whole_rotary(rope)
        rope.pop("partial_rotary_factor", None)
    rope.setdefault("partial_rotary_factor", dialect.rotary_share)
    return RopeSettings.read(
        rope,
        rotary=int(head * number_in(rope, "partial_rotary_factor")),
        theta=number_in(rope, "rope_theta", default=10000.0),
        kinds=ROPES,
    )


def _layer_types(raw: Mapping[str, Any], dialect: Dialect) -> tuple[str, ...]:
    layers = size_in(raw, "num_hidden_layers")
    interval = size_in(raw, "full_attention_interval", 4) if dialect.hybrid else 1
    known = (FULL, LINEAR) if dialect.hybrid else (FULL,)
    return tuple(
        layer_types_in(raw, known, [LINEAR if (i + 1) % interval else FULL for i in range(layers)])
    )
