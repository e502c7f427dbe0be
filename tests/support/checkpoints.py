"""Tiny random checkpoints, written by transformers itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5MoeForCausalLM,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.modeling_layers import MtpModel
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()


def with_mtp(model: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """The class as transformers loads it where the file also carries `mtp.*` (which marks what its
    MtpModel looks for)."""
    return type(
        model.__name__,
        (model,),
        {"_keys_to_ignore_on_load_unexpected": [r"^mtp.*"], "__module__": model.__module__},
    )


LlamaWithMtp, Qwen2WithMtp, DenseWithMtp = map(
    with_mtp, (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
)
QWEN3_5: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
MOE: dict[str, Any] = {
    "num_experts": 6,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 40,
    "shared_expert_intermediate_size": 48,
}
ODD: dict[str, Any] = {  # nothing is a power of two, nor a multiple of a vector's width
    "vocab_size": 317,
    "hidden_size": 60,
    "intermediate_size": 100,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 22,
    "linear_num_key_heads": 3,
    "linear_num_value_heads": 9,
    "linear_key_head_dim": 10,
    "linear_value_head_dim": 14,
    "linear_conv_kernel_dim": 3,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.3,
    },
}
ONE_HEAD: dict[str, Any] = {
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 1,
    "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"],
    "tie_word_embeddings": True,
}
NINE_HEADS: dict[str, Any] = {  # as SmolLM2
    "hidden_size": 72,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": None,
    "tie_word_embeddings": True,
}
LLAMA3_ROPE: dict[
    str, Any
] = {  # frequencies of every kind within 150 positions: kept, mixed and divided
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR_ROPE: dict[str, Any] = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
DENSE: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


def write_qwen3_5(
    folder: Path, *, mtp: int = 1, seed: int = 0, max_shard_size: str = "5GB", **config: Any
) -> Path:
    """A Qwen 3.5 text model (by default 3 gated-delta layers and 1 full), norms, conv and gates
    random; mtp: layers of its MTP head."""
    torch.manual_seed(seed)
    settings = Qwen3_5TextConfig(**(QWEN3_5 | {"eos_token_id": None, "pad_token_id": 0} | config))
    return _write(
        Qwen3_5ForCausalLM(settings),
        folder,
        settings.layer_types.index("full_attention"),
        mtp,
        0.0,
        max_shard_size,
    )


def write_qwen3_5_moe(
    folder: Path, *, mtp: int = 1, seed: int = 0, max_shard_size: str = "5GB", **config: Any
) -> Path:
    """The same with experts, as transformers stores them: one by one."""
    torch.manual_seed(seed)
    sizes = {name: value for name, value in QWEN3_5.items() if name != "intermediate_size"} | MOE
    settings = Qwen3_5MoeTextConfig(**(sizes | {"eos_token_id": None, "pad_token_id": 0} | config))
    return _write(
        Qwen3_5MoeForCausalLM(settings),
        folder,
        settings.layer_types.index("full_attention"),
        mtp,
        0.0,
        max_shard_size,
    )


def write_qwen3(
    folder: Path, *, mtp: int = 1, seed: int = 0, max_shard_size: str = "5GB", **config: Any
) -> Path:
    """A dense Qwen 3 model; mtp: layers of an MTP head in the family's layout, 0 for none."""
    return _write_dense(DenseWithMtp, Qwen3Config, folder, mtp, seed, max_shard_size, config)


def write_qwen2(
    folder: Path, *, mtp: int = 1, seed: int = 0, max_shard_size: str = "5GB", **config: Any
) -> Path:
    return _write_dense(
        Qwen2WithMtp, Qwen2Config, folder, mtp, seed, max_shard_size, {"head_dim": None} | config
    )


def write_llama(
    folder: Path, *, mtp: int = 1, seed: int = 0, max_shard_size: str = "5GB", **config: Any
) -> Path:
    return _write_dense(LlamaWithMtp, LlamaConfig, folder, mtp, seed, max_shard_size, config)


def _write_dense(
    model: Any,
    config: Any,
    folder: Path,
    mtp: int,
    seed: int,
    max_shard_size: str,
    changes: dict[str, Any],
) -> Path:
    torch.manual_seed(seed)
    settings = {**DENSE, "eos_token_id": None, "bos_token_id": None, "pad_token_id": 0} | changes
    return _write(
        model(config(**{k: v for k, v in settings.items() if k != "head_dim" or v})),
        folder,
        0,
        mtp,
        1.0,
        max_shard_size,
    )


def _write(
    model: PreTrainedModel,
    folder: Path,
    full_layer: int,
    mtp: int,
    norm: float,
    max_shard_size: str,
) -> Path:
    hidden = model.config.hidden_size
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and "A_log" not in name:
            parameter.data += torch.randn_like(parameter) * 0.1
        elif parameter.ndim > 1:
            parameter.data.normal_(0, 0.3 if "conv1d" in name else 0.1)

    def random(like: torch.Tensor) -> torch.Tensor:
        return torch.randn_like(like) * 0.1 + (norm if like.ndim == 1 else 0.0)

    layer = f"model.layers.{full_layer}."
    stored = model.state_dict()
    block = {
        name.removeprefix(layer): tensor
        for name, tensor in stored.items()
        if name.startswith(layer)
    }
    heads = {
        f"mtp.layers.{k}.{name}": random(tensor)
        for k in range(mtp)
        for name, tensor in block.items()
    }
    heads |= {
        f"mtp.{name}.weight": norm + torch.randn(hidden) * 0.1
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    }
    heads |= {"mtp.fc.weight": torch.randn(hidden, 2 * hidden) * 0.1}
    if mtp:
        model.config.num_mtp_layers = int(mtp)
        model.config.mtp_layer_types = ["full_attention"] * mtp
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    if mtp:
        _add(folder, heads)
    return folder


def _add(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        save_file(tensors, folder / "mtp.safetensors", metadata={"format": "pt"})
        listed = json.loads(index.read_text())
        listed["weight_map"] |= dict.fromkeys(tensors, "mtp.safetensors")
        index.write_text(json.dumps(listed))
    else:
        rewrite(folder, lambda stored: stored | tensors)


def rewrite(folder: Path, change: Any, file: str = "model.safetensors") -> None:
    """The file's tensors, changed: change(dict of tensors) -> dict of tensors."""
    save_file(change(load_file(folder / file)), folder / file, metadata={"format": "pt"})


def mtp_model(target: PreTrainedModel, folder: Path) -> MtpModel:
    """transformers' head with the folder's `mtp.*`; its own loading knows the Qwen layout of one
    layer only."""
    layers = target.config.num_mtp_layers
    if layers == 1:
        return MtpModel.from_pretrained(target).eval()
    stored = load_file(folder / "model.safetensors")
    shared = {
        "eh_proj": "fc",
        "enorm": "pre_fc_norm_embedding",
        "hnorm": "pre_fc_norm_hidden",
        "post_norm": "norm",
    }
    head = MtpModel(target, layers)
    for k, layer in enumerate(head.layers):
        prefix = f"mtp.layers.{k}."
        state = {
            f"mtp_block.{name.removeprefix(prefix)}": tensor
            for name, tensor in stored.items()
            if name.startswith(prefix)
        }
        layer.load_state_dict(
            state
            | {f"{name}.weight": stored[f"mtp.{ours}.weight"] for name, ours in shared.items()}
        )
    return head.eval()
