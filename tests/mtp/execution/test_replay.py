"""A tape replayed through the engine gives the real engine's windows, one by one, whatever the
policy and the grants."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import torch

from experiments.assets import MODELS
from mtp.buckets import Buckets
from mtp.drafters import load_prompt_lookup, load_qwen_mtp
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.execution.tape import TapeExecutor
from mtp.grants import Rotate
from mtp.policies import Record, RotateGrow, StaticK
from mtp.request import Request
from mtp.tape import read_tapes, write_tapes
from mtp.targets import load_target

CPU, BUCKETS = torch.device("cpu"), Buckets((4, 8))
TINY = MODELS / "tiny_qwen"
SLOTS = 4
SIZES = (1, 2, 3, 4)
DRAFTERS = {
    "mtp": lambda target: load_qwen_mtp(TINY, target, buckets=BUCKETS),
    "lookup": lambda target: load_prompt_lookup(target, buckets=BUCKETS),
    # holds fewer drafts near its end
    "short": lambda target: load_qwen_mtp(TINY, target, buckets=BUCKETS, context=42),
}
POLICIES = [RotateGrow(), *(StaticK(k, SIZES) for k in range(4))]
GRANTS: list[Rotate | None] = [
    None,
    *(
        Rotate(budget=3, share=share, holders=holders)
        for share in ("tick", "window")
        for holders in (1, 2)
    ),
]
CASES = [
    (drafter, policy, grants)
    for drafter in ("mtp", "lookup")
    for policy in POLICIES
    for grants in GRANTS
]
CASES += [("short", RotateGrow(), None), ("short", StaticK(3, SIZES), GRANTS[-1])]


class Witness:
    """A policy that also writes down what it was shown and what it decided."""

    def __init__(self, policy):
        self.policy, self.sizes, self.depth, self.log = policy, policy.sizes, policy.depth, []

    def decide(self, slots, *, rows, start):
        decision = self.policy.decide(slots, rows=rows, start=start)
        self.log.append((tuple(slots), decision))
        return decision


def job(name, seed, *, prompt=32, new=24, **options):
    generator = torch.Generator().manual_seed(seed)
    # text that repeats itself is accepted well
    ids = torch.randint(260, 800, (prompt // 4,), generator=generator).tolist() * 4
    return Request(name, tuple(ids), new, **options)


REQUESTS = [
    job("A", 1),
    job("B", 2, prompt=8, new=18, priority=2),
    job("C", 3, new=13),
    job("D", 4, prompt=24),
    job("E", 5, new=1),
]


@pytest.fixture(scope="module")
def target():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load_target(TINY, slots=SLOTS, context=56, dtype=torch.float32, device=CPU)
    torch.set_num_threads(threads)


def engine_on(executor, policy, grants, requests):
    engine = Engine(executor, slots=SLOTS, policy=policy, grants=grants, prefill_chunk=16)
    for request in requests:
        engine.submit(request)
    engine.run()
    return engine


def on_model(target, drafter, policy, grants, requests):
    executor = ModelExecutor(
        target,
        drafter,
        slots=SLOTS,
        largest_group=4,
        depth=policy.depth,
        buckets=BUCKETS,
        device=CPU,
    )
    return engine_on(executor, policy, grants, requests)


@pytest.fixture(scope="module")
def recorded(target, tmp_path_factory):
    """By drafter: the drafter, the requests (two end with a stop id in the middle of their
    text), their tapes as read from a file."""

    @cache
    def of(name):
        drafter = DRAFTERS[name](target)
        free = on_model(target, drafter, Record(), None, REQUESTS).learning.tapes()
        stops = {
            name: frozenset({free[name].tokens[place]}) for name, place in (("A", 14), ("D", 8))
        }
        requests = [
            dataclasses.replace(one, stop_ids=stops.get(one.id, frozenset())) for one in REQUESTS
        ]
        engine = on_model(target, drafter, Record(), None, requests)
        path = tmp_path_factory.mktemp("tape") / "tape.parquet"
        write_tapes(path, engine.learning.tapes())
        return drafter, requests, read_tapes(path)

    return of


def case_name(value):
    if isinstance(value, Rotate):
        return f"{value.share}-{value.holders}"
    return (
        value
        if isinstance(value, str)
        else "off"
        if value is None
        else f"{type(value).__name__}-{value.depth}"
    )


@pytest.mark.parametrize(("drafter", "policy", "grants"), CASES, ids=case_name)
def test_windows_on_a_tape_are_those_of_the_model(target, recorded, drafter, policy, grants):
    drafter, requests, tapes = recorded(drafter)
    real = on_model(target, drafter, Witness(policy), grants, requests)
    replayed = engine_on(
        TapeExecutor(tapes, limits=target.limits, buckets=BUCKETS),
        Witness(policy),
        grants,
        requests,
    )
    # views: held drafts and confidence, position, caps, skips; plans
    assert replayed.policy.log == real.policy.log
    assert rounds_of(replayed) == rounds_of(real)
    assert [(step.kind, step.rows, step.padded, step.speculative) for step in replayed.steps] == [
        (step.kind, step.rows, step.padded, step.speculative) for step in real.steps
    ]
    assert [(done.id, done.tokens, done.finish) for done in replayed.finished] == [
        (done.id, done.tokens, done.finish) for done in real.finished
    ]


def rounds_of(engine):
    return [dataclasses.replace(one, start_s=0, end_s=0) for one in engine.rounds]


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_the_comparison_is_not_empty(target, recorded, drafter):
    """Drafts were accepted and missed, held counts vary where the drafter's do, and texts end
    both ways."""
    _, requests, tapes = recorded(drafter)
    matches = [n for tape in tapes.values() for n in tape.matches]
    assert max(matches) >= 3
    assert min(matches) == 0
    engine = engine_on(
        TapeExecutor(tapes, limits=target.limits), Witness(RotateGrow()), None, requests
    )
    assert {done.finish for done in engine.finished} == {"stop", "length"}
    assert sum(one.accepted for one in engine.rounds) > 5
    held = {view.held for views, _ in engine.policy.log for view in views}
    assert len(held) > 1 or drafter == "mtp"
