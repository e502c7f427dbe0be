"""A GGUF file becomes a Hugging Face folder in bf16."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from experiments.weights.families import FAMILIES
from experiments.weights.gguf_tokenizer import settings_of, tokenizer_of

Watch = Callable[[int, int], None]  # tensors done, tensors in all


def convert(gguf: Path, folder: Path, watch: Watch = lambda done, total: None) -> None:
    """Writes config.json, generation_config.json, tokenizer files and model.safetensors.

    Raises ValueError, one line, for an architecture, a tokenizer or a tensor that is not known
    here; ImportError without `gguf`.
    """
    from gguf import GGUFReader, dequantize

    reader = GGUFReader(gguf)
    kept: dict[str, Any] = {}

    def fields(key: str) -> Any:
        if key not in kept:
            field = reader.get_field(key)
            kept[key] = None if field is None else field.contents()
        return kept[key]

    kind = fields("general.architecture")
    if kind not in FAMILIES:
        raise ValueError(
            f"the GGUF file's architecture is {kind!r}, supported: {', '.join(sorted(FAMILIES))}"
        )
    family = FAMILIES[kind](fields)
    tensors: dict[str, Tensor] = {}
    for number, stored in enumerate(reader.tensors):
        watch(number, len(reader.tensors))
        name = family.name(stored.name)
        if name is None:
            raise ValueError(f"the GGUF file holds {stored.name}, for which {kind} has no place")
        value = family.value(
            name, np.asarray(dequantize(stored.data, stored.tensor_type), dtype=np.float32)
        )
        tensors[name] = torch.tensor(value).bfloat16()
    watch(len(reader.tensors), len(reader.tensors))

    def write(name: str, values: dict[str, Any]) -> None:
        (folder / name).write_text(
            json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )

    ids = {
        f"{name}_token_id": fields(f"tokenizer.ggml.{key}_token_id")
        for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    tied = "lm_head.weight" not in tensors
    write("config.json", family.config() | ids | {"tie_word_embeddings": tied, "dtype": "bfloat16"})
    write("generation_config.json", ids | {"do_sample": False})
    write("tokenizer_config.json", settings_of(fields))
    tokenizer_of(fields).save(str(folder / "tokenizer.json"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
