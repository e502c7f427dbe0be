"""transformers on the same weights: plain `generate`, and its assisted generation where it has
one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bench.decoding.alternating import Tokens
from bench.decoding.runs import Generate, Text

OUR_DEPTH = 3  # drafts of a chain, where an assistant's folder does not say


def load_transformers(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """Its model class for the folder; of the Qwens one that leaves the MTP head in the folder
    for `use_mtp`."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    if layers := getattr(config, "mtp_num_hidden_layers", 0):
        config.num_mtp_layers, config.mtp_layer_types = layers, ["full_attention"] * layers
    known: Any = AutoModelForCausalLM._model_mapping[type(config)]
    made: Any = type(known.__name__, (known,), {"_keys_to_ignore_on_load_unexpected": [r"^mtp.*"]})
    model = made.from_pretrained(folder, config=config, dtype=dtype).eval().to(device)
    model.generation_config.eos_token_id = None  # every text has the same length
    return model


def transformers_decoding(model: Any, texts: Sequence[Text], **assisted: Any) -> Generate:
    ids = torch.tensor(texts, device=model.device)

    def generate(new: int) -> Tokens:
        with torch.inference_mode():
            out = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new,
                do_sample=False,
                **assisted,
            )
        return {str(number): tuple(row[ids.shape[1] :]) for number, row in enumerate(out.tolist())}

    return generate


def assistance(
    model: Any, folder: Path, drafter: Path | None, text: Text
) -> tuple[dict[str, Any] | None, str]:
    """Arguments of `generate` that make it assisted, tried on a few tokens; or None and why."""
    try:
        options = _options(model, folder, drafter)
        transformers_decoding(model, [text], **options)(4)
    except Exception as refused:
        return None, f"{type(refused).__name__}: {' '.join(str(refused).split())[:160]}"
    return options, ", ".join(options)


def _options(model: Any, folder: Path, drafter: Path | None) -> dict[str, Any]:
    from transformers import AutoModelForCausalLM

    if drafter is None:
        raise ValueError("this pair has no drafter with weights")
    if "assistant" in json.loads((drafter / "config.json").read_text(encoding="utf-8")).get(
        "model_type", ""
    ):
        assistant = (
            AutoModelForCausalLM.from_pretrained(drafter, dtype=model.dtype).eval().to(model.device)
        )
        assistant.generation_config.num_assistant_tokens = (
            assistant.generation_config.num_assistant_tokens or OUR_DEPTH
        )
        return {"assistant_model": assistant}
    if drafter != folder:
        raise ValueError("its head lies outside the target's folder")
    return {"use_mtp": True}
