"""`python -m bench.host.layout_keys`: how often each layout key hits, on synthetic tapes in virtual
time. Pure Python, seconds.

Keys x slots x capacities under `rotate_grow`, with two drafters: one that always holds three
drafts, and one that stops where it is not sure, so that what it holds varies. Prints Markdown and
writes bench/results/layout_keys_tapes.json.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from bench.rows import RESULTS
from mtp.costs import LinearCost
from mtp.engine import Engine
from mtp.execution.tape import TapeExecutor
from mtp.executor import Limits
from mtp.files import whole
from mtp.graphs.tape import TapeGraphs
from mtp.layouts import KEYS, Keyed, LayoutCache, LayoutKey, count_layouts, layout_key
from mtp.layouts.stats import layout_stats
from mtp.policies import RotateGrow
from mtp.request import Request
from mtp.tape import Tape
from mtp.windows import Group

FILE = RESULTS / "layout_keys_tapes.json"
SLOTS, CAPACITIES = (1, 2, 4, 8), (8, 32, 64)
ROWS, SIZES, DEPTH = 8, (1, 2, 4), 3
# published: a draft is right, given that those before it are
CODE, PROSE = (
    (0.90, 0.91, 0.88),
    (0.69, 0.62, 0.57),
)
# of one phase: another engine's 149 captures in 167 windows were 20% of its time, at the windows of
# LinearCost
CAPTURE_S = 0.0095
DRAFTERS = ("always 3", "as sure")
LIMITS = Limits(vocab=1000, context=4096, stop_ids=frozenset())


def synthetic_tape(seed: int, length: int, drafter: str) -> Tape:
    """Code or prose, by turns. `as sure`: a chain ends before the first draft that is more
    likely wrong than a coin says."""
    draw = random.Random(seed)
    chances = CODE if seed % 2 else PROSE
    matches, held = [], []
    for _ in range(length):
        right = [draw.random() < chance for chance in chances]
        matches.append(right.index(False) if False in right else DEPTH)
        sure = [draw.random() < (0.9 if hit else 0.4) for hit in right]
        held.append(
            DEPTH if drafter == "always 3" else sure.index(False) if False in sure else DEPTH
        )
    return Tape(
        tuple(draw.randrange(LIMITS.vocab) for _ in range(length)),
        tuple(matches),
        tuple((0.9,) * count for count in held),
    )


def run(
    key: LayoutKey, slots: int, capacity: int, drafter: str, *, requests: int, tokens: int
) -> dict[str, Any]:
    """One cell, with the engine's defaults: captured at the second sight, given up after 4 *
    capacity captures without a hit."""
    lengths = random.Random(0)
    queue = [
        Request(str(n), (1, 2, 3), lengths.randint(tokens // 2, tokens), ignore_stop=True)
        for n in range(requests)
    ]
    tapes = {request.id: synthetic_tape(int(request.id), tokens + 8, drafter) for request in queue}
    executor = TapeExecutor(tapes, limits=LIMITS, cost=LinearCost(), max_depth=DEPTH)
    graphs = TapeGraphs(executor.spend, capture_s=CAPTURE_S)
    cache = LayoutCache(
        capacity, graphs, capture_on=2, give_up_after=4 * capacity, clock=executor.now
    )
    engine = Engine(executor, slots=slots, rows=ROWS, policy=RotateGrow(), layout=Keyed(key, cache))
    for request in queue:
        engine.submit(request)
    engine.run()
    windows = [step for step in engine.steps if step.kind == "window"]
    decode_s = sum(step.end_s - step.start_s for step in windows)
    return {
        "drafter": drafter,
        "slots": slots,
        "capacity": capacity,
        "windows": len(windows),
        "seen": len(seen(engine, key)),
        "possible": count_layouts(slots, ROWS, SIZES, key),
        **layout_stats(key, cache.stats(), (step.phases for step in windows), decode_s=decode_s),
    }


def seen(engine: Engine, key: LayoutKey) -> set[Any]:
    """The different keys of the windows that were run."""
    rounds = groupby(engine.rounds, lambda entry: entry.window)
    return {
        layout_key([Group(entry.slot, entry.rows) for entry in entries], key)
        for _, entries in rounds
    }


def cells(*, requests: int, tokens: int) -> Iterator[dict[str, Any]]:
    for drafter in DRAFTERS:
        for slots in SLOTS:
            for key in KEYS:
                for capacity in CAPACITIES:
                    yield run(key, slots, capacity, drafter, requests=requests, tokens=tokens)


def table(found: list[dict[str, Any]], drafter: str) -> list[str]:
    """Markdown: one line per slots and key; hit rate / captures / evictions / share of the time,
    by capacity."""
    lines = [
        "| slots | key | windows | seen of possible | "
        + " | ".join(f"capacity {n}" for n in CAPACITIES)
        + " |",
        "|---" * 7 + "|",
    ]
    for (slots, key), group in groupby(
        (c for c in found if c["drafter"] == drafter), lambda c: (c["slots"], c["key"])
    ):
        row = list(group)
        head = (
            f"| {slots} | {key} | {row[0]['windows']} | {row[0]['seen']} of {row[0]['possible']:,} "
            "| "
        )
        lines.append(head + " | ".join(map(_cell, row)) + " |")
    return lines


def _cell(cell: dict[str, Any]) -> str:
    figures = (
        f"{cell['hit_rate']:.3f} / {cell['captures']} / {cell['evictions']} / "
        f"{100 * cell['capture_share']:.1f}%"
    )
    return figures + (" (gave up)" if cell["given_up"] else "")


def main() -> None:
    found = list(cells(requests=64, tokens=320))
    for drafter in DRAFTERS:
        print(f"\ndrafter: {drafter}\n", *table(found, drafter), sep="\n")
    head = json.dumps({"evidence": "synthetic", "seconds_per_pair": 2 * CAPTURE_S})
    with whole(FILE) as aside:
        lines = ",\n".join(map(json.dumps, found))
        aside.write_text(f'{head[:-1]}, "cells": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
