"""A park costs nothing: on the shipped model and its MTP head, in fp32."""

from __future__ import annotations

import pytest
import torch

from experiments.assets import MODELS
from mtp.buckets import Buckets
from mtp.drafters import load_prompt_lookup, load_qwen_mtp
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.grants import Rotate
from mtp.policies import RotateGrow, StaticK
from mtp.request import Request
from mtp.targets import load_target

CPU, BUCKETS = torch.device("cpu"), Buckets((4, 8))
TINY = MODELS / "tiny_qwen"
DRAFTERS = {
    "mtp": lambda target: load_qwen_mtp(TINY, target, buckets=BUCKETS),
    "lookup": lambda target: load_prompt_lookup(target, buckets=BUCKETS),
}


@pytest.fixture(scope="module")
def target():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load_target(TINY, slots=4, context=256, dtype=torch.float32, device=CPU)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def plain(target):
    """Plain decoding of a request alone: its tokens."""
    known = {}

    def tokens_of(request):
        if request not in known:
            _, finished, _ = run(target, None, [request], None, StaticK(0))
            known[request] = finished[request.id].tokens
        return known[request]

    return tokens_of


def job(name, seed, *, prompt=40, new=40):
    generator = torch.Generator().manual_seed(seed)
    # text that repeats itself is accepted well
    ids = torch.randint(260, 800, (prompt // 4,), generator=generator).tolist() * 4
    return Request(name, tuple(ids), new, arrival_s=0.0 if name == "A" else 1e-6, ignore_stop=True)


def run(target, drafter, requests, grants, policy=None):
    policy = policy or RotateGrow()
    executor = ModelExecutor(
        target, drafter, slots=4, largest_group=4, depth=policy.depth, buckets=BUCKETS, device=CPU
    )
    engine = Engine(executor, slots=4, policy=policy, grants=grants, prefill_chunk=16)
    for request in requests:
        engine.submit(request)
    finished = {done.id: done for done in engine.run()}
    rounds = {
        name: [(r.drafted, r.accepted, r.committed) for r in engine.rounds if r.request == name]
        for name in finished
    }
    return engine, finished, rounds


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize(
    "budget", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)]
)
def test_a_park_costs_no_acceptance(target, budget, kind):
    """Both jobs of the two-job schedule run the very rounds they run alone."""
    drafter = DRAFTERS[kind](target)
    jobs = [job("A", 1), job("B", 2)]
    engine, finished, rounds = run(target, drafter, jobs, Rotate(budget=budget, share="tick"))
    assert sum(grant.again for grant in engine.grants.log) >= 4
    for one in jobs:
        _, alone, alone_rounds = run(target, drafter, [one], None)
        assert finished[one.id].tokens == alone[one.id].tokens
        assert rounds[one.id] == alone_rounds[one.id]
    assert sum(accepted for _, accepted, _ in [*rounds["A"], *rounds["B"]]) > 10


def test_a_park_costs_no_acceptance_in_company_of_plain_requests(target, plain):
    drafter = DRAFTERS["mtp"](target)
    jobs = [job(name, n, new=24) for n, name in enumerate("ABCD")]
    engine, finished, rounds = run(target, drafter, jobs, Rotate(budget=2, backlog=1, share="tick"))
    assert {grant.request for grant in engine.grants.log} == {"A", "B"}
    for one in jobs:
        _, alone, alone_rounds = run(target, drafter, [one], None)
        assert finished[one.id].tokens == alone[one.id].tokens == plain(one)
        assert one.id in "CD" or rounds[one.id] == alone_rounds[one.id]


def test_P07_a_waiter_in_the_slot_of_an_ended_holder_starts_as_on_a_fresh_engine(target):
    """The holder ends at n = 20 holding drafts; the next step gives its slot to a waiter with a
    prompt of 3 tokens."""
    drafter = DRAFTERS["mtp"](target)
    first, second = (
        job("A", 5, prompt=12, new=9),
        Request("B", (300, 301, 302), 20, arrival_s=1e-6, ignore_stop=True),
    )
    engine, finished, rounds = run(
        target, drafter, [first, second], Rotate(budget=99, share="tick")
    )
    _, alone, alone_rounds = run(target, drafter, [second], None)
    assert [round_.slot for round_ in engine.rounds] == [0] * len(engine.rounds)
    assert (finished["B"].tokens, rounds["B"]) == (alone["B"].tokens, alone_rounds["B"])


@pytest.mark.parametrize("share", ["tick", "window"])
@pytest.mark.parametrize("holders", [1, 2])
def test_tokens_equal_plain_decoding_where_grants_and_shared_windows_work_together(
    target, plain, share, holders
):
    drafter = DRAFTERS["mtp"](target)
    jobs = [job(name, n, new=24) for n, name in enumerate("ABCD")]
    engine, finished, _ = run(
        target, drafter, jobs, Rotate(budget=3, backlog=1, holders=holders, share=share)
    )
    for one in jobs:
        assert finished[one.id].tokens == plain(one)
    assert engine.grants.log
