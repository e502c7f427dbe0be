"""What a training is: sizes, shares, rates.

Everything but `out` follows from it and the pinned text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from experiments.config.checks import BadInput, choice, integer, number
from experiments.training.trainable import FAMILIES, family

PHASES = ("target", "loops", "head")


@dataclass(frozen=True)
class Recipe:
    family: str  # of models
    shape: Any  # its sizes, the family's dataclass
    minutes: float  # of wall clock, all phases; the learning rates follow it
    steps: int | None  # optimizer steps of all phases instead of minutes: the same on every machine
    seed: int
    workers: int  # processes, one thread each; divides the batches
    characters: int | None  # of each kind of text, None = all
    batch: int  # rows of a step
    length: int  # tokens of a row
    prose: float  # share of rows
    rate: float
    decay: float
    bf16: bool  # matrix products in bf16; some CPUs are faster in fp32
    share_loops: float  # of the minutes, for teaching the target off its loops
    share_head: float  # of the minutes, for the MTP head
    head_batch: int
    head_length: int
    head_rate: float
    # share of its steps that train only the first draft of a chain, at about a third of the cost
    head_first: float
    own_texts: int  # the target's continuations that half of the head's rows are taken from
    save_s: float  # seconds between checkpoints

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Recipe:
        """Raises BadInput: one line that names key, value and what is allowed."""
        given = dict(values)
        kind = family(choice("family", given["family"], list(FAMILIES))).shape
        sizes = given.pop("shape")
        if unknown := sizes.keys() - asdict(kind()).keys():
            raise BadInput(
                f"shape.{min(unknown)} is given, expected one of {', '.join(asdict(kind()))}"
            )
        shape = kind(
            **{
                key: _size(f"shape.{key}", value, isinstance(getattr(kind, key), float))
                for key, value in sizes.items()
            }
        )
        if shape.vocab < 257:
            raise BadInput(f"shape.vocab is {shape.vocab}, expected an integer, at least 257")
        if not isinstance(given["bf16"], bool):
            raise BadInput(f"bf16 is {given['bf16']!r}, expected true or false")
        for key in ("seed", "save_s", "decay", "share_loops", "share_head", "head_first", "prose"):
            (integer if key == "seed" else number)(key, given[key], 0)
        for key in ("workers", "batch", "length", "head_batch", "head_length", "own_texts"):
            integer(key, given[key], 1)
        for key in ("steps", "characters"):
            if given[key] is not None:
                integer(key, given[key], 3)
        for key in ("minutes", "rate", "head_rate"):
            if number(key, given[key], 0) == 0:
                raise BadInput(f"{key} is {given[key]}, expected a finite number above 0")
        for key in ("prose", "head_first"):
            if given[key] >= 1:
                raise BadInput(f"{key} is {given[key]}, expected a number from 0 to below 1")
        if given["share_loops"] + given["share_head"] >= 1:
            raise BadInput(
                f"share_head is {given['share_head']}, expected share_loops + share_head below 1"
            )
        for key in ("batch", "head_batch"):
            if given[key] % given["workers"]:
                raise BadInput(
                    f"{key} is {given[key]}, expected a multiple of workers ({given['workers']})"
                )
        if max(given["length"], given["head_length"]) > shape.context:
            raise BadInput(
                f"length is {given['length']}, expected at most shape.context ({shape.context})"
            )
        return cls(**given, shape=shape)

    def share(self, phase: str) -> float:
        shares = {"loops": self.share_loops, "head": self.share_head}
        return shares.get(phase, 1 - sum(shares.values()))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _size(key: str, value: Any, real: bool) -> Any:
    return number(key, value, 0) if real else integer(key, value, 1)
