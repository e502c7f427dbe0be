"""Values that a config.json may have under one key, by family; each is right or wrong for
transformers in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from transformers import (
    Gemma3ForCausalLM,
    Gemma4ForCausalLM,
    LlamaForCausalLM,
    Qwen2ForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3ForCausalLM,
)

from tests.support.checkpoints import (
    write_llama,
    write_qwen2,
    write_qwen3,
    write_qwen3_5,
)
from tests.support.gemma_checkpoints import FULL, SLIDING, write_gemma3, write_gemma4

ABSENT = "absent"  # the key is taken out
LINEAR = "linear_attention"
Values = dict[str, list[Any]]
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
SHAPES: Values = {  # the tensors have
    "vocab_size": [ABSENT, None, 65],
    "hidden_size": [ABSENT, None, 48],
    "intermediate_size": [ABSENT, None],
    "num_hidden_layers": [ABSENT, None, 1],
    "num_attention_heads": [ABSENT, None, 8, 3],
    "num_key_value_heads": [ABSENT, None, 4],
    "head_dim": [ABSENT, None, 16],
    "linear_conv_kernel_dim": [ABSENT, 3],
    "linear_num_key_heads": [ABSENT, 1],
    "linear_num_value_heads": [ABSENT],
    "linear_key_head_dim": [ABSENT],
    "linear_value_head_dim": [ABSENT],
    "global_head_dim": [ABSENT, None, 8],
    "num_global_key_value_heads": [None, 1, 2],
}
EVERYWHERE: Values = {
    "rms_norm_eps": [ABSENT, 0.5, 0.01],
    "max_position_embeddings": [ABSENT, None, 16, 128],
    "tie_word_embeddings": [ABSENT, None, True, False],
    "quantization_config": [None, {}, {"quant_method": "gptq", "bits": 4}],
    "attention_bias": [ABSENT, True, False],
    "attention_dropout": [0.5],
    "hidden_act": [ABSENT, None, "gelu", "silu"],
    "initializer_range": [0.5],
    "use_cache": [False],
    "pretraining_tp": [2],
    "logits_to_keep": [1],
    "residual_multiplier": [0.5],
    "final_logit_softcapping": [5.0, None],
    "attn_logit_softcapping": [5.0, None],
    "sliding_window": [4, None, ABSENT],
    "partial_rotary_factor": [ABSENT, None, 0.5, 1.0],
    "rope_theta": [ABSENT, None, 100.0],
    "torch_dtype": ["float32", "bfloat16"],
}
FLAT_ROPE: Values = {
    "rope_parameters": [
        ABSENT,
        None,
        {},
        {"rope_type": "default"},
        {"rope_theta": 50.0},
        {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5},
        {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 1.0},
        {"rope_type": "default", "rope_theta": 50.0, "factor": 4.0},
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "linear", "factor": 4.0, "rope_theta": 50.0, "partial_rotary_factor": 0.5},
        {"type": "linear", "factor": 2.0},
        {"rope_type": "linear", "type": "default", "factor": 3.0},
        {"rope_type": "linear"},
        {"rope_type": "dynamic", "factor": 2.0},
        {"rope_type": "proportional", "rope_theta": 50.0, "partial_rotary_factor": 0.5},
        {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16},
        {
            "rope_type": "llama3",
            "rope_theta": 50.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {"rope_type": "default", "rope_theta": 50.0, "mrope_section": [1, 1, 0]},
        {FULL: {"rope_type": "default", "rope_theta": 50.0}},
        {FULL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 50.0}, "rope_theta": 9.0},
    ],
    "rope_scaling": [
        None,
        {},
        {"type": "linear", "factor": 4.0},
        {"rope_type": "linear", "factor": 4.0, "rope_theta": 50.0},
        {"rope_type": "default", "mrope_section": [1, 1, 0]},
        {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        {"type": "default", "factor": 4.0},
    ],
}
# the same without a second block to contradict it
OLD_ROPE: Values = {"rope_scaling": FLAT_ROPE["rope_scaling"], "rope_theta": [50.0, None, ABSENT]}
NESTED_ROPE: Values = {
    "rope_parameters": [
        ABSENT,
        None,
        {},
        {FULL: {"rope_type": "linear", "factor": 4.0, "rope_theta": 50.0}},
        {FULL: {"rope_type": "linear", "factor": 4.0}, SLIDING: {"rope_type": "default"}},
        {SLIDING: {"rope_type": "default", "rope_theta": 50.0}},
        {
            FULL: {"rope_type": "proportional", "rope_theta": 50.0, "partial_rotary_factor": 0.5},
            SLIDING: {"rope_type": "default", "rope_theta": 9.0, "partial_rotary_factor": 0.5},
        },
        {
            FULL: {"rope_type": "proportional", "rope_theta": 50.0},
            SLIDING: {"rope_type": "linear", "rope_theta": 9.0, "factor": 2.0},
        },
        {
            FULL: {"rope_type": "default", "rope_theta": 50.0},
            SLIDING: {"rope_type": "default", "rope_theta": 9.0},
        },
        {FULL: {"rope_type": "yarn", "factor": 4.0, "rope_theta": 50.0}, SLIDING: None},
        {"rope_type": "linear", "factor": 4.0, "rope_theta": 50.0},
        {"rope_theta": 50.0},
    ],
    "rope_scaling": FLAT_ROPE["rope_scaling"],
    "rope_local_base_freq": [50.0, None],
}
WINDOWS: Values = {
    "use_sliding_window": [True, False],
    "max_window_layers": [0],
    "layer_types": [ABSENT, None, [], [FULL], [SLIDING, FULL], ["attention", "attention"]],
}
GEMMA: Values = {
    "hidden_activation": [ABSENT, None, "gelu_pytorch_tanh", "gelu", "silu"],
    "query_pre_attn_scalar": [ABSENT, None, 4],
    "layer_types": [ABSENT, None, [], [FULL, FULL, FULL], [SLIDING, SLIDING, SLIDING], [FULL] * 2],
    "sliding_window_pattern": [2, 3, None],
    "_sliding_window_pattern": [2, 6],
    "use_bidirectional_attention": [True, False, None, "all", "vision"],
    "final_logit_softcapping": [5.0, None, ABSENT, 0.0],
}


class Variants(NamedTuple):
    write: Any  # folder, **config
    reference: Any  # transformers' class
    config: dict[str, Any]  # of the folder that is written
    values: Values  # by key of config.json
    start: Mapping[str, Any] = MappingProxyType({})  # what config.json is changed to first


DENSE = {"num_hidden_layers": 2, "mtp": 0}
HYBRID: dict[str, Any] = {
    "num_hidden_layers": 3,
    "layer_types": [LINEAR, LINEAR, FULL],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "mtp": 0,
}
GEMMAS: dict[str, Any] = {
    "num_hidden_layers": 3,
    "layer_types": [SLIDING, SLIDING, FULL],
    "sliding_window": 6,
}
OLD = {"rope_parameters": ABSENT}
FAMILIES: dict[str, Variants] = {
    "llama": Variants(
        write_llama, LlamaForCausalLM, DENSE, {"mlp_bias": [ABSENT, True]} | FLAT_ROPE
    ),
    "llama_of_old": Variants(write_llama, LlamaForCausalLM, DENSE, OLD_ROPE, OLD),
    "qwen2": Variants(write_qwen2, Qwen2ForCausalLM, DENSE, WINDOWS | FLAT_ROPE),
    "qwen3": Variants(write_qwen3, Qwen3ForCausalLM, DENSE, WINDOWS | FLAT_ROPE),
    "qwen3_5": Variants(
        write_qwen3_5,
        Qwen3_5ForCausalLM,
        HYBRID,
        {
            "layer_types": [ABSENT, None, [], [LINEAR] * 3, [FULL] * 3, [FULL, LINEAR]],
            "full_attention_interval": [2, 3],
            "attn_output_gate": [True, False],
            "mtp_use_dedicated_embeddings": [True, False],
        }
        | FLAT_ROPE,
    ),
    "qwen3_5_of_old": Variants(write_qwen3_5, Qwen3_5ForCausalLM, HYBRID, OLD_ROPE, OLD),
    "gemma3": Variants(write_gemma3, Gemma3ForCausalLM, GEMMAS, GEMMA | NESTED_ROPE),
    "gemma3_of_old": Variants(
        write_gemma3,
        Gemma3ForCausalLM,
        GEMMAS,
        OLD_ROPE | {"rope_local_base_freq": [50.0, None]},
        OLD,
    ),
    "gemma4": Variants(
        write_gemma4,
        Gemma4ForCausalLM,
        GEMMAS | {"global_head_dim": 16},
        {
            "attention_k_eq_v": [None, True, False],
            "hidden_size_per_layer_input": [ABSENT, None, 0],
            "vocab_size_per_layer_input": [ABSENT, None],
            "num_kv_shared_layers": [None, 0, 1, 3, 4],
            "use_double_wide_mlp": [None, True],
            "enable_moe_block": [None, True],
            "per_layer_config": [ABSENT, None, {}, {"2": {"head_dim": 16}}, {"2": {"top_k": 1}}],
        }
        | GEMMA
        | NESTED_ROPE,
    ),
    "gemma4_of_old": Variants(
        write_gemma4,
        Gemma4ForCausalLM,
        GEMMAS | {"global_head_dim": 16},
        OLD_ROPE | {"rope_local_base_freq": [50.0, None]},
        OLD,
    ),
}


def changed(config: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """With these keys set, or taken out."""
    return {key: value for key, value in {**config, **values}.items() if value != ABSENT}
