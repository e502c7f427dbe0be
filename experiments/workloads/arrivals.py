"""When requests arrive: seconds after the start."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np

from experiments.config.checks import BadInput, number
from mtp.request import Request

KINDS = ("file", "at_once", "poisson", "trace")


def arrival_times(
    kind: str, count: int, *, rate: float | None, trace: str | None, seed: int
) -> list[float] | None:
    """`count` ascending times; None for `file`: each line's own arrival_s holds.

    poisson: `rate` requests per second; trace: a file with one time in seconds per line, the
    first `count` of them."""
    if kind == "file":
        return None
    if kind == "at_once":
        return [0.0] * count
    if kind == "poisson":
        if rate is None or number("workload.rate", rate, 0) == 0:
            raise BadInput(
                f"workload.rate is {'null' if rate is None else rate}, expected requests per "
                "second above 0"
            )
        gaps = np.random.default_rng(seed).exponential(1 / rate, count)
        return np.cumsum(gaps).tolist()
    return _read(trace, count)


def with_arrivals(
    requests: list[Request],
    *,
    kind: str,
    rate: float | None,
    trace: str | None,
    priorities: list[int] | None,
    seed: int,
) -> list[Request]:
    """priorities: given in turn to the requests, None = each one's own; the rest: see
    `arrival_times`."""
    if priorities is not None:
        requests = [
            replace(request, priority=priority)
            for request, priority in zip(requests, cycle(priorities), strict=False)
        ]
    times = arrival_times(kind, len(requests), rate=rate, trace=trace, seed=seed)
    if times is None:
        return requests
    return [replace(request, arrival_s=time) for request, time in zip(requests, times, strict=True)]


def _read(trace: str | None, count: int) -> list[float]:
    if trace is None or not Path(trace).is_file():
        raise BadInput(
            f"workload.trace is {'null' if trace is None else trace}, expected an existing file of "
            "arrival times"
        )
    times: list[float] = []
    for place, word in enumerate(Path(trace).read_text(encoding="utf-8").split(), 1):
        name = f"workload.trace {trace}, time {place}"
        try:
            time = float(word)
        except ValueError as wrong:
            raise BadInput(f"{name}: {word!r} is no number") from wrong
        times.append(number(name, time, times[-1] if times else 0))
    if len(times) < count:
        raise BadInput(
            f"workload.trace {trace} holds {len(times)} times, expected at least {count} (the "
            "requests)"
        )
    return times[:count]
