"""config.json of every family with values of another kind: read, or refused in one line that names
the file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import Gemma4AssistantConfig, Gemma4TextConfig, LlamaConfig, Qwen3_5MoeTextConfig

from mtp.drafters.assistant_config import AssistantConfig
from mtp.targets.gemma.config import GemmaConfig
from mtp.targets.layers.rope import frequencies
from mtp.targets.loading.config import RopeSettings
from mtp.targets.qwen.config import QwenConfig
from tests.support.checkpoints import DENSE, LLAMA3_ROPE, MOE, QWEN3_5
from tests.support.gemma_checkpoints import GEMMA4, PER_LAYER

WRONG = (None, "abc", -1, 0, True, [], {}, 1.5, [1], math.nan, math.inf)
ABSENT = {
    "partial_rotary_factor",
    "rope_theta",
    "rope_scaling",
    "rope_local_base_freq",
    "per_layer_config",
    "mtp_num_hidden_layers",
}


def assistant() -> dict[str, Any]:
    text = Gemma4TextConfig(**GEMMA4)
    sizes = {"num_centroids": 8, "centroid_intermediate_top_k": 4}
    return Gemma4AssistantConfig(
        text_config=text, backbone_hidden_size=64, use_ordered_embeddings=True, **sizes
    ).to_dict()


CONFIGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "experts": (QwenConfig.read, Qwen3_5MoeTextConfig(**QWEN3_5, **MOE).to_dict()),
    "llama": (QwenConfig.read, LlamaConfig(**DENSE, rope_parameters=LLAMA3_ROPE).to_dict()),
    "gemma4": (GemmaConfig.read, Gemma4TextConfig(**(GEMMA4 | PER_LAYER)).to_dict()),
    "gemma3": (
        GemmaConfig.read,
        {"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ),
    "assistant": (
        AssistantConfig.read,
        assistant() | assistant()["text_config"] | {"model_type": "gemma4_text"},
    ),
}


def changed(raw: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each key in turn, those of inner objects too."""
    for key in sorted({*raw, *ABSENT} - {"model_type"}, key=str):
        yield from ({**raw, key: value} for value in WRONG)
        if isinstance(raw.get(key), dict):
            yield from ({**raw, key: inner} for inner in changed(raw[key]))


@pytest.mark.parametrize("family", CONFIGS)
def test_a_value_of_another_kind_is_refused_in_one_line(family: str):
    read, raw = CONFIGS[family]
    read(raw)
    messages = []
    for config in changed(raw):
        try:
            read(config)
        except ValueError as error:
            messages.append(str(error))
    assert len(messages) > 50
    assert [
        message
        for message in messages
        if not message.startswith("config.json: ") or "\n" in message
    ] == []


def test_frequencies_that_are_proportional_are_divided_by_a_factor_where_there_is_one():
    """As transformers' own rule has it."""
    given = {"rope_type": "proportional", "partial_rotary_factor": 0.25}
    plain, slower = (
        frequencies(RopeSettings.read(given | more, rotary=64, theta=1e4))
        for more in ({}, {"factor": 4.0})
    )
    assert plain.count_nonzero() == 8
    assert torch.equal(slower, plain / 4)
