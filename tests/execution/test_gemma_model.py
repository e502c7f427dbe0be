"""The model executor on a tiny Gemma 4 and its assistant: tokens equal plain decoding alone, and transformers' own two ways.

A vocabulary of 12 makes even a random assistant right now and then; sliding layers see 16 tokens."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import Gemma4AssistantForCausalLM, Gemma4ForCausalLM

from mtp.drafters import load_gemma_assistant
from mtp.drafters.protocol import Drafter
from mtp.engine import Engine
from mtp.execution.buckets import Buckets
from mtp.execution.graphs import CpuGraphs
from mtp.execution.model import ModelExecutor
from mtp.grants import Rotate
from mtp.layouts import Keyed, LayoutCache
from mtp.policies import Policy, RotateGrow, StaticK
from mtp.request import Finished, Request
from mtp.targets import load_target
from mtp.targets.decoder import DecoderTarget
from tests.gemma_checkpoints import PER_LAYER, write_assistant, write_gemma4

CPU, CONTEXT, BUCKETS, SLOTS = torch.device("cpu"), 300, Buckets((4, 8)), 4
SMALL = PER_LAYER | {"vocab_size": 12, "vocab_size_per_layer_input": 12, "hidden_size": 32, "intermediate_size": 48}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gemma")
    write_gemma4(folder / "target", seed=2, **SMALL)
    write_assistant(folder / "assistant", folder / "target", hidden=16, intermediate_size=24)
    return folder


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def pair(request: pytest.FixtureRequest, folder: Path) -> tuple[DecoderTarget, Drafter]:
    return load(folder, request.param)


def load(folder: Path, dtype: torch.dtype) -> tuple[DecoderTarget, Drafter]:
    target = load_target(folder / "target", slots=SLOTS, context=CONTEXT, dtype=dtype, device=CPU)
    return target, load_gemma_assistant(folder / "assistant", target, buckets=BUCKETS)


def requests(new: int) -> list[Request]:
    generator = torch.Generator().manual_seed(5)
    prompts = [tuple(torch.randint(0, 12, (length,), generator=generator).tolist()) for length in (1, 7, 33, 70, 2)]
    return [Request(f"r{n}", prompt, new, ignore_stop=True, arrival_s=1e-6 * (n > 0)) for n, prompt in enumerate(prompts)]


def engine(
    target: DecoderTarget, drafter: Drafter | None, policy: Policy, *, key: str | None = None, slots: int = SLOTS, **options
) -> Engine:
    executor = ModelExecutor(target, drafter, slots=SLOTS, largest_group=4, depth=policy.depth, buckets=BUCKETS, device=CPU)
    layout = Keyed(key, LayoutCache(4, CpuGraphs(executor.resting))) if key else None
    return Engine(executor, slots=slots, policy=policy, layout=layout, prefill_chunk=32, **options)


def decode(engine_: Engine, todo: list[Request]) -> dict[str, Finished]:
    for request in todo:
        engine_.submit(request)
    return {done.id: done for done in engine_.run()}


def alone(target: DecoderTarget, todo: list[Request]) -> dict[str, tuple[int, ...]]:
    return {request.id: decode(engine(target, None, StaticK(0), slots=1), [request])[request.id].tokens for request in todo}


def test_tokens_equal_plain_decoding_alone_whatever_policy_slots_rows_and_layout_key(pair: tuple[DecoderTarget, Drafter]):
    target, drafter = pair
    todo = requests(16)
    reference, accepted = alone(target, todo), 0
    for policy, slots, rows, key in (
        (RotateGrow(), 4, 8, None),
        (RotateGrow(), 2, 5, "slots"),
        (StaticK(3), 3, 8, "rows"),
        (StaticK(1), 4, 8, "sorted"),
    ):
        run = engine(target, drafter, policy, slots=slots, rows=rows, key=key)
        assert {name: done.tokens for name, done in decode(run, todo).items()} == reference, (policy, slots, rows)
        accepted += sum(round_.accepted for round_ in run.rounds)
    assert accepted > 5  # the comparison is empty where nothing is ever accepted


def test_a_recorded_pair_replays_as_the_model_runs(folder: Path):
    target, drafter = load(folder, torch.float32)
    todo = requests(20)[:3]
    eager, recorded = (engine(target, drafter, RotateGrow(), key=key) for key in (None, "rows"))
    assert {n: d.tokens for n, d in decode(eager, todo).items()} == {n: d.tokens for n, d in decode(recorded, todo).items()}
    assert [(r.drafted, r.accepted) for r in eager.rounds] == [(r.drafted, r.accepted) for r in recorded.rounds]


@pytest.mark.parametrize("share", ["tick", "window"])
def test_a_park_costs_no_acceptance(folder: Path, share: str):
    """Every request that held the right runs the very rounds that it runs alone, whatever happened meanwhile."""
    target, drafter = load(folder, torch.float32)
    todo = requests(24)[1:3]
    run = engine(target, drafter, RotateGrow(), grants=Rotate(budget=2, share=share))
    finished = decode(run, todo)
    assert sum(grant.again for grant in run.grants.log) >= 4
    for request in todo:
        single = engine(target, drafter, RotateGrow())
        assert decode(single, [request])[request.id].tokens == finished[request.id].tokens
        if share == "tick":
            rounds = [[(r.drafted, r.accepted) for r in each.rounds if r.request == request.id] for each in (run, single)]
            assert rounds[0] == rounds[1]


@pytest.mark.parametrize("new", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_tokens_equal_transformers_generate_with_its_assistant_and_without(folder: Path, new: int):
    model = Gemma4ForCausalLM.from_pretrained(folder / "target").eval()
    assistant = Gemma4AssistantForCausalLM.from_pretrained(folder / "assistant").eval()
    assistant.generation_config.num_assistant_tokens = 3
    target, drafter = load(folder, torch.float32)
    todo = requests(new)[1:4:2]  # within the window that slides, and beyond it
    expected = {}
    for request in todo:
        ids = torch.tensor([request.prompt])
        options = {"max_new_tokens": new, "do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
        both = [model.generate(ids, **options, **with_)[0, ids.shape[1] :].tolist() for with_ in ({}, {"assistant_model": assistant})]
        assert both[0] == both[1]
        expected[request.id] = tuple(both[0])
    run = engine(target, drafter, RotateGrow())
    assert {name: done.tokens for name, done in decode(run, todo).items()} == expected == alone(target, todo)
    assert sum(round_.accepted for round_ in run.rounds) > new // 20
