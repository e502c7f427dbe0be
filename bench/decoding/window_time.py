"""Time of one window by its rows, slots, drafts and context: this machine's cost table, as rows
of results."""

from __future__ import annotations

from bench.decoding.rows_to_time import OPERATION
from bench.decoding.runs import LoadedModel
from bench.rows import Row, row_of
from experiments.profile import Cell, Measurement, measure

ROWS, SLOTS = (1, 2, 4, 8, 16), (1, 2, 4, 8)
STRETCH = 64  # tokens that a text may grow by: its length stays about the same


def cells_of(rows: int, slots: int, largest: int, depths: tuple[int, ...]) -> list[Cell]:
    counts = [(r, s) for s in SLOTS if s <= slots for r in ROWS if s <= r <= min(rows, s * largest)]
    return [(r, s, depth) for r, s in counts for depth in depths]


def windows(model: LoadedModel, *, context: int, seconds: float, passes: int) -> list[Row]:
    """One row a cell. The time is that of staging, verify, commit, drafts and the copy to the
    host."""
    made = model.made
    settings, limits = made.spec.settings, made.target.limits
    if context + STRETCH > limits.context:
        raise ValueError(
            f"context is {context}, expected at most {limits.context - STRETCH} (a slot has "
            f"{limits.context} tokens)"
        )
    whole = [token for request in made.requests for token in request.prompt]
    whole *= context // len(whole) + 2
    texts = [tuple(whole[slot : slot + context]) for slot in range(settings.slots)]
    depth = min(3, made.drafter.max_depth) if made.drafter is not None else 0
    profile = Measurement(made, depth, texts, context + STRETCH)
    cells = cells_of(
        settings.rows, settings.slots, max(settings.sizes), tuple(sorted({0, min(1, depth), depth}))
    )
    found = measure(profile, cells, seconds=seconds, passes=passes)
    names = ("rows", "slots", "depth")
    return [
        row_of(
            {
                "operation": OPERATION,
                "implementation": "tight, eager",
                "shape": {
                    "target": model.name,
                    "dtype": model.dtype,
                    **dict(zip(names, cell, strict=True)),
                    "context": context,
                },
                "mode": "wall",
                "bytes": None,
                "per": 1,
            },
            times,
        )
        for cell, times in found.items()
    ]
