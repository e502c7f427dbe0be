"""Engines with grants on tapes, and what can be said of them at a glance."""

from __future__ import annotations

from mtp.grants import Rotate
from mtp.policies import StaticK
from mtp.request import Request
from tests.support.tapes import engine_of, random_tape

TICK = Rotate(budget=2, share="tick")


def load(*rounds, prompt=1, priorities=(), **options):
    """Requests a, b, ...: one token is one round where nobody has drafts; all but the first
    arrive after the first step."""
    requests = {}
    for n, (name, count) in enumerate(zip("abcdefgh", rounds, strict=False)):
        priority = priorities[n] if priorities else 1
        arrival = 0.0 if n == 0 else 1e-6
        requests[
            Request(
                name, (1,) * prompt, count, priority=priority, arrival_s=arrival, ignore_stop=True
            )
        ] = random_tape(n)
    return engine_of(requests, **({"policy": StaticK(0), "slots": 8, "grants": TICK} | options))


def steps(engine, count):
    for _ in range(count):
        engine.step()


def grants(engine):
    return " ".join(f"{grant.request}{grant.rounds}" for grant in engine.grants.log)


def states(engine):
    return {
        "holding": [*engine.grants.holding],
        "ring": [entry.request.id for entry in engine.grants.ring],
        "live": sorted(stream.request.id for stream in engine.streams.values()),
    }
