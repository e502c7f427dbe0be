"""The assistant against transformers' own, and what its drafts may depend on: the committed
prefix."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    DynamicCache,
    Gemma4AssistantForCausalLM,
    PreTrainedModel,
)

from mtp.buckets import Buckets
from mtp.drafters import check_gemma_assistant, load_gemma_assistant
from mtp.drafters.gemma_assistant import GemmaAssistant
from mtp.drafters.protocol import Drafted
from mtp.targets import load_target
from mtp.targets.loading.checkpoint import Checkpoint
from tests.support.checkpoints import rewrite
from tests.support.gemma_checkpoints import (
    ODD,
    ONE_PROJECTION,
    PER_LAYER,
    write_assistant,
    write_gemma3,
    write_gemma4,
)
from tests.support.student import DEPTH, SLOTS
from tests.support.student import Student as AnyStudent

TOLERANCE = 1e-4  # of a probability
FORMS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "plain": (write_gemma4, {}, {}),
    "per_layer_clustered": (write_gemma4, PER_LAYER, {"ordered": True}),
    "one_projection_wide": (write_gemma4, ONE_PROJECTION, {"hidden": 80, "ordered": True}),
    "odd": (write_gemma4, ODD, {"hidden": 26}),
    "gemma3": (write_gemma3, {}, {}),  # trained for a target that never had one
}


class Models(NamedTuple):
    folder: Path  # with target/ and assistant/
    target: PreTrainedModel
    assistant: PreTrainedModel


class Student(AnyStudent):
    def __init__(
        self,
        folder: Path,
        texts: dict[int, Tensor],
        *,
        slots: int = SLOTS,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(
            load_target(folder / "target", slots=slots, context=192, dtype=dtype),
            texts,
            slots=slots,
        )
        self.drafter: GemmaAssistant = load_gemma_assistant(
            folder / "assistant", self.target, buckets=self.buckets
        )

    def caches(self) -> list[Tensor]:
        return [
            cache
            for kind in ("sliding_attention", "full_attention")
            for cache in self.target.kv(kind)
        ]


@pytest.fixture(scope="module", params=FORMS)
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Models:
    write, target, assistant = FORMS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    write(folder / "target", **target)
    write_assistant(folder / "assistant", folder / "target", **assistant)
    reference = (AutoModelForCausalLM, "target"), (Gemma4AssistantForCausalLM, "assistant")
    return Models(
        folder, *(model.from_pretrained(folder / part).eval() for model, part in reference)
    )


@pytest.fixture(scope="module")
def texts() -> dict[int, Tensor]:
    drawn = torch.randint(0, 300, (3, 170), generator=torch.Generator().manual_seed(3))
    return dict(enumerate(drawn))


@torch.inference_mode()
def reference_chain(models: Models, text: Tensor, drafts: list[int]) -> Tensor:
    """Probabilities [len(drafts), vocab] after a text whose last token is the anchor, by
    transformers' two models, on keys and values of exactly the tokens before it."""
    out = models.target(
        text[None, :-1],
        output_hidden_states=True,
        return_shared_kv_states=True,
        cache=DynamicCache(),
    )
    kv = getattr(out, "shared_kv_states", None)  # Gemma 4's
    if kv is None:
        kv = {
            kind: (held.keys, held.values)
            for kind, held in zip(models.target.config.layer_types, out.cache.layers, strict=True)
        }
    hidden, position = out.hidden_states[-1][:, -1:], torch.tensor([[len(text) - 1]])
    found = []
    for token in [int(text[-1]), *drafts[:-1]]:
        embedded = models.target.get_input_embeddings()(torch.tensor([[token]]))
        step = models.assistant(
            inputs_embeds=torch.cat([embedded, hidden], -1),
            position_ids=position,
            shared_kv_states=dict(kv),
        )
        found.append(step.logits[0, -1].softmax(-1))
        hidden = step.last_hidden_state
    return torch.stack(found)


def agrees(models: Models, student: Student, drafted: Drafted, slot: int) -> None:
    """Each draft is the reference's best (given the drafts before it), with its probability."""
    tokens, confidence = drafted.tokens[slot], drafted.confidence[slot]
    assert int(drafted.counts[slot]) == len(tokens)
    expected = reference_chain(
        models, student.texts[slot][: student.lengths[slot] + 1], tokens.tolist()
    )
    torch.testing.assert_close(
        confidence, expected.gather(1, tokens[:, None].long())[:, 0], atol=TOLERANCE, rtol=0
    )
    assert (expected.amax(1) - confidence < TOLERANCE).all()


