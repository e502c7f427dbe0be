"""The Qwen 3.5 family of the trainer: its Hugging Face folder, written and read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from experiments.io import write_json
from experiments.training.model import QwenModel, QwenShape
from experiments.training.mtp_head import MtpHead
from experiments.training.tokenizer import write_tokenizer
from experiments.training.trainable import TrainableFamily
from experiments.workloads.tokenizer import load_tokenizer
from mtp.files import whole
from mtp.targets.loading.weights import tensors_in


def head_tensors(head: MtpHead, dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    return {
        f"mtp.{name}": tensor.detach().to(dtype).contiguous()
        for name, tensor in head.state_dict().items()
    }


def write_head(head: MtpHead, file: Path) -> None:
    """Aside, then renamed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole(file) as aside:
        save_file(head_tensors(head), aside, metadata={"format": "pt"})


def write_folder(
    model: QwenModel,
    head: MtpHead,
    tokenizer: Tokenizer,
    folder: Path,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    end = write_tokenizer(tokenizer, folder, model.shape.context)
    config = model.shape.config(end) | {"dtype": str(dtype).removeprefix("torch.")}
    write_json(folder / "config.json", config, indent=2)
    generation = {"eos_token_id": end, "pad_token_id": end, "do_sample": False}
    write_json(folder / "generation_config.json", generation, indent=2)
    weights = {
        name: tensor.detach().to(dtype).contiguous() for name, tensor in model.state_dict().items()
    }
    with whole(folder / "model.safetensors") as aside:
        save_file(weights | head_tensors(head, dtype), aside, metadata={"format": "pt"})


def read_folder(
    folder: Path, drafter: str = "model.safetensors"
) -> tuple[QwenModel, MtpHead, Tokenizer]:
    """In fp32. drafter: another file of the folder that holds the `mtp.` tensors."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    shape = QwenShape(
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        interval=config["layer_types"].index("full_attention") + 1,
        intermediate=config["intermediate_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_size=config["head_dim"],
        rotary=config["rope_parameters"]["partial_rotary_factor"],
        theta=config["rope_parameters"]["rope_theta"],
        linear_heads=config["linear_num_key_heads"],
        linear_key=config["linear_key_head_dim"],
        linear_value=config["linear_value_head_dim"],
        kernel=config["linear_conv_kernel_dim"],
        context=config["max_position_embeddings"],
    )
    model = QwenModel(shape)
    stored = tensors_in(folder / "model.safetensors")
    model.load_state_dict(
        {name: tensor.float() for name, tensor in stored.items() if not name.startswith("mtp.")}
    )
    head = MtpHead(model)
    stored = tensors_in(folder / drafter)
    head.load_state_dict(
        {
            name.removeprefix("mtp."): tensor.float()
            for name, tensor in stored.items()
            if name.startswith("mtp.")
        }
    )
    return model.eval(), head.eval(), load_tokenizer(folder / "tokenizer.json")


def about(shape: dict[str, Any], weights: float, size: float) -> list[str]:
    return [
        f"A Qwen 3.5-style hybrid language model ({shape['layers']} layers: "
        f"{shape['interval'] - 1} gated-delta layers, then one of full "
        f"attention, and again; hidden {shape['hidden']}, vocabulary {shape['vocab']}) with its "
        "MTP head, small enough to live in a "
        f"repository: {weights:.1f} MB of bf16 weights, {size:.1f} MB with tokenizer and the heads "
        "from along the training. It exists so "
        "that speculative decoding can be tested and measured on a CPU on text that is not random. "
        "It knows "
        "nothing; do not ask it anything.",
        "`heads/low.safetensors` and `heads/mid.safetensors` hold the head as it was after about "
        "9% and 19% of its steps, for studies with "
        "weaker drafters; `model.safetensors` holds the last one.",
    ]


# measured once, apart from the run that the card is about
LOOPS = """
What helped, measured. Phase 2, with it against without it, 450 steps of all phases each, \
the same seed:

| | held-out loss, code / prose | after a repeated 16-gram | distinct 4-grams |
|---|---|---|---|
| without phase 2 (`share_loops=0`) | 3.55 / 3.90 | 54% / 53% | 0.33 / 0.34 |
| with it (`share_loops=0.12`) | 3.68 / 4.02 | 32% / 34% | 0.58 / 0.58 |

More text, 1.3 against 6.5 million tokens of phase 1: after a repeated 16-gram \
37% / 36% against 32% / 29%, distinct 4-grams
0.52 / 0.57 against 0.60 / 0.57. Vocabulary and data order were not varied.
"""

FAMILY = TrainableFamily(
    name="tiny_qwen",
    shape=QwenShape,
    target=QwenModel,
    drafter=MtpHead,
    write=write_folder,
    read=read_folder,
    write_drafter=write_head,
    about=about,
    measured=LOOPS,
    drafters={
        "low": "heads/low.safetensors",
        "mid": "heads/mid.safetensors",
        "high": "model.safetensors",
    },
    snapshots={0.27: "low", 0.35: "mid"},
)
