"""The Gemma 4 family of the trainer: transformers' own classes, the folders of target and assistant."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import rms_norm
from transformers import DynamicCache, Gemma4AssistantConfig, Gemma4ForCausalLM, Gemma4TextConfig
from transformers.models.gemma4.modeling_gemma4 import Gemma4RMSNorm

from experiments.checks import BadInput
from experiments.training.assistant import Assistant
from experiments.training.tokenizer import write_tokenizer
from experiments.training.trainable import Family, Read, Target

ASSISTANT = "assistant"  # its folder below the target's


@dataclass(frozen=True)
class GemmaShape:
    """Sizes of target and assistant; their head sizes, key heads and windows are the same."""

    vocab: int = 2048
    hidden: int = 192
    layers: int = 6
    interval: int = 3  # every so-manieth layer is full attention
    shared: int = 3  # last layers that read an earlier layer's keys and values
    intermediate: int = 448
    heads: int = 3
    kv_heads: int = 1
    head_size: int = 64  # of sliding layers
    full_head_size: int = 128
    window: int = 64
    per_layer: int = 16
    softcap: float = 30.0
    context: int = 1024
    assistant_hidden: int = 192
    assistant_layers: int = 2  # the last one is full attention
    assistant_intermediate: int = 384
    clusters: int = 64  # of the assistant's vocabulary, 0: its head is not ordered
    top_clusters: int = 8

    def __post_init__(self) -> None:
        """Raises BadInput."""
        if self.layers % self.interval:
            raise BadInput(f"shape.layers is {self.layers}, expected a multiple of shape.interval ({self.interval})")
        if self.shared > self.layers - self.interval:
            most = self.layers - self.interval
            raise BadInput(f"shape.shared is {self.shared}, expected at most shape.layers - shape.interval ({most})")
        if self.heads % self.kv_heads:
            raise BadInput(f"shape.kv_heads is {self.kv_heads}, expected a divisor of shape.heads ({self.heads})")
        if self.clusters and self.vocab % self.clusters:
            raise BadInput(f"shape.clusters is {self.clusters}, expected a divisor of shape.vocab ({self.vocab})")
        if self.clusters and self.top_clusters > self.clusters:
            raise BadInput(f"shape.top_clusters is {self.top_clusters}, expected at most shape.clusters ({self.clusters})")

    def _config(self, hidden: int, layers: int, interval: int, **others: Any) -> Gemma4TextConfig:
        return Gemma4TextConfig(
            vocab_size=self.vocab,
            hidden_size=hidden,
            num_hidden_layers=layers,
            layer_types=["full_attention" if (i + 1) % interval == 0 else "sliding_attention" for i in range(layers)],
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_size,
            global_head_dim=self.full_head_size,
            sliding_window=self.window,
            max_position_embeddings=self.context,
            pad_token_id=None,  # its row would not be trained
            eos_token_id=[0],
            bos_token_id=None,
            **others,
        )

    def target_config(self) -> Gemma4TextConfig:
        return self._config(
            self.hidden,
            self.layers,
            self.interval,
            intermediate_size=self.intermediate,
            num_kv_shared_layers=self.shared,
            hidden_size_per_layer_input=self.per_layer,
            vocab_size_per_layer_input=self.vocab,
            final_logit_softcapping=self.softcap,
        )

    def assistant_config(self) -> Gemma4AssistantConfig:
        layers = self.assistant_layers
        text = self._config(
            self.assistant_hidden,
            layers,
            layers,
            intermediate_size=self.assistant_intermediate,
            num_kv_shared_layers=layers,
            hidden_size_per_layer_input=0,
            vocab_size_per_layer_input=0,
        )
        return Gemma4AssistantConfig(
            text_config=text,
            backbone_hidden_size=self.hidden,
            use_ordered_embeddings=self.clusters > 0,
            num_centroids=max(1, self.clusters),
            centroid_intermediate_top_k=self.top_clusters,
        )


class Norm(nn.Module):
    """transformers' RMS norm in one call; under the same parameter name."""

    def __init__(self, theirs: Gemma4RMSNorm) -> None:
        super().__init__()
        self.weight, self.eps = (theirs.weight if theirs.with_scale else None), theirs.eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x.float(), x.shape[-1:], self.weight, self.eps).to(x.dtype)


def quicker(module: nn.Module) -> None:
    """In place: the same arithmetic, two thirds of the time of a training step on a CPU."""
    for name, child in module.named_children():
        if isinstance(child, Gemma4RMSNorm):
            setattr(module, name, Norm(child))
        else:
            quicker(child)


