"""The Gemma 4 family of the trainer: the folders of target and assistant, written and read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn
from transformers import PreTrainedConfig

from experiments.io import write_json
from experiments.training.assistant import Assistant
from experiments.training.gemma import GemmaModel, GemmaShape
from experiments.training.tokenizer import write_tokenizer
from experiments.training.trainable import TrainableFamily
from experiments.workloads.tokenizer import load_tokenizer
from mtp.files import whole
from mtp.targets.loading.weights import tensors_in

ASSISTANT = "assistant"  # its folder below the target's


def start_assistant(target: GemmaModel) -> Assistant:
    return Assistant.start(
        target.shape.assistant_config(),
        target.net.state_dict(),
        target.net.config.layer_types or (),
    )


def published(config: PreTrainedConfig, dtype: torch.dtype) -> dict[str, Any]:
    """A text config as published checkpoints write it.

    What full layers have of their own is one key for all of them. Raises ValueError, one line,
    where they differ from each other.
    """
    values = _settings(config) | {"dtype": str(dtype).removeprefix("torch.")}
    own = {tuple(sorted(one.items())) for one in values.pop("per_layer_config").values()} or {()}
    if len(own) > 1:
        raise ValueError(
            f"full layers differ from each other: {sorted(own)}, expected the same heads in all of "
            "them"
        )
    full = dict(*own)
    if "num_key_value_heads" in full:
        values["num_global_key_value_heads"] = full["num_key_value_heads"]
    return values | {"global_head_dim": full.get("head_dim", values["head_dim"])}


def _settings(config: PreTrainedConfig) -> dict[str, Any]:
    """Without what every model of transformers has."""
    values: dict[str, Any] = json.loads(config.to_json_string())
    return values


def write_weights(net: nn.Module, folder: Path, dtype: torch.dtype) -> None:
    """Without the head, which is the embedding. Aside, then renamed."""
    weights = {
        name: tensor.detach()
        for name, tensor in net.state_dict().items()
        if name != "lm_head.weight"
    }
    kept = {
        name: (tensor.to(dtype) if tensor.is_floating_point() else tensor).contiguous()
        for name, tensor in weights.items()
    }
    with whole(folder / "model.safetensors") as aside:
        save_file(kept, aside, metadata={"format": "pt"})


def write_assistant(
    assistant: Assistant, folder: Path, dtype: torch.dtype = torch.bfloat16
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    config = _settings(assistant.net.config) | {
        "architectures": ["Gemma4AssistantForCausalLM"],
        "dtype": str(dtype).removeprefix("torch."),
    }
    config["text_config"] = published(assistant.net.config.get_text_config(), dtype)
    write_json(folder / "config.json", config, indent=2)
    write_weights(assistant.net, folder, dtype)


def write_folder(
    target: GemmaModel,
    assistant: Assistant,
    tokenizer: Tokenizer,
    folder: Path,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    end = write_tokenizer(tokenizer, folder, target.shape.context)
    write_json(
        folder / "config.json",
        published(target.net.config, dtype)
        | {"architectures": ["Gemma4ForCausalLM"], "eos_token_id": [end]},
        indent=2,
    )
    write_json(
        folder / "generation_config.json",
        {"eos_token_id": [end], "pad_token_id": end, "do_sample": False},
        indent=2,
    )
    write_weights(target.net, folder, dtype)
    write_assistant(assistant, folder / ASSISTANT, dtype)


def shape_of(config: dict[str, Any], assistant: dict[str, Any]) -> GemmaShape:
    """Of the two config.json."""
    text = assistant["text_config"]
    return GemmaShape(
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        interval=config["layer_types"].index("full_attention") + 1,
        shared=config["num_kv_shared_layers"],
        intermediate=config["intermediate_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_size=config["head_dim"],
        full_head_size=config["global_head_dim"],
        window=config["sliding_window"],
        per_layer=config["hidden_size_per_layer_input"],
        softcap=config["final_logit_softcapping"],
        context=config["max_position_embeddings"],
        assistant_hidden=text["hidden_size"],
        assistant_layers=text["num_hidden_layers"],
        assistant_intermediate=text["intermediate_size"],
        clusters=assistant["num_centroids"] if assistant["use_ordered_embeddings"] else 0,
        top_clusters=assistant["centroid_intermediate_top_k"],
    )


def read_folder(
    folder: Path, drafter: str = f"{ASSISTANT}/model.safetensors"
) -> tuple[GemmaModel, Assistant, Tokenizer]:
    """Target and assistant in fp32, and the tokenizer. drafter: the assistant's file."""
    configs = (
        json.loads((file.parent / "config.json").read_text(encoding="utf-8"))
        for file in (folder / "config.json", folder / drafter)
    )
    target = GemmaModel(shape_of(*configs))
    assistant = Assistant(target.shape.assistant_config())
    for net, file in (
        (target.net, folder / "model.safetensors"),
        (assistant.net, folder / drafter),
    ):
        stored = tensors_in(file)
        weights = {
            name: tensor.float() if tensor.is_floating_point() else tensor
            for name, tensor in stored.items()
        }
        missing, unexpected = net.load_state_dict(weights, strict=False)
        assert missing == ["lm_head.weight"], missing
        assert not unexpected, unexpected
    return target.eval(), assistant.eval(), load_tokenizer(folder / "tokenizer.json")


def about(shape: dict[str, Any], weights: float, size: float) -> list[str]:
    ordered = (
        f"ordered in {shape['clusters']} clusters of which it looks at {shape['top_clusters']}"
        if shape["clusters"]
        else "not ordered"
    )
    return [
        f"A Gemma 4-style text model ({shape['layers']} layers: {shape['interval'] - 1} that see "
        f"{shape['window']} tokens, then one of "
        f"full attention, and again; the last {shape['shared']} read earlier layers' keys and "
        f"values; hidden {shape['hidden']}, vocabulary "
        f"{shape['vocab']}, per-layer embeddings of {shape['per_layer']}, logits capped at "
        f"{shape['softcap']:g}) with its assistant in "
        f"`assistant/` ({shape['assistant_layers']} layers, hidden {shape['assistant_hidden']}, "
        f"head {ordered}), small enough to live in a "
        f"repository: {weights:.1f} MB of bf16 weights, {size:.1f} MB with tokenizer and "
        "assistant. It exists so that speculative decoding "
        "with an assistant that has no keys and values of its own can be tested and measured on a "
        "CPU on text that is not random. It knows "
        "nothing; do not ask it anything.",
        "transformers loads both: `Gemma4ForCausalLM` and, from `assistant/`, "
        "`Gemma4AssistantForCausalLM`.",
    ]


# measured once on the shipped weights, apart from the figures
CLUSTERS = """\
What the ordered head gives up, measured on 32 texts of each kind with the same weights:

| clusters looked at, of 64 | first draft, novel tokens, code / prose \
| tokens per round, code / prose |
|---|---|---|
| 4 | 0.72 / 0.76 | 2.73 / 3.01 |
| 8 (as shipped) | 0.74 / 0.77 | 2.80 / 3.07 |
| 64 | 0.75 / 0.77 | 2.82 / 3.08 |
"""

FAMILY = TrainableFamily(
    name="tiny_gemma",
    shape=GemmaShape,
    target=GemmaModel,
    drafter=start_assistant,
    write=write_folder,
    read=read_folder,
    write_drafter=lambda assistant, file: write_assistant(assistant, file.parent),
    about=about,
    measured=CLUSTERS,
    beside=", smooth L1 to its rows, cross-entropy to its shares of the vocabulary's clusters",
    drafters={"assistant": f"{ASSISTANT}/model.safetensors"},
)
