"""What every text model's config.json says, and how a value of it is checked.

A family adds its own settings in a file of its own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LINEAR, FULL, SLIDING = "linear_attention", "full_attention", "sliding_attention"


@dataclass(frozen=True)
class TextConfig(ABC):
    """Sizes in elements."""

    vocab: int
    hidden: int
    eps: float
    tied: bool  # tie_word_embeddings: see `mtp/targets/loading/tied.py`
    layer_types: tuple[str, ...]
    max_positions: int

    @property
    @abstractmethod
    def kv_forms(self) -> Mapping[str, AttentionForm]:
        """By layer type: the last layer's that has keys and values of its own."""

    def check_context(self, context: int) -> None:
        if (
            isinstance(context, bool)
            or not isinstance(context, int)
            or not 1 <= context <= self.max_positions
        ):
            raise ValueError(
                f"context is {context!r}, expected 1 to {self.max_positions} "
                "(max_position_embeddings)"
            )


ROPE_KEYS = {
    "factor": "factor",
    "low": "low_freq_factor",
    "high": "high_freq_factor",
    "original": "original_max_position_embeddings",
}
ROPE_NEEDS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low", "high", "original"),
    "proportional": (),
}


@dataclass(frozen=True)
class RopeSettings:
    """Rotary positions, of one of these kinds.

    default: frequencies as they are
    linear: frequencies / factor
    llama3: frequencies / factor for wavelengths beyond `original` / `low`, unchanged below
    `original` / `high`, mixed in between
    proportional: only the first `share` of the frequencies turn at all, / factor
    """

    rotary: int  # leading elements of a head that are rotated
    theta: float
    kind: str = "default"
    factor: float = 1.0
    low: float = 1.0
    high: float = 1.0
    original: int = 0  # positions that the model was first trained with
    share: float = 1.0

    @classmethod
    def read(
        cls,
        rope: Mapping[str, Any],
        *,
        rotary: int,
        theta: float,
        kinds: Sequence[str] = tuple(ROPE_NEEDS),
    ) -> RopeSettings:
        """From a config's rope_parameters, or rope_scaling. kinds: that the family knows.

        Raises ValueError, one line, for another kind or a setting that is missing.
        """
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind not in list(kinds):
            raise ValueError(f"config.json: rope_type is {kind!r}, supported: {', '.join(kinds)}")
        found: dict[str, Any] = {
            name: number_in(rope, ROPE_KEYS[name], f" (rope_type {kind})")
            for name in ROPE_NEEDS[kind]
        }
        if kind == "proportional":
            found["factor"] = number_in(rope, "factor", default=1.0)
            found["share"] = number_in(rope, "partial_rotary_factor", default=1.0)
        if kind == "llama3" and found["high"] <= found["low"]:
            raise ValueError(
                f"config.json: high_freq_factor is {found['high']}, "
                f"expected more than low_freq_factor ({found['low']})"
            )
        return cls(rotary, theta, kind, **found)


@dataclass(frozen=True)
class AttentionForm:
    """One layer's attention."""

    hidden: int
    heads: int
    kv_heads: int
    size: int  # of a head
    layer_type: str
    eps: float
    norm_offset: float  # the runtime weight of a norm = offset + stored
    qk_norm: bool = False
    bias: bool = False  # of queries, keys and values
    gated: bool = False  # per head, the query projection also makes a gate


@dataclass(frozen=True)
class ExpertForm:
    count: int
    per_row: int  # experts that a row goes through
    inner: int  # intermediate size of each
    shared: int  # of the one that every row goes through, 0: none

    @classmethod
    def read(cls, raw: Mapping[str, Any], per_row: str, shared: str | None = None) -> ExpertForm:
        """per_row, shared: what a family's config.json calls them."""
        form = cls(
            size_in(raw, "num_experts"),
            size_in(raw, per_row),
            size_in(raw, "moe_intermediate_size"),
            size_in(raw, shared) if shared else 0,
        )
        if form.per_row > form.count:
            raise ValueError(
                f"config.json: {per_row} is {form.per_row}, "
                f"expected at most num_experts ({form.count})"
            )
        return form


def size_in(raw: Mapping[str, Any], key: str, default: int | None = None, *, least: int = 1) -> int:
    """An integer of config.json; default: where it is absent or null. Raises ValueError."""
    value = raw.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(
            f"config.json: {key} is {value!r}, expected "
            f"{'a positive integer' if least == 1 else f'an integer >= {least}'}"
        )
    return value


def number_in(
    raw: Mapping[str, Any], key: str, where: str = "", default: float | None = None
) -> float:
    """A positive number of config.json. Raises ValueError.

    where: what the message adds
    default: where the key is absent or null
    """
    value = raw.get(key)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"config.json: {key} is {value!r}, expected a positive number{where}")
    return value


def flag_in(raw: Mapping[str, Any], key: str, default: bool = False) -> bool:
    """True or false of config.json; default: where it is absent or null. Raises ValueError."""
    value = raw.get(key)
    value = default if value is None else value
    if not isinstance(value, bool):
        raise ValueError(f"config.json: {key} is {value!r}, expected true or false")
    return value


def whole_rotary(rope: Mapping[str, Any]) -> None:
    """Raises ValueError where a part of a head would be rotated, which most families do not do."""
    share = rope.get("partial_rotary_factor")
    if share not in (None, 1):
        raise ValueError(f"config.json: partial_rotary_factor is {share!r}, supported: 1.0")


def part_in(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """An object of config.json, empty where it is absent or null. Raises ValueError."""
    value = raw.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"config.json: {key} is {value!r}, expected an object")
    return value or {}


def layer_types_in(
    raw: Mapping[str, Any], known: Sequence[str], default: Sequence[str]
) -> list[str]:
    """One known type for each layer. Raises ValueError.

    default: where the key is absent or null; as many are expected
    """
    types = raw.get("layer_types")
    types = default if types is None else types
    if (
        not isinstance(types, Sequence)
        or len(types) != len(default)
        or any(kind not in known for kind in types)
    ):
        raise ValueError(
            f"config.json: layer_types is {types!r}, expected {len(default)} of {sorted(known)}"
        )
    return list(types)


def follow(settings: Mapping[str, tuple[Any, Any]]) -> None:
    """Raises ValueError, one line, for the first setting that differs.

    settings: by key, config.json's value and the only one that the code follows
    """
    for key, (value, wanted) in settings.items():
        if value != wanted:
            raise ValueError(f"config.json: {key} is {value!r}, supported: {wanted!r}")