def test_the_chain_is_transformers_after_any_number_of_accepted_drafts(
    models: Models, texts: dict[int, Tensor]
):
    """Windows that slide are much shorter than these texts, and slots of very different length."""
    student = Student(models.folder, texts)
    for slot, count in enumerate([4, 33, 120]):
        agrees(models, student, student.begin(slot, count, chunk=32), slot)
    for accepted in (0, 1, 2, 3, 3, 0):
        drafted = student.draft({0: 4, 1: 1}, {0: 1 + accepted, 1: 1})
        agrees(models, student, drafted, 0)
        agrees(models, student, drafted, 1)
    # parked until now
    agrees(models, student, student.draft({0: 2, 1: 2, 2: 4}, {0: 1, 1: 2, 2: 2}), 2)


def test_p09_nothing_is_stored_and_rejected_rows_are_never_read(
    models: Models, texts: dict[int, Tensor]
):
    """Whatever the rows behind the committed ones hold when it drafts."""
    results = []
    for poison in (False, True):
        student = Student(models.folder, texts)
        student.begin(0, 40)
        student.begin(1, 61)
        window = student.pack({0: 4, 1: 2})
        _, hidden = student.target.verify(window)
        kept = student.commit(window, {0: 2, 1: 1})
        for cache in student.caches() if poison else []:
            for slot, length in student.lengths.items():
                cache[slot, :, length:] = torch.nan
        before = [cache.clone() for cache in student.caches()]
        results.append(student.drafter.advance(window, kept, student.picks(window), hidden, DEPTH))
        for cache, old in zip(student.caches(), before, strict=True):
            torch.testing.assert_close(cache, old, equal_nan=True, atol=0, rtol=0)
    for clean, poisoned in zip(*results, strict=True):
        assert torch.equal(clean[:2], poisoned[:2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_p05_drafts_do_not_depend_on_company(
    models: Models, texts: dict[int, Tensor], dtype: torch.dtype
):
    """Groups (2, 2, 4) with matches (0, 1, 2); alone means: one row at a time, in a server with a
    single slot."""
    counts, rows, kept = [12, 60, 30], {0: 2, 1: 2, 2: 4}, {0: 1, 1: 2, 2: 3}
    together = Student(models.folder, texts, dtype=dtype)
    for slot, count in enumerate(counts):
        together.begin(slot, count)
    drafted = [
        together.draft(rows, kept),
        together.draft({1: 2}, {1: 1}),
        together.draft({0: 1, 1: 2, 2: 4}, {0: 1, 1: 2, 2: 4}),
    ]
    for slot, count in enumerate(counts):
        alone = Student(models.folder, {0: texts[slot]}, slots=1, dtype=dtype)
        alone.begin(0, count)
        for turn, steps in enumerate(
            [[1] * kept[slot], [1] * int(slot == 1), [1] * [1, 2, 4][slot]]
        ):
            for last in steps:
                mine = alone.draft({0: last}, {0: last})
            if steps:
                assert torch.equal(mine.tokens[0], drafted[turn].tokens[slot])
                assert torch.equal(mine.confidence[0], drafted[turn].confidence[slot])


def test_the_depth_only_cuts_the_chain(models: Models, texts: dict[int, Tensor]):
    student = Student(models.folder, texts)
    student.begin(0, 40)
    window = student.pack({0: 4})
    _, hidden = student.target.verify(window)
    options = (window, student.kept_in(0, 2), student.picks(window), hidden)
    full = student.drafter.advance(*options, DEPTH)
    for depth in (0, 1, 3):
        drafted = student.drafter.advance(*options, depth)
        assert drafted.tokens.shape == (SLOTS, depth)
        assert torch.equal(drafted.tokens[0], full.tokens[0, :depth])
        assert int(drafted.counts[0]) == depth
    with pytest.raises(ValueError, match="depth is 8, expected 0 to 7"):
        student.drafter.advance(*options, 8)


def test_a_faulty_row_drafts_something_without_confidence_and_harms_no_other(
    models: Models, texts: dict[int, Tensor]
):
    student = Student(models.folder, texts)
    for slot in (0, 1):
        student.begin(slot, 40)
    window = student.pack({0: 2, 1: 2})
    _, hidden = student.target.verify(window)
    options = (window, student.commit(window, {0: 1, 1: 2}), student.picks(window))
    clean = student.drafter.advance(*options, hidden, 3)
    hidden = hidden.clone()
    hidden[0] = torch.nan
    drafted = student.drafter.advance(*options, hidden, 3)
    assert not drafted.confidence[0].any()
    assert ((drafted.tokens[0] >= 0) & (drafted.tokens[0] < student.target.limits.vocab)).all()
    assert torch.equal(clean.tokens[1], drafted.tokens[1])
    assert torch.equal(clean.confidence[1], drafted.confidence[1])


# ---- refusals


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refusals")
    write_gemma4(folder / "target")
    write_assistant(folder / "assistant", folder / "target", ordered=True)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "copy"))


def load(folder: Path) -> GemmaAssistant:
    target = load_target(folder / "target", slots=1, context=64, dtype=torch.float32)
    return load_gemma_assistant(folder / "assistant", target, buckets=Buckets())


