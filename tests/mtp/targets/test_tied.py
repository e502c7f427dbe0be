"""N02: whether embedding and head are one tensor is decided by what is stored, as transformers
does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    Gemma3ForCausalLM,
    Gemma4AssistantForCausalLM,
    Gemma4ForCausalLM,
    LlamaForCausalLM,
    Qwen3_5ForCausalLM,
)

from mtp.buckets import Buckets
from mtp.drafters import load_gemma_assistant, load_qwen_mtp
from mtp.drafters.sidecar import about_target, check_target_of
from mtp.targets import load_target
from mtp.targets.decoder import DecoderTarget
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.loading.weights import EMBEDDING, HEAD
from tests.support.checkpoints import rewrite, write_llama, write_qwen3_5
from tests.support.gemma_checkpoints import write_assistant, write_gemma3, write_gemma4

TEXT = torch.arange(3, 15)
FAMILIES: dict[str, tuple[Any, Any]] = {
    "qwen3_5": (write_qwen3_5, Qwen3_5ForCausalLM),
    "llama": (write_llama, LlamaForCausalLM),
    "gemma3": (write_gemma3, Gemma3ForCausalLM),
    "gemma4": (write_gemma4, Gemma4ForCausalLM),
}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any]:
    """A folder whose config ties, and transformers' class for it."""
    write, reference = FAMILIES[request.param]
    return write(tmp_path / "checkpoint", tie_word_embeddings=True), reference


def load(folder: Path) -> DecoderTarget:
    return load_target(folder, slots=1, context=64, dtype=torch.float32)


def logits_of(target: DecoderTarget) -> Tensor:
    return target.logits(target.prefill(0, TEXT, 0)[1])


def assert_as_transformers(folder: Path, reference: Any, target: DecoderTarget) -> None:
    with torch.inference_mode():
        wanted = reference.from_pretrained(folder).eval()(TEXT[None]).logits[0]
    torch.testing.assert_close(logits_of(target), wanted, atol=1e-3, rtol=0)


def with_head(change: Any) -> Any:
    return lambda tensors: tensors | {HEAD: change(tensors[EMBEDDING]).clone()}


def test_N02_a_stored_head_that_differs_is_used_and_named(family: tuple[Path, Any], capsys: Any):
    folder, reference = family
    rewrite(folder, with_head(lambda embedding: embedding.roll(1, 0)))
    target = load(folder)
    notes = capsys.readouterr().err.splitlines()
    assert [line for line in notes if "tie_word_embeddings is true" in line and str(folder) in line]
    assert len(notes) == 1
    assert_as_transformers(folder, reference, target)


def test_N02_equal_tensors_tie_without_a_word(family: tuple[Path, Any], capsys: Any):
    folder, reference = family
    rewrite(folder, with_head(lambda embedding: embedding))
    target = load(folder)
    assert torch.equal(target.head.weight, target.embedding)
    assert not capsys.readouterr().err
    assert_as_transformers(folder, reference, target)


def test_N02_a_tied_pair_of_which_only_the_head_is_stored(family: tuple[Path, Any]):
    folder, reference = family
    rewrite(folder, lambda tensors: {HEAD if n == EMBEDDING else n: t for n, t in tensors.items()})
    assert_as_transformers(folder, reference, load(folder))


@pytest.mark.parametrize("name", [EMBEDDING, HEAD])
def test_N02_untied_and_missing_is_refused_by_name(family: tuple[Path, Any], name: str):
    folder, _ = family
    rewrite(folder, with_head(lambda embedding: embedding.roll(1, 0)))
    rewrite(folder, lambda tensors: {n: t for n, t in tensors.items() if n != name})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    with pytest.raises(ValueError, match=f"missing {name}$"):
        load(folder)


def test_N02_an_assistants_stored_head_is_used(tmp_path: Path, capsys: Any):
    write_gemma4(tmp_path / "target")
    folder = write_assistant(tmp_path / "assistant", tmp_path / "target")
    rewrite(folder, with_head(lambda embedding: embedding.roll(1, 0)))
    drafter = load_gemma_assistant(folder, load(tmp_path / "target"), buckets=Buckets())
    theirs = Gemma4AssistantForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert torch.equal(drafter.head.head.weight, theirs.lm_head.weight)
    assert not torch.equal(drafter.head.head.weight, theirs.model.embed_tokens.weight)
    assert "tie_word_embeddings is true" in capsys.readouterr().err


def test_N02_what_an_mtp_head_repeats_of_its_target_must_be_the_same(tmp_path: Path):
    folder = write_qwen3_5(tmp_path)
    for own, theirs in (("mtp.embed_tokens.weight", EMBEDDING), ("mtp.lm_head.weight", HEAD)):
        rewrite(folder, lambda tensors, own=own, from_=theirs: tensors | {own: tensors[from_] * 1})
        target = load(folder)
        load_qwen_mtp(folder, target, buckets=Buckets())
        rewrite(folder, lambda tensors, own=own: tensors | {own: tensors[own].roll(1, 0)})
        with pytest.raises(ValueError, match=f"{own} differs from the target's"):
            load_qwen_mtp(folder, target, buckets=Buckets())
        rewrite(folder, lambda tensors, own=own: {n: t for n, t in tensors.items() if n != own})


def test_N02_a_sidecar_knows_the_head_it_was_trained_with(tmp_path: Path):
    tied = Checkpoint(write_llama(tmp_path, tie_word_embeddings=True))
    before = about_target(tied)
    assert list(before) == ["embedding"]
    rewrite(tmp_path, with_head(lambda embedding: embedding))
    assert about_target(Checkpoint(tmp_path)) == before
    rewrite(tmp_path, with_head(lambda embedding: embedding.roll(1, 0)))
    now = Checkpoint(tmp_path)
    assert about_target(now)["head"] != before["embedding"]
    now.config["mtp_target"] = about_target(now)
    rewrite(tmp_path, with_head(lambda embedding: embedding.roll(2, 0)))
    with pytest.raises(ValueError, match="a target of other weights"):
        check_target_of(now, Checkpoint(tmp_path))
