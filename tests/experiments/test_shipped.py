"""The text, prompts and model that ship."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
import torch

from experiments.assets import MODELS, PROMPTS
from experiments.training.corpus import KINDS, Corpus, documents
from experiments.training.qwen_folder import read_folder
from experiments.training.stats import stats
from experiments.training.tokenizer import END, train_tokenizer
from experiments.training.trainable import family

TINY = MODELS / "tiny_qwen"
LIMIT_MB = 20.0  # of a shipped model


def read(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (PROMPTS / f"{name}.jsonl").read_text().splitlines()]


def test_prompt_files_are_the_pinned_ones() -> None:
    listed = dict(
        reversed(line.split()) for line in (PROMPTS / "SHA256SUMS").read_text().splitlines()
    )
    assert set(listed) == {file.name for file in PROMPTS.glob("*.jsonl")}
    for name, sum_ in listed.items():
        assert hashlib.sha256((PROMPTS / name).read_bytes()).hexdigest() == sum_, name


@pytest.mark.parametrize("name", ["code", "prose", "mixed", "chat"])
def test_prompts_are_many_and_of_use(name: str) -> None:
    prompts = read(name)
    _, _, tokenizer = read_folder(TINY)
    assert len(prompts) >= 32
    assert len({prompt["id"] for prompt in prompts}) == len(prompts)
    for prompt in prompts:
        assert set(prompt) == {"id", "prompt", "source", "licence"}
        assert 24 <= len(tokenizer.encode(prompt["prompt"]).ids) <= 192, prompt["id"]


def test_prompts_are_held_out() -> None:
    held_out = {one.source for one in documents("prose") if one.held_out}
    trained = "\n".join(one.text for kind in KINDS for one in documents(kind) if not one.held_out)
    for prompt in (*read("prose"), *read("chat")):
        assert prompt["source"] in held_out
    for prompt in (*read("code"), *read("prose"), *read("chat")):
        assert prompt["prompt"] not in trained


def test_documents_carry_licence_and_split() -> None:
    for kind in KINDS:
        found = documents(kind)
        assert all(one.licence and one.source and one.text for one in found)
        share = sum(len(one.text) for one in found if one.held_out) / sum(
            len(one.text) for one in found
        )
        assert 0.02 < share < 0.15, kind


def test_tokenizer_round_trip() -> None:
    _, _, shipped = read_folder(TINY)
    own = train_tokenizer(["for i in range(10):\n    print(i)\n"] * 5, 300)
    for tokenizer in (shipped, own):
        for text in (
            "def f(x):\n\treturn [x]\n",
            "naïve ünïcode — 漢字 🙂",
            "  two  spaces \n\n",
            "",
        ):
            assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert shipped.token_to_id(END) == 0


def test_folder_is_small_and_whole() -> None:
    files = {str(file.relative_to(TINY)) for file in TINY.rglob("*")}
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
            "heads/low.safetensors",
            "heads/mid.safetensors",
            "README.md",
            "figures.json",
            "training.json",
        }
        <= files
    )
    loads = sum((TINY / name).stat().st_size for name in wanted)
    assert loads / 1e6 <= LIMIT_MB


def test_card_quotes_its_figures() -> None:
    card, found = (TINY / "README.md").read_text(), json.loads((TINY / "figures.json").read_text())
    for kind in KINDS:
        assert f"{found[kind]['heads']['high']['own_novel_first']:.2f}" in card


@pytest.mark.slow
def test_figures_are_what_the_shipped_files_give() -> None:
    torch.set_num_threads(2)
    assert _near(stats(TINY, family("qwen3_5")), json.loads((TINY / "figures.json").read_text()))


@pytest.mark.slow
def test_shipped_model_loads_in_transformers_with_equal_logits() -> None:
    from transformers import Qwen3_5ForCausalLM

    model, _, tokenizer = read_folder(TINY)
    reference = Qwen3_5ForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()
    ids = Corpus.load(tokenizer, 100_000).train["code"][:200][None]
    with torch.no_grad():
        torch.testing.assert_close(
            model.logits(model(ids)), reference(ids).logits, rtol=1e-3, atol=1e-3
        )


def _near(got: Any, wanted: Any) -> bool:
    """Greedy text may part at a tie on another CPU, so shares may differ by 0.03."""
    if isinstance(wanted, dict):
        return got.keys() == wanted.keys() and all(_near(got[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return len(got) == len(wanted) and all(map(_near, got, wanted))
    return abs(got - wanted) <= 0.03 * max(1.0, abs(wanted))
