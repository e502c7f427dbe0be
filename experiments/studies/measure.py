"""What a run on tapes says about speed: its full batches, request by request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from mtp.engine import Engine
from mtp.records import Round


def full_batch(engine: Engine, requests: Sequence[str], slots: int) -> dict[str, Any]:
    """Until fewer requests than slots are left; the drain after that measures how evenly requests
    end, not how fast they go.

    `tokens`, `seconds`: by request, virtual time without captures, a window's being shared
    evenly by the slots in it; `windows`, `rows` (before padding); `late_capture`: share of the
    captures in the time of the second half."""
    steps = [step for step in engine.steps if step.kind == "window"]
    members: dict[int, list[Round]] = defaultdict(list)
    for entry in engine.rounds:
        members[entry.window].append(entry)
    spent = [step.end_s - step.start_s for step in steps]
    captured = [step.phases.capture for step in steps]
    seconds, tokens = dict.fromkeys(requests, 0.0), dict.fromkeys(requests, 0)
    left, full = len(requests), 0
    while full < len(steps) and left >= slots:
        for entry in members[full]:
            seconds[entry.request] += (spent[full] - captured[full]) / len(members[full])
            tokens[entry.request] += entry.committed
            left -= entry.finish is not None
        full += 1
    half = full // 2
    return {
        "tokens": list(tokens.values()),
        "seconds": list(seconds.values()),
        "windows": full,
        "rows": sum(step.rows for step in steps[:full]),
        "late_capture": sum(captured[half:full]) / sum(spent[half:full]) if full > half else 0.0,
    }
