"""The model executor on a tiny Gemma 4 and its assistant: tokens equal plain decoding alone, and
transformers' own two ways.

Its sliding layers see 16 tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import Gemma4AssistantForCausalLM, Gemma4ForCausalLM

from mtp.drafters import load_gemma_assistant
from mtp.drafters.gemma_assistant import GemmaAssistant
from mtp.grants import Rotate
from mtp.policies import RotateGrow, StaticK
from mtp.targets import load_target
from mtp.targets.decoder import DecoderTarget
from tests.support.gemma_checkpoints import PER_LAYER, write_assistant, write_gemma4
from tests.support.small import (
    BUCKETS,
    CONTEXT,
    CPU,
    SLOTS,
    VOCAB,
    alone,
    decode,
    engine,
    requests,
    tokens,
)

SMALL = PER_LAYER | {
    "vocab_size": VOCAB,
    "vocab_size_per_layer_input": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gemma")
    write_gemma4(folder / "target", seed=2, **SMALL)
    write_assistant(folder / "assistant", folder / "target", hidden=16, intermediate_size=24)
    return folder


def load(folder: Path, dtype: torch.dtype) -> tuple[DecoderTarget, GemmaAssistant]:
    target = load_target(folder / "target", slots=SLOTS, context=CONTEXT, dtype=dtype, device=CPU)
    return target, load_gemma_assistant(folder / "assistant", target, buckets=BUCKETS)


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(torch.float32, marks=pytest.mark.slow), torch.bfloat16],
    ids=["fp32", "bf16"],
)
def test_tokens_equal_plain_decoding_alone_whatever_policy_slots_rows_and_layout_key(
    folder: Path, dtype: torch.dtype
):
    target, drafter = load(folder, dtype)
    todo = requests(16)
    reference, accepted = alone(target, todo), 0
    for policy, slots, rows, key in (
        (RotateGrow(), 4, 8, None),
        (RotateGrow(), 2, 5, "slots"),
        (StaticK(3), 3, 8, "rows"),
        (StaticK(1), 4, 8, "sorted"),
    ):
        run = engine(target, drafter, policy, slots=slots, rows=rows, key=key)
        assert tokens(run, todo) == reference, (policy, slots, rows, key)
        accepted += sum(round_.accepted for round_ in run.rounds)
    assert accepted > 5  # the comparison is empty where nothing is ever accepted


def test_a_recorded_pair_replays_as_the_model_runs(folder: Path):
    target, drafter = load(folder, torch.float32)
    todo = requests(20)[:3]
    eager, recorded = (engine(target, drafter, RotateGrow(), key=key) for key in (None, "rows"))
    assert tokens(eager, todo) == tokens(recorded, todo)
    assert [(r.drafted, r.accepted) for r in eager.rounds] == [
        (r.drafted, r.accepted) for r in recorded.rounds
    ]


@pytest.mark.parametrize("share", ["tick", "window"])
def test_a_park_costs_no_acceptance(folder: Path, share: str):
    """Both requests run the very rounds that they run alone, whatever happened between them."""
    target, drafter = load(folder, torch.float32)
    first, second = requests(24)[1:3]
    todo = [first, replace(second, arrival_s=1e-6)]
    run = engine(target, drafter, RotateGrow(), grants=Rotate(budget=2, share=share))
    finished = decode(run, todo)
    assert sum(grant.again for grant in run.grants.log) >= 4
    for request in todo:
        single = engine(target, drafter, RotateGrow())
        assert decode(single, [request])[request.id].tokens == finished[request.id].tokens
        if share == "tick":  # else it also decodes plainly while the other holds the right
            rounds = [
                [(r.drafted, r.accepted) for r in each.rounds if r.request == request.id]
                for each in (run, single)
            ]
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
        options = {
            "max_new_tokens": new,
            "do_sample": False,
            "pad_token_id": 0,
            "attention_mask": torch.ones_like(ids),
        }
        both = [
            model.generate(ids, **options, **with_)[0, ids.shape[1] :].tolist()
            for with_ in ({}, {"assistant_model": assistant})
        ]
        assert both[0] == both[1]
        expected[request.id] = tuple(both[0])
    run = engine(target, drafter, RotateGrow())
    assert tokens(run, todo) == expected == alone(target, todo)
    assert sum(round_.accepted for round_ in run.rounds) > new // 20
