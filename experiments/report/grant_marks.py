"""Grants on the windows of a run: when a right to speculate began and ended."""

from __future__ import annotations

from collections import defaultdict

import polars as pl

from experiments.report.runs import Run


def windows_of_grants(run: Run) -> list[tuple[str, int, int, bool, bool]] | None:
    """(request, first window, last window, whether it had held a grant before, whether another
    follows), None where the run says too little. A request's granted rounds are its rounds of
    speculative steps, in order; the first of its first grant was its prefill."""
    grants, steps, rounds = run.table("grants"), run.steps, run.rounds
    if grants is None or steps is None or rounds is None:
        return None
    windows = (
        steps.filter(pl.col("kind") == "window").sort("start_s").select("start_s", "speculative")
    )
    held = (
        rounds.sort("start_s")
        .join_asof(windows, on="start_s", strategy="backward", tolerance=None)
        .filter(pl.col("speculative"))
    )
    own: dict[str, list[int]] = defaultdict(list)
    for request, window in held.sort("window").select("request", "window").iter_rows():
        own[request].append(window)
    found = []
    seen: dict[str, int] = defaultdict(int)
    last_of = dict(grants.sort("began").select("request", "began").iter_rows())
    for request, began, rounds_held, again in (
        grants.sort("began").select("request", "began", "rounds", "again").iter_rows()
    ):
        count = rounds_held if again else rounds_held - 1
        part = own[request][seen[request] : seen[request] + count]
        seen[request] += count
        if part:
            found.append((request, part[0], part[-1], again, began != last_of[request]))
    return found
