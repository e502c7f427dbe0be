"""Settings of published models, which are not loaded here: they are read, and their tensors add up
to the published sizes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from transformers import Qwen3_5MoeTextConfig, Qwen3_5TextConfig

from mtp.targets.qwen.config import QwenConfig
from mtp.targets.qwen.family import model_shapes

SMOLLM2: dict[str, Any] = {
    "model_type": "llama",
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "vocab_size": 49152,
}
LLAMA_3_2: dict[str, Any] = {
    "model_type": "llama",
    "head_dim": 64,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "vocab_size": 128256,
}
QWEN_2_5: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 24,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN_3: dict[str, Any] = {
    "model_type": "qwen3",
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}


@pytest.mark.parametrize(
    ("raw", "parameters", "kv_bytes"),
    [
        pytest.param(SMOLLM2, 134_515_008, 23_040, id="SmolLM2-135M"),
        pytest.param(LLAMA_3_2, 1_235_814_400, 32_768, id="Llama-3.2-1B"),
        pytest.param(QWEN_2_5, 494_032_768, 12_288, id="Qwen2.5-0.5B"),
        pytest.param(QWEN_3, 596_049_920, 114_688, id="Qwen3-0.6B"),
    ],
)
def test_published_sizes(raw: dict[str, Any], parameters: int, kv_bytes: int):
    """kv_bytes: of a token in bf16, as the page on models says."""
    config = QwenConfig.read(raw)
    shapes = {
        name: shape for name, shape in model_shapes(config).items() if name != "lm_head.weight"
    }
    assert sum(map(math.prod, shapes.values())) == parameters
    assert config.rope.theta == raw["rope_theta"]
    assert len(config.layer_types) * 2 * config.kv_heads * config.head_size * 2 == kv_bytes


@pytest.mark.parametrize(
    ("reference", "kv_bytes", "state_bytes"),
    [
        pytest.param(Qwen3_5TextConfig(), 32_768, 52_690_944, id="Qwen3.5"),
        pytest.param(Qwen3_5MoeTextConfig(), 20_480, 65_863_680, id="Qwen3.5-MoE"),
    ],
)
def test_transformers_own_sizes_of_the_hybrids(reference: Any, kv_bytes: int, state_bytes: int):
    config = QwenConfig.read(reference.to_dict())
    full = config.layer_types.count("full_attention")
    assert full * 2 * config.kv_heads * config.head_size * 2 == kv_bytes
    state = (
        config.linear_value_heads * config.linear_key_size * config.linear_value_size
        + (config.taps - 1) * config.linear_channels
    )
    assert (len(config.layer_types) - full) * 4 * state == state_bytes
    assert config.rope.rotary == config.head_size // 4
