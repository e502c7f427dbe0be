"""Tiny random Gemma checkpoints, and assistants of them, written by transformers itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Gemma4AssistantConfig,
    Gemma4AssistantForCausalLM,
    Gemma4ForCausalLM,
    Gemma4TextConfig,
    PreTrainedModel,
)
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()

SLIDING, FULL = "sliding_attention", "full_attention"
PLAIN: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "layer_types": [SLIDING, SLIDING, SLIDING, FULL],
    "sliding_window": 16,
    "eos_token_id": None,
    "pad_token_id": 0,
    "bos_token_id": 2,
}
GEMMA4 = PLAIN | {
    "global_head_dim": 32,
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 0,
}
PER_LAYER: dict[str, Any] = {  # as E2B and E4B are built
    "num_hidden_layers": 6,
    "layer_types": [SLIDING, SLIDING, FULL, SLIDING, SLIDING, FULL],
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 320,
    "final_logit_softcapping": 3.0,
    "num_key_value_heads": 1,
}
# as 31B is built
ONE_PROJECTION: dict[str, Any] = {
    "attention_k_eq_v": True,
    "num_global_key_value_heads": 1,
}
EXPERTS: dict[str, Any] = ONE_PROJECTION | {  # as 26B-A4B is built
    "enable_moe_block": True,
    "num_experts": 8,
    "top_k_experts": 3,
    "moe_intermediate_size": 20,
}
ODD: dict[str, Any] = {  # nothing is a power of two, nor a multiple of a vector's width
    "vocab_size": 317,
    "hidden_size": 60,
    "intermediate_size": 100,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "head_dim": 22,
    "global_head_dim": 30,
    "sliding_window": 5,
    "num_hidden_layers": 5,
    "layer_types": [SLIDING, FULL, SLIDING, SLIDING, FULL],
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 7,
    "vocab_size_per_layer_input": 331,
}
LINEAR_ROPE: dict[str, Any] = {  # as 4B and larger
    "rope_parameters": {
        FULL: {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
        SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
    }
}


def write_gemma4(
    folder: Path, *, seed: int = 0, max_shard_size: str = "5GB", **config: Any
) -> Path:
    torch.manual_seed(seed)
    return _write(
        Gemma4ForCausalLM(Gemma4TextConfig(**(GEMMA4 | config))), folder, 0.5, max_shard_size
    )


def write_gemma3(
    folder: Path, *, seed: int = 0, max_shard_size: str = "5GB", **config: Any
) -> Path:
    torch.manual_seed(seed)
    return _write(
        Gemma3ForCausalLM(Gemma3TextConfig(**(PLAIN | {"query_pre_attn_scalar": 24} | config))),
        folder,
        1.0,
        max_shard_size,
    )


def write_assistant(
    folder: Path,
    target: Path,
    *,
    seed: int = 0,
    ordered: bool = False,
    hidden: int = 32,
    **text: Any,
) -> Path:
    """Of a target that is written above: heads of its sizes, one layer of each type."""
    torch.manual_seed(seed)
    reference = AutoConfig.from_pretrained(target)
    by_layer = (
        getattr(reference, "per_layer_config", None) or [reference] * reference.num_hidden_layers
    )
    full, sliding = (by_layer[reference.layer_types.index(kind)] for kind in (FULL, SLIDING))
    settings = GEMMA4 | {
        "vocab_size": reference.vocab_size,
        "hidden_size": hidden,
        "num_hidden_layers": 2,
        "layer_types": [SLIDING, FULL],
        "num_attention_heads": reference.num_attention_heads,
        "num_key_value_heads": sliding.num_key_value_heads,
        "head_dim": sliding.head_dim,
        "global_head_dim": full.head_dim,
        "sliding_window": reference.sliding_window,
        "attention_k_eq_v": full.num_key_value_heads != sliding.num_key_value_heads,
        "num_global_key_value_heads": full.num_key_value_heads,
    }
    centroids = next(n for n in range(6, reference.vocab_size + 1) if reference.vocab_size % n == 0)
    config = Gemma4AssistantConfig(
        text_config=Gemma4TextConfig(**(settings | text)),
        backbone_hidden_size=reference.hidden_size,
        use_ordered_embeddings=ordered,
        num_centroids=centroids,
        centroid_intermediate_top_k=4,
    )
    return _write(Gemma4AssistantForCausalLM(config), folder, 0.5, "5GB")


def _write(model: PreTrainedModel, folder: Path, sharpness: float, max_shard_size: str) -> Path:
    """sharpness: of queries and keys, which are not scaled by the head's size in Gemma 4."""
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            parameter.data.normal_(0, 0.1)
        else:
            parameter.data += torch.randn_like(parameter) * 0.1
            parameter.data *= sharpness if "q_norm" in name or "k_norm" in name else 1.0
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.fill_(0.7 + 0.1 * torch.rand(()).item())
        elif name.endswith("token_ordering"):
            buffer.copy_(torch.randperm(len(buffer)))
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return folder
