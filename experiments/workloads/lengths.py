"""How many tokens prompts and outputs have."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.config.checks import BadInput, integer, number

EXPECTED = "a number of tokens, [uniform, least, most] or [lognormal, median, sigma]"


def draw_lengths(key: str, lengths: Any, count: int, *, most: int, seed: int) -> list[int]:
    """`count` lengths of 1 to `most` tokens. lengths: a number (all the same), [uniform, least,
    most], or [lognormal, median, sigma] (sigma of the logarithm; what lies outside 1 to `most`
    is cut to it). Raises BadInput."""
    if not isinstance(lengths, (list, tuple)):
        return [integer(key, lengths, 1, most)] * count
    kind = lengths[0] if len(lengths) == 3 else None
    draw = np.random.default_rng(seed)
    if kind == "uniform":
        least = integer(f"{key}[1]", lengths[1], 1, most)
        return draw.integers(
            least, integer(f"{key}[2]", lengths[2], least, most), count, endpoint=True
        ).tolist()
    if kind == "lognormal":
        median, sigma = (
            integer(f"{key}[1]", lengths[1], 1, most),
            number(f"{key}[2]", lengths[2], 0),
        )
        return (
            np.clip(np.round(median * np.exp(sigma * draw.standard_normal(count))), 1, most)
            .astype(int)
            .tolist()
        )
    raise BadInput(f"{key} is {list(lengths)}, expected {EXPECTED}")