def refusal(folder: Path) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        load(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_m01_tensors_that_are_missing_renamed_doubled_or_misshaped(folder: Path):
    part = folder / "assistant"
    clean = load_file(part / "model.safetensors")
    load(folder)
    rewrite(
        part,
        lambda tensors: {
            name: tensor for name, tensor in tensors.items() if "projection" not in name
        },
    )
    assert "missing pre_projection.weight, post_projection.weight" in refusal(folder)
    rewrite(
        part,
        lambda _: {
            name.replace("model.norm", "model.final_norm"): tensor for name, tensor in clean.items()
        },
    )
    assert "missing model.norm.weight; unknown model.final_norm.weight" in refusal(folder)
    rewrite(part, lambda _: clean | {"pre_projection.weight": torch.zeros(32, 64)})
    assert "mis-shaped pre_projection.weight [32, 64] (expected [32, 128])" in refusal(folder)
    rewrite(part, lambda _: clean)
    save_file({"post_projection.weight": torch.zeros(64, 32)}, part / "more.safetensors")
    assert "doubled post_projection.weight (in model.safetensors and more.safetensors)" in refusal(
        folder
    )


def test_m01_iv_norms_are_stored_as_they_are(folder: Path):
    rewrite(
        folder / "assistant",
        lambda tensors: {
            n: torch.full_like(t, -0.033) if "norm" in n else t for n, t in tensors.items()
        },
    )
    drafter = load(folder)
    norms = [
        drafter.norm,
        *(
            norm
            for block in drafter.blocks
            for norm in (block.before_mixer, block.after_mlp, block.mixer.norm)
        ),
    ]
    assert all(torch.equal(norm.weight, torch.full_like(norm.weight, -0.033)) for norm in norms)


def test_the_order_of_tokens_must_be_one(folder: Path):
    rewrite(
        folder / "assistant",
        lambda tensors: (
            tensors | {"masked_embedding.token_ordering": torch.zeros(320, dtype=torch.long)}
        ),
    )
    assert "token_ordering is no order of the 320 tokens, expected each of them once" in refusal(
        folder
    )


MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "width": ({"hidden_size": 48}, "hidden size 64, but this target has 48"),
    "vocabulary": ({"vocab_size": 304}, "vocabulary 320, but this target has 304"),
    "key heads": (
        {"num_key_value_heads": 1},
        "sliding_attention key heads 2, but this target has 1",
    ),
    "sliding head": ({"head_dim": 24}, "sliding_attention head size 16, but this target has 24"),
    "full head": ({"global_head_dim": 48}, "full_attention head size 32, but this target has 48"),
}


@pytest.mark.parametrize("form", MISFITS)
def test_a_pair_that_does_not_fit_is_refused_with_both_numbers_before_weights_are_read(
    folder: Path, tmp_path: Path, form: str
):
    config, message = MISFITS[form]
    other = write_gemma4(tmp_path / "other", **config)
    with pytest.raises(ValueError, match=message):
        load_gemma_assistant(
            folder / "assistant",
            load_target(other, slots=1, context=64, dtype=torch.float32),
            buckets=Buckets(),
        )
    (folder / "assistant" / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    with pytest.raises(ValueError, match=message):
        check_gemma_assistant(folder / "assistant", Checkpoint(other))
    check_gemma_assistant(folder / "assistant", Checkpoint(folder / "target"))


CONFIGS: dict[str, dict[str, Any]] = {
    "hidden_size_per_layer_input is 8, supported: 0": {
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 320,
    },
    "use_double_wide_mlp is True, supported: False": {"use_double_wide_mlp": True},
    "enable_moe_block is True, supported: False": {"enable_moe_block": True},
    "num_kv_shared_layers is 1, expected all 2 layers of an assistant": {"num_kv_shared_layers": 1},
    "num_centroids is 7 and centroid_intermediate_top_k 4, expected a divisor of 320": {
        "num_centroids": 7
    },
    "num_centroids is 2 and centroid_intermediate_top_k 4": {"num_centroids": 2},
}


@pytest.mark.parametrize("message", CONFIGS)
def test_settings_that_are_not_followed_are_refused(folder: Path, message: str):
    file = folder / "assistant" / "config.json"
    config = json.loads(file.read_text())
    change = CONFIGS[message]
    config |= {key: value for key, value in change.items() if key in config}
    config["text_config"] |= {key: value for key, value in change.items() if key not in config}
    file.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        check_gemma_assistant(folder / "assistant", Checkpoint(folder / "target"))


def test_target_and_assistant_are_not_taken_for_each_other(folder: Path):
    with pytest.raises(
        ValueError, match="backbone_hidden_size says an assistant, expected a target"
    ):
        load_target(folder / "assistant", slots=1, context=64, dtype=torch.float32)
    with pytest.raises(ValueError, match="model_type is 'gemma4_text', expected gemma4_assistant"):
        check_gemma_assistant(folder / "target", Checkpoint(folder / "target"))