class Gemma(Target):
    def __init__(self, shape: GemmaShape) -> None:
        super().__init__()
        self.shape = shape
        self.net = Gemma4ForCausalLM(shape.target_config())
        quicker(self.net)

    def state(self) -> DynamicCache:
        return DynamicCache(config=self.net.config)

    def forward(self, ids: Tensor, state: DynamicCache | None = None) -> Tensor:
        out: Tensor = self.net.model(ids, cache=state, use_cache=state is not None).last_hidden_state
        return out

    def read(self, ids: Tensor) -> Read:
        out = self.net.model(ids, use_cache=False, return_shared_kv_states=True)
        return Read(out.last_hidden_state, dict(out.shared_kv_states))

    def logits(self, hidden: Tensor) -> Tensor:
        cap = self.shape.softcap
        return torch.tanh(self.net.lm_head(hidden) / cap) * cap

    def embed(self, ids: Tensor) -> Tensor:
        out: Tensor = self.net.model.embed_tokens(ids)
        return out


def start_assistant(target: Gemma) -> Assistant:
    return Assistant.start(target.shape.assistant_config(), target.net)


def published(config: Gemma4TextConfig, dtype: torch.dtype) -> dict[str, Any]:
    """A text config as published checkpoints write it: the full layers' head size is one key."""
    values = config.to_dict() | {"dtype": str(dtype).removeprefix("torch.")}
    (overrides,) = {tuple(one.items()) for one in values.pop("per_layer_config").values()}
    return values | {"global_head_dim": dict(overrides)["head_dim"]}


def write_weights(net: nn.Module, folder: Path, dtype: torch.dtype) -> None:
    """Without the head, which is the embedding. Aside, then renamed."""
    weights = {name: tensor.detach() for name, tensor in net.state_dict().items() if name != "lm_head.weight"}
    kept = {name: (tensor.to(dtype) if tensor.is_floating_point() else tensor).contiguous() for name, tensor in weights.items()}
    save_file(kept, folder / "model.part", metadata={"format": "pt"})
    (folder / "model.part").replace(folder / "model.safetensors")


def write_assistant(assistant: Assistant, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    config = assistant.net.config.to_dict() | {"architectures": ["Gemma4AssistantForCausalLM"], "dtype": str(dtype).removeprefix("torch.")}
    config["text_config"] = published(assistant.net.config.text_config, dtype)
    _write_json(folder / "config.json", config)
    write_weights(assistant.net, folder, dtype)


def write_folder(target: Gemma, assistant: Assistant, tokenizer: Tokenizer, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    end = write_tokenizer(tokenizer, folder, target.shape.context)
    _write_json(folder / "config.json", published(target.net.config, dtype) | {"architectures": ["Gemma4ForCausalLM"], "eos_token_id": [end]})
    _write_json(folder / "generation_config.json", {"eos_token_id": [end], "pad_token_id": end, "do_sample": False})
    write_weights(target.net, folder, dtype)
    write_assistant(assistant, folder / ASSISTANT, dtype)


def read_folder(folder: Path, drafter: str = f"{ASSISTANT}/model.safetensors") -> tuple[Gemma, Assistant, Tokenizer]:
    """In fp32."""
    training = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    target = Gemma(GemmaShape(**training["recipe"]["shape"]))
    assistant = Assistant(target.shape.assistant_config())
    for net, file in ((target.net, folder / "model.safetensors"), (assistant.net, folder / drafter)):
        stored = load_file(file)
        weights = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in stored.items()}
        missing, unexpected = net.load_state_dict(weights, strict=False)
        assert missing == ["lm_head.weight"], missing
        assert not unexpected, unexpected
    return target.eval(), assistant.eval(), Tokenizer.from_file(str(folder / "tokenizer.json"))


def about(shape: dict[str, Any], weights: float, size: float) -> str:
    kinds = f"{shape['interval'] - 1} sliding layers of {shape['window']} tokens, then one of full attention, and again"
    ordered = f"{shape['clusters']} clusters of which it looks at {shape['top_clusters']}" if shape["clusters"] else "off"
    return f"""# tiny_gemma

A Gemma 4-style text model ({shape["layers"]} layers: {kinds}; the last {shape["shared"]} read earlier layers' keys and values; hidden
{shape["hidden"]}, vocabulary {shape["vocab"]}, per-layer embeddings of {shape["per_layer"]}, logits capped at {shape["softcap"]:g}) with its assistant
in `assistant/` ({shape["assistant_layers"]} layers, hidden {shape["assistant_hidden"]}; ordered head: {ordered}), small enough to live in a
repository: {weights:.1f} MB of bf16 weights without the assistant, {size:.1f} MB in all. It exists so that speculative decoding with an
assistant that has no keys and values of its own can be tested and measured on a CPU on text that is not random. It knows nothing;
do not ask it anything. transformers trained it and loads it: `Gemma4ForCausalLM`, `Gemma4AssistantForCausalLM`."""


def _write_json(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


FAMILY = Family(
    shape=GemmaShape,
    target=Gemma,
    drafter=start_assistant,
    write=write_folder,
    read=read_folder,
    write_drafter=lambda assistant, file: write_assistant(assistant, file.parent),
    about=about,
    drafters={"assistant": f"{ASSISTANT}/model.safetensors"},
)
