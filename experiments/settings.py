"""The top-level keys of a run, checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf

from experiments.checks import BadInput, choice, integer, integers
from mtp.execution.buckets import Buckets


@dataclass(frozen=True)
class Settings:
    slots: int
    rows: int
    sizes: tuple[int, ...]
    buckets: Buckets
    max_new_tokens: int
    prefill_chunk: int
    seed: int
    parity: str
    plain: bool

    @classmethod
    def of(cls, config: DictConfig) -> Settings:
        """Raises BadInput: one line that names key, value and what is allowed."""
        values = OmegaConf.to_container(config, resolve=False)
        assert isinstance(values, dict)
        rows = integer("rows", values["rows"], 1)
        sizes = tuple(integers("sizes", values["sizes"], 1))
        if 1 not in sizes or list(sizes) != sorted(set(sizes)):
            raise BadInput(f"sizes is {list(sizes)}, expected ascending group sizes with 1 among them")
        try:
            buckets = Buckets.parse(values["buckets"], rows)
        except (TypeError, ValueError) as wrong:
            raise BadInput(str(wrong)) from wrong
        if not isinstance(values["plain"], bool):
            raise BadInput(f"plain is {values['plain']!r}, expected true or false")
        return cls(
            slots=integer("slots", values["slots"], 1),
            rows=rows,
            sizes=sizes,
            buckets=buckets,
            max_new_tokens=integer("max_new_tokens", values["max_new_tokens"], 1),
            prefill_chunk=integer("prefill_chunk", values["prefill_chunk"], 1),
            seed=integer("seed", values["seed"], 0),
            parity=choice("parity", values["parity"], ("exact", "report", "off")),
            plain=values["plain"],
        )
