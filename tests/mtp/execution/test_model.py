"""The model executor on tiny random checkpoints: tokens equal plain decoding alone, and
transformers' own generate."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from transformers import Qwen3_5ForCausalLM

from mtp.buckets import Buckets
from mtp.drafters import load_qwen_mtp
from mtp.drafters.prompt_lookup import PromptLookup
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.policies import RotateGrow, StaticK
from mtp.request import Request
from mtp.targets import load_target
from tests.support.checkpoints import write_qwen3_5
from tests.support.replay_drafter import ReplayDrafter

CPU = torch.device("cpu")
CONTEXT = 300
BUCKETS = Buckets((4, 8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_qwen3_5(tmp_path_factory.mktemp("qwen"), seed=3)


def requests(count=6, new=60, **options):
    generator = torch.Generator().manual_seed(5)
    lengths = [1, 7, 33, 70, 2, 15][:count]
    prompts = [
        tuple(torch.randint(3, 320, (length,), generator=generator).tolist()) for length in lengths
    ]
    return [
        Request(f"r{n}", prompt, new, **({"ignore_stop": True} | options))
        for n, prompt in enumerate(prompts)
    ]


def engine(target, drafter, policy, *, slots, buckets=BUCKETS, **options):
    executor = ModelExecutor(
        target,
        drafter,
        slots=target.slots,
        largest_group=4,
        depth=policy.depth,
        buckets=buckets,
        device=CPU,
    )
    return Engine(executor, slots=slots, policy=policy, **({"prefill_chunk": 32} | options))


def decode(engine_, requests_):
    for request in requests_:
        engine_.submit(request)
    return {done.id: done for done in engine_.run()}


def alone(target, requests_, **options):
    return {
        request.id: decode(engine(target, None, StaticK(0), slots=1, **options), [request])[
            request.id
        ]
        for request in requests_
    }


def replay(target, reference):
    texts = [done.prompt + done.tokens for done in reference.values()]
    return ReplayDrafter(texts, slots=target.slots, context=CONTEXT)


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(torch.float32, marks=pytest.mark.slow), torch.bfloat16],
    ids=["fp32", "bf16"],
)
def test_tokens_equal_plain_decoding_alone_whatever_policy_drafter_slots_and_rows(folder, dtype):
    target = load_target(folder, slots=5, context=CONTEXT, dtype=dtype, device=CPU)
    todo = requests()
    reference = alone(target, todo)
    accepted = 0
    lookup = PromptLookup(slots=target.slots, context=CONTEXT, device=CPU)
    mtp = load_qwen_mtp(folder, target, buckets=BUCKETS)
    for name, drafter in (("mtp", mtp), ("lookup", lookup), ("replay", replay(target, reference))):
        for policy, slots, rows in (
            (RotateGrow(), 5, 8),
            (RotateGrow(), 2, 5),
            (StaticK(3), 3, 8),
            (StaticK(1), 5, 8),
            (StaticK(0), 4, 8),
        ):
            run = engine(target, drafter, policy, slots=slots, rows=rows)
            finished = decode(run, todo)
            for request in todo:
                assert finished[request.id].tokens == reference[request.id].tokens, (
                    name,
                    policy,
                    slots,
                    rows,
                    request.id,
                )
            accepted += sum(round_.accepted for round_ in run.rounds)
    assert accepted > 100  # the comparison is empty where nothing is ever accepted


@pytest.mark.slow
def test_tokens_equal_transformers_generate_over_200_tokens_alone_and_in_company(folder):
    oracle = Qwen3_5ForCausalLM.from_pretrained(folder).eval()
    target = load_target(folder, slots=3, context=CONTEXT, dtype=torch.float32, device=CPU)
    todo = requests(4, 200)
    expected = {}
    for request in todo:
        with torch.inference_mode():
            out = oracle.generate(
                torch.tensor([request.prompt]),
                max_new_tokens=200,
                min_new_tokens=200,
                do_sample=False,
                eos_token_id=None,
            )
        expected[request.id] = tuple(out[0, len(request.prompt) :].tolist())
    reference = alone(target, todo)
    in_company = decode(engine(target, replay(target, reference), RotateGrow(), slots=3), todo)
    for request in todo:
        assert reference[request.id].tokens == expected[request.id]
        assert in_company[request.id].tokens == expected[request.id]


def test_stop_ids_limits_and_minimum_hold_in_speculative_windows(folder):
    target = load_target(folder, slots=4, context=80, dtype=torch.float32, device=CPU)
    free = alone(target, requests(6, 40))
    stops = {name: frozenset(done.tokens[5:7]) for name, done in free.items()}
    todo = [
        dataclasses.replace(
            request, stop_ids=stops[request.id], ignore_stop=False, min_new_tokens=n * 3
        )
        for n, request in enumerate(requests(6, 40))
    ]
    reference = alone(target, todo)
    finished = decode(engine(target, replay(target, free), RotateGrow(), slots=4), todo)
    for request in todo:
        done = finished[request.id]
        assert (done.tokens, done.finish) == (
            reference[request.id].tokens,
            reference[request.id].finish,
        )
        assert len(done.tokens) >= min(request.min_new_tokens, 80 - len(request.prompt))
        early = done.tokens[: request.min_new_tokens]
        assert not set(early) & request.stop_ids
    assert {done.finish for done in finished.values()} == {"stop", "length"}


def test_P07_a_reused_slot_drafts_and_decodes_as_a_fresh_engine_does(folder):
    target = load_target(folder, slots=1, context=CONTEXT, dtype=torch.float32, device=CPU)
    drafter = load_qwen_mtp(folder, target, buckets=BUCKETS)
    first, second = requests(2, 30)

    def rounds_of_second(before):
        run = engine(target, drafter, RotateGrow(), slots=1)
        finished = decode(run, [*before, second])
        rounds = [
            (round_.rows, round_.accepted) for round_ in run.rounds if round_.request == second.id
        ]
        return rounds, finished[second.id].tokens

    assert rounds_of_second([first]) == rounds_of_second([])


def test_P01_a_drafter_is_not_asked_past_its_own_context(folder):
    target = load_target(folder, slots=1, context=CONTEXT, dtype=torch.float32, device=CPU)
    drafter = load_qwen_mtp(folder, target, buckets=BUCKETS, context=40)
    (request,) = requests(3, 40)[2:]
    reference = alone(target, [request])[request.id].tokens
    run = engine(target, drafter, RotateGrow(), slots=1)
    assert decode(run, [request])[request.id].tokens == reference
    position = len(request.prompt)
    for round_ in run.rounds:
        assert round_.rows - 1 <= max(0, 40 - position + 1)
        assert round_.rows > 1 or position > 39
        position += round_.committed
    assert run.rounds[-1].rows == 1


def test_a_non_finite_row_ends_its_own_slot_with_a_named_error(folder, capfd):
    target = load_target(folder, slots=3, context=CONTEXT, dtype=torch.float32, device=CPU)
    todo = requests(3, 20)
    reference = alone(target, todo)
    run = engine(target, None, StaticK(0), slots=3)
    for request in todo:
        run.submit(request)
    while len(run.streams) < 3 or any(len(stream.tokens) < 5 for stream in run.streams.values()):
        run.step()
    target.state.recurrent[0, 1] = float("nan")
    finished = {done.id: done for done in run.run()}
    bad = finished["r1"]
    assert bad.finish == "error"
    assert "numeric error" in bad.error
    assert bad.tokens == reference["r1"].tokens[: len(bad.tokens)]
    for name in ("r0", "r2"):
        assert finished[name].tokens == reference[name].tokens
    assert (
        sum(line.startswith("ERR request r1") for line in capfd.readouterr().out.splitlines()) == 1
    )


def test_more_stop_ids_than_there_is_room_for_are_refused(folder):
    target = load_target(folder, slots=1, context=CONTEXT, dtype=torch.float32, device=CPU)
    run = engine(target, None, StaticK(0), slots=1)
    with pytest.raises(ValueError, match="17 stop ids, expected at most 16"):
        run.submit(Request("a", (1,), 5, stop_ids=frozenset(range(17))))


def test_the_host_reads_the_drafts_that_the_device_holds(folder):
    target = load_target(folder, slots=3, context=CONTEXT, dtype=torch.float32, device=CPU)
    todo = requests(3, 20)
    run = engine(target, replay(target, alone(target, todo)), RotateGrow(), slots=3)
    held: dict[int, tuple[int, ...]] = {}
    met = 0

    def outcomes(groups, depth, read=run.executor.outcomes):
        nonlocal met
        results = read(groups, depth)
        for group, outcome in zip(groups, results, strict=True):
            slot, accepted = outcome.slot, outcome.committed.accepted
            assert (
                list(outcome.drafts) == run.executor.buffers.drafts[slot, : outcome.held].tolist()
            )
            assert (
                len(outcome.confidence)
                == outcome.held
                == (0 if outcome.committed.finish else depth)
            )
            if group.rows > 1:  # what was accepted had been held
                assert outcome.committed.tokens[:accepted] == held[slot][:accepted]
                met += accepted
            held[slot] = outcome.drafts
        return results

    run.executor.outcomes = outcomes
    decode(run, todo)
    assert met > 20
