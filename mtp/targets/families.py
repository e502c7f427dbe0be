"""Which code serves a checkpoint, by its config's model_type. A family is an entry here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mtp.targets.decoder import DecoderTarget
from mtp.targets.gemma.config import MODEL_TYPES as GEMMA_TYPES
from mtp.targets.gemma.config import GemmaConfig
from mtp.targets.gemma.family import GemmaTarget
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.loading.config import TextConfig
from mtp.targets.qwen.config import MODEL_TYPES as QWEN_TYPES
from mtp.targets.qwen.config import QwenConfig
from mtp.targets.qwen.family import QwenTarget


class Family(NamedTuple):
    # config.json's text part -> its settings; ValueError, one line
    read: Callable[[Mapping[str, Any]], TextConfig]
    target: type[DecoderTarget]


FAMILIES: dict[str, Family] = {
    **dict.fromkeys(QWEN_TYPES, Family(QwenConfig.read, QwenTarget)),
    **dict.fromkeys(GEMMA_TYPES, Family(GemmaConfig.read, GemmaTarget)),
}


def family_of(checkpoint: Checkpoint) -> Family:
    """Raises ValueError, one line, for an architecture that is not supported."""
    kind = checkpoint.config.get("model_type")
    if kind not in FAMILIES:
        raise ValueError(
            f"checkpoint {checkpoint.path}: model_type is {kind!r}, "
            f"supported: {', '.join(sorted(FAMILIES))}"
        )
    return FAMILIES[kind]


def text_config(checkpoint: Checkpoint) -> TextConfig:
    """Raises ValueError, one line, for an architecture or settings that are not supported."""
    family, config = family_of(checkpoint), checkpoint.config
    try:
        if config.get("quantization_config"):
            raise ValueError("quantization_config is set, expected weights that are not quantised")
        if config.get("rope_scaling") and config.get("rope_parameters"):
            raise ValueError(
                "rope_scaling and rope_parameters are both set, expected one of them "
                "(transformers follows rope_scaling)"
            )
        return family.read(config)
    except ValueError as error:
        raise ValueError(f"checkpoint {checkpoint.path}: {error}") from error
