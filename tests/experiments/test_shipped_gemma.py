"""The Gemma that ships: what its card says of its assistant is what the engine accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from experiments.assets import MODELS
from experiments.training.corpus import KINDS, documents, encode
from experiments.training.gemma_folder import read_folder
from experiments.training.generate import continue_greedy, spread
from experiments.training.stats import DEPTH, PROMPT, accepted_of, stats
from experiments.training.trainable import family
from mtp.buckets import Buckets
from mtp.drafters import load_gemma_assistant
from mtp.drafters.protocol import Drafter
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.policies import RotateGrow, StaticK
from mtp.request import Request
from mtp.targets import load_target
from mtp.targets.protocol import Target
from tests.experiments.test_shipped import LIMIT_MB, TINY, _near

GEMMA = MODELS / "tiny_gemma"
CPU, BUCKETS = torch.device("cpu"), Buckets((4, 8))
TEXTS, NEW = 2, 40


class Pair(NamedTuple):
    target: Target
    assistant: Drafter


@pytest.fixture(scope="module")
def held_out() -> dict[str, Tensor]:
    _, _, tokenizer = read_folder(GEMMA)
    return {
        kind: encode([one.text for one in documents(kind, 2_000_000) if one.held_out], tokenizer)
        for kind in KINDS
    }


@pytest.fixture(scope="module", params=[torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    target = load_target(GEMMA, slots=TEXTS, context=PROMPT + NEW, dtype=request.param, device=CPU)
    yield Pair(target, load_gemma_assistant(GEMMA / "assistant", target, buckets=BUCKETS))
    torch.set_num_threads(threads)


def run(pair: Pair, texts: Tensor, policy: RotateGrow | StaticK, slots: int) -> Engine:
    executor = ModelExecutor(
        pair.target,
        pair.assistant,
        slots=TEXTS,
        largest_group=DEPTH + 1,
        depth=policy.depth,
        buckets=BUCKETS,
        device=CPU,
    )
    engine = Engine(executor, slots=slots, policy=policy)
    for number, text in enumerate(texts.tolist()):
        engine.submit(Request(str(number), tuple(text), NEW, ignore_stop=True))
    engine.run()
    return engine


def test_folder_is_small_and_whole() -> None:
    files = {str(file.relative_to(GEMMA)) for file in GEMMA.rglob("*") if file.is_file()}
    wanted = {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
    }
    assert (
        wanted
        | {
            "assistant/config.json",
            "assistant/model.safetensors",
            "README.md",
            "figures.json",
            "training.json",
        }
        == files
    )
    assert sum((GEMMA / name).stat().st_size for name in files) / 1e6 <= LIMIT_MB


def test_both_models_read_the_same_tokens() -> None:
    assert (GEMMA / "tokenizer.json").read_bytes() == (TINY / "tokenizer.json").read_bytes()


def test_card_quotes_its_figures() -> None:
    card, found = (
        (GEMMA / "README.md").read_text(),
        json.loads((GEMMA / "figures.json").read_text()),
    )
    for kind in KINDS:
        assert f"{found[kind]['heads']['assistant']['own_novel_first']:.2f}" in card


@pytest.mark.parametrize("pair", [torch.float32], indirect=True, ids=["fp32"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_accepts_what_the_card_counts(
    pair: Pair, kind: str, held_out: dict[str, Tensor]
) -> None:
    """Round by round: the figures are shares of these, over more texts."""
    target, assistant, _ = read_folder(GEMMA)
    prompts = spread(held_out[kind], TEXTS, PROMPT)
    own = continue_greedy(target, prompts, NEW)
    lengths = accepted_of(target, assistant, own).sum(-1).tolist()
    engine = run(pair, prompts, StaticK(DEPTH), slots=1)
    for done in engine.finished:
        number, at = int(done.id), 0
        assert list(done.tokens) == own[number, PROMPT:].tolist()
        for round_ in (each for each in engine.rounds if each.request == done.id):
            if at + DEPTH < len(lengths[number]):  # what comes later is cut by the length
                assert round_.accepted == lengths[number][at]
            at += round_.accepted + 1
        assert at + 1 == NEW  # the first token is the prefill's


def test_text_is_plain_decodings_whatever_the_policy(
    pair: Pair, held_out: dict[str, Tensor]
) -> None:
    texts = torch.cat([spread(held_out[kind], 1, PROMPT) for kind in KINDS])
    plain = {done.id: done.tokens for done in run(pair, texts, StaticK(0), slots=1).finished}
    for policy, slots in ((StaticK(1), 1), (RotateGrow(), TEXTS)):
        engine = run(pair, texts, policy, slots)
        assert {done.id: done.tokens for done in engine.finished} == plain
        assert sum(round_.accepted for round_ in engine.rounds) > 0


@pytest.mark.slow
def test_figures_are_what_the_shipped_files_give() -> None:
    torch.set_num_threads(2)
    assert _near(stats(GEMMA, family("gemma4")), json.loads((GEMMA / "figures.json").read_text()))


@pytest.mark.slow
def test_shipped_model_loads_in_transformers_with_equal_logits(held_out: dict[str, Tensor]) -> None:
    from transformers import Gemma4ForCausalLM

    target, _, _ = read_folder(GEMMA)
    reference = Gemma4ForCausalLM.from_pretrained(GEMMA, dtype=torch.float32).eval()
    ids = held_out["code"][:200][None]
    with torch.no_grad():
        torch.testing.assert_close(
            target.logits(target(ids)), reference(ids).logits, rtol=1e-3, atol=1e-3
        )
