"""The MTP head against transformers' own, and what its drafts may depend on: the committed
prefix."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from mtp.buckets import Buckets
from mtp.drafters import load_qwen_mtp
from mtp.drafters.protocol import Drafted
from mtp.drafters.qwen_mtp import QwenMtp
from mtp.targets import load_target
from tests.support.checkpoints import (
    LLAMA3_ROPE,
    NINE_HEADS,
    ODD,
    DenseWithMtp,
    LlamaWithMtp,
    Qwen2WithMtp,
    mtp_model,
    rewrite,
    write_llama,
    write_qwen2,
    write_qwen3,
    write_qwen3_5,
    write_qwen3_5_moe,
)
from tests.support.student import DEPTH, SLOTS
from tests.support.student import Student as AnyStudent
from tests.support.teacher import Teacher, ints

TOLERANCE = 1e-3
FORMS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "hybrid": (write_qwen3_5, Qwen3_5ForCausalLM, {}),
    "odd": (write_qwen3_5, Qwen3_5ForCausalLM, ODD),
    "experts": (write_qwen3_5_moe, Qwen3_5MoeForCausalLM, {}),
    "llama": (write_llama, LlamaWithMtp, NINE_HEADS | {"rope_parameters": LLAMA3_ROPE}),
    "qwen2": (write_qwen2, Qwen2WithMtp, {}),
    "two_layers": (write_qwen3_5, Qwen3_5ForCausalLM, {"mtp": 2}),
    "three_layers": (write_qwen3, DenseWithMtp, {"mtp": 3}),
    "dense_tied": (write_qwen3, DenseWithMtp, {"tie_word_embeddings": True}),
}
DENSE_NAMES = ["qwen3", "qwen2", "llama"]


class Student(AnyStudent):
    def __init__(
        self,
        folder: Path,
        texts: dict[int, Tensor],
        *,
        slots: int = SLOTS,
        dtype: torch.dtype = torch.float32,
        **options: Any,
    ) -> None:
        super().__init__(
            load_target(folder, slots=slots, context=192, dtype=dtype), texts, slots=slots
        )
        self.drafter: QwenMtp = load_qwen_mtp(folder, self.target, buckets=self.buckets, **options)


@pytest.fixture(scope="module", params=FORMS)
def models(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Any, MtpModel]:
    write, reference, config = FORMS[request.param]
    folder = write(tmp_path_factory.mktemp(request.param), **config)
    target = reference.from_pretrained(folder).eval()
    return folder, target, mtp_model(target, folder)


@pytest.fixture(scope="module")
def texts() -> dict[int, Tensor]:
    drawn = torch.randint(0, 300, (3, 170), generator=torch.Generator().manual_seed(3))
    return dict(enumerate(drawn))


@torch.inference_mode()
def reference_chain(models: tuple[Path, Any, MtpModel], text: Tensor, drafts: list[int]) -> Tensor:
    """Probabilities [len(drafts), vocab] of transformers' head, chained on its own rows.

    For each draft it runs over the whole prefix again.
    """
    _, target, head = models
    hidden = target(text[None, :-1], output_hidden_states=True, use_cache=False).hidden_states[-1]
    tokens, last = text[None, 1:], len(head.layers) - 1
    found = []
    for step, draft in enumerate(drafts):
        layer = min(step, last)
        cache = MtpCache(config=target.config.get_mtp_config())
        positions = torch.arange(layer + 1, layer + 1 + tokens.shape[1])[None]
        out = head.forward_layer(layer, hidden, positions, cache, input_ids=tokens)
        found.append(head.shared_head(out[0, -1]).softmax(-1))
        following = torch.cat([tokens, torch.tensor([[draft]])], 1)
        hidden, tokens = (
            (out, following[:, 1:])
            if step < last
            else (torch.cat([hidden, out[:, -1:]], 1), following)
        )
    return torch.stack(found)


def agrees(
    models: tuple[Path, Any, MtpModel], student: Student, drafted: Drafted, slot: int
) -> None:
    """Each draft is the reference's best (given the drafts before it), with its probability."""
    tokens, confidence = drafted.tokens[slot], drafted.confidence[slot]
    assert int(drafted.counts[slot]) == len(tokens)
    # entries 0..n-1 are committed; the last one holds token n, the pick
    expected = reference_chain(
        models, student.texts[slot][: student.lengths[slot] + 1], tokens.tolist()
    )
    torch.testing.assert_close(
        confidence, expected.gather(1, tokens[:, None].long())[:, 0], atol=TOLERANCE, rtol=0
    )
    assert (expected.amax(1) - confidence < TOLERANCE).all()


def test_p09_the_chain_is_transformers_after_any_number_of_accepted_drafts(
    models: tuple[Path, Any, MtpModel], texts: dict[int, Tensor]
):
    student = Student(models[0], texts)
    for slot, count in enumerate([4, 33, 70]):
        student.begin(slot, count, chunk=32)
    for accepted in (0, 1, 2, 3, 3, 0):
        drafted = student.draft({0: 4, 1: 1}, {0: 1 + accepted, 1: 1})
        agrees(models, student, drafted, 0)
        agrees(models, student, drafted, 1)
    # parked until now
    agrees(models, student, student.draft({0: 2, 1: 2, 2: 4}, {0: 1, 1: 2, 2: 2}), 2)


@pytest.mark.parametrize(("prompt", "chunk"), [(1, 9), (2, 1), (2, 9), (3, 2)])
def test_prompts_shorter_than_there_are_layers(
    models: tuple[Path, Any, MtpModel], texts: dict[int, Tensor], prompt: int, chunk: int
):
    """A further layer has no entry before it has a token that far ahead."""
    student = Student(models[0], texts)
    student.begin(2, 60)
    agrees(models, student, student.begin(0, prompt, chunk, DEPTH), 0)
    for rows, kept in ((4, 3 if chunk == 9 else 1), (4, 1), (4, 2), (1, 1)):
        agrees(models, student, student.draft({0: rows, 2: 2}, {0: kept, 2: 1}), 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_p05_drafts_do_not_depend_on_company(
    models: tuple[Path, Any, MtpModel], texts: dict[int, Tensor], dtype: torch.dtype
):
    """Groups (2, 2, 4) with matches (0, 1, 2): the draft of each slot is made of its own last kept
    row and pick.

    Alone means: one row at a time, in a server with a single slot."""
    counts, rows, kept = [12, 60, 30], {0: 2, 1: 2, 2: 4}, {0: 1, 1: 2, 2: 3}
    together = Student(models[0], texts, dtype=dtype)
    for slot, count in enumerate(counts):
        together.begin(slot, count)
    drafted = [
        together.draft(rows, kept),
        together.draft({1: 2}, {1: 1}),
        together.draft({0: 1, 1: 2, 2: 4}, {0: 1, 1: 2, 2: 4}),
    ]
    for slot, count in enumerate(counts):
        alone = Student(models[0], {0: texts[slot]}, slots=1, dtype=dtype)
        alone.begin(0, count)
        for turn, steps in enumerate(
            [[1] * kept[slot], [1] * int(slot == 1), [1] * [1, 2, 4][slot]]
        ):
            for last in steps:
                mine = alone.draft({0: last}, {0: last})
            if steps:
                assert torch.equal(mine.tokens[0], drafted[turn].tokens[slot])
                assert torch.equal(mine.confidence[0], drafted[turn].confidence[slot])


def test_p07_a_reused_slot_drafts_like_a_fresh_one(
    models: tuple[Path, Any, MtpModel], texts: dict[int, Tensor]
):
    used, fresh = Student(models[0], dict(texts)), Student(models[0], {1: texts[0]})
    used.begin(1, 20)
    used.draft({1: 4}, {1: 3})
    used.texts[1] = texts[0]
    for student in (used, fresh):
        student.begin(1, 3)
    assert all(
        map(
            torch.equal,
            (d[1] for d in used.draft({1: 4}, {1: 2})),
            (d[1] for d in fresh.draft({1: 4}, {1: 2})),
        )
    )


def test_the_depth_only_cuts_the_chain_and_nothing_kept_changes_nothing(
    models: tuple[Path, Any, MtpModel], texts: dict[int, Tensor]
):
    student = Student(models[0], texts)
    caches = [student.drafter.caches[0].keys, student.drafter.caches[0].values]
    student.begin(0, 40)
    before = [cache[0, :, :40].clone() for cache in caches]
    window = student.pack({0: 4})
    _, hidden = student.target.verify(window)
    student.drafter.advance(window, student.kept_in(0, 0), student.picks(window), hidden, DEPTH)
    assert all(
        torch.equal(cache[0, :, :40], old) for cache, old in zip(caches, before, strict=True)
    )
    assert not any(cache[0, :, 40 + DEPTH :].any() for cache in caches)
    full = student.drafter.advance(
        window, student.kept_in(0, 2), student.picks(window), hidden, DEPTH
    )
    for depth in (0, 1, 3):
        drafted = student.drafter.advance(
            window, student.kept_in(0, 2), student.picks(window), hidden, depth
        )
        assert drafted.tokens.shape == (SLOTS, depth)
        assert torch.equal(drafted.tokens[0], full.tokens[0, :depth])
        assert int(drafted.counts[0]) == depth
    with pytest.raises(ValueError, match="depth is 8, expected 0 to 7"):
        student.drafter.advance(window, student.kept_in(0, 2), student.picks(window), hidden, 8)


def test_p01_nothing_is_written_at_or_past_the_drafters_own_context(
    models: tuple[Path, Any, MtpModel], texts: dict[int, Tensor]
):
    """Entries for positions below it, provisional ones within the depth, and a prompt that is
    longer than it."""
    student = Student(models[0], texts, context=50)
    keys = student.drafter.caches[0].keys
    student.begin(0, 49)
    # position 49, the last; rows 50..52 are not kept
    agrees(models, student, student.draft({0: 4}, {0: 1}, 1), 0)
    assert keys[0, :, 49].any()
    assert not keys[0, :, 50:].any()
    student.drafter.prefill(1, texts[1][:91].int(), torch.randn(90, student.target.hidden_size), 0)
    assert keys[1, :, 49].any()
    assert not keys[1, :, 50:].any()


@pytest.mark.parametrize(
    ("write", "reference"),
    [(write_qwen3, DenseWithMtp), (write_qwen2, Qwen2WithMtp), (write_llama, LlamaWithMtp)],
    ids=DENSE_NAMES,
)
@pytest.mark.parametrize("new", [48, pytest.param(200, marks=pytest.mark.slow)])
def test_dense_end_to_end_equals_generate_with_mtp(
    tmp_path: Path, write: Any, reference: Any, new: int
):
    """Text and number of target forwards: the same drafts are accepted at the same places (depth 1,
    as transformers runs it)."""
    model = reference.from_pretrained(write(tmp_path, vocab_size=12, seed=6)).eval()
    prompt = torch.tensor([[3, 9, 4, 1, 5, 2, 11, 10, 8]])
    forwards = []
    model.register_forward_pre_hook(lambda *_: forwards.append(1))
    expected = model.generate(prompt, max_new_tokens=new, do_sample=False, use_mtp=True)[
        0, prompt.shape[1] :
    ].tolist()

    slots = 2
    target = load_target(tmp_path, slots=slots, context=256, dtype=torch.float32)
    drafter = load_qwen_mtp(tmp_path, target, buckets=Buckets())
    teacher = Teacher(target, {1: prompt[0]}, slots)
    logits, hidden = teacher.prefill(1, prompt.shape[1])
    drafter.prefill(1, prompt[0].int(), hidden[:-1], 0)
    emitted = [int(logits.argmax())]
    teacher.lengths[1] -= 1
    window = teacher.pack({1: 1})
    rows, picks = torch.zeros(len(window.ids), hidden.shape[1]), torch.zeros_like(window.ids)
    rows[0], picks[0] = hidden[-1], emitted[0]
    drafted = drafter.advance(window, ints([0, 1]), picks, rows, 1)
    teacher.lengths[1] += 1
    windows = 1  # the prompt's
    accepted = 0
    while len(emitted) < new:
        draft = int(drafted.tokens[1, 0])
        teacher.texts[1] = torch.cat([prompt[0], torch.tensor([*emitted, draft])])
        size = min(2, new - len(emitted))
        window = teacher.pack({1: size})
        logits, rows = target.verify(window)
        picks = logits.argmax(1).int()
        kept = 2 if size == 2 and int(picks[0]) == draft else 1
        drafted = drafter.advance(window, teacher.commit(window, {1: kept}), picks, rows, 1)
        emitted += picks[:kept].tolist()
        windows += 1
        accepted += kept - 1
    assert emitted == expected
    assert accepted > 0
    assert windows == len(forwards)


# ---- M01: weights that are missing, renamed, doubled, mis-shaped


@pytest.fixture(scope="module", params=["hybrid", "experts", "llama", "qwen2", "dense_tied"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FORMS[request.param][0](tmp_path_factory.mktemp("m01"))


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "copy"))


def load(folder: Path) -> QwenMtp:
    return load_qwen_mtp(
        folder, load_target(folder, slots=1, context=64, dtype=torch.float32), buckets=Buckets()
    )


def refusal(folder: Path) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        load(folder)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_m01_i_no_mtp_tensors(folder: Path):
    names = [name for name in load_file(folder / "model.safetensors") if name.startswith("mtp.")]
    assert len(names) >= 13
    rewrite(
        folder,
        lambda tensors: {name: tensor for name, tensor in tensors.items() if name not in names},
    )
    message = refusal(folder)
    assert "missing" in message
    assert all(name in message for name in names)


def test_m01_ii_one_renamed(folder: Path):
    rewrite(
        folder,
        lambda tensors: {
            name.replace("mtp.norm", "mtp.final_norm"): tensor for name, tensor in tensors.items()
        },
    )
    assert "missing mtp.norm.weight; unknown mtp.final_norm.weight" in refusal(folder)


def test_m01_iii_one_doubled_and_one_misshaped(folder: Path):
    save_file({"mtp.fc.weight": torch.zeros(64, 128)}, folder / "more.safetensors")
    assert "doubled mtp.fc.weight (in model.safetensors and more.safetensors)" in refusal(folder)
    (folder / "more.safetensors").unlink()
    rewrite(folder, lambda tensors: tensors | {"mtp.fc.weight": torch.zeros(128, 64)})
    assert "mis-shaped mtp.fc.weight [128, 64] (expected [64, 128])" in refusal(folder)


@pytest.mark.parametrize("raw", [-0.033, 0.967])
def test_m01_iv_norms_are_an_offset_from_one_in_their_family_alone(folder: Path, raw: float):
    """Never guessed by value."""
    offset = float(
        json.loads((folder / "config.json").read_text())["model_type"].startswith("qwen3_5")
    )
    rewrite(
        folder,
        lambda tensors: {
            n: torch.full_like(t, raw) if n.startswith("mtp.") and "norm" in n else t
            for n, t in tensors.items()
        },
    )
    drafter = load(folder)
    norms = [
        drafter.norm,
        drafter.embedding_norm,
        drafter.hidden_norm,
        drafter.blocks[0].before_mixer,
        drafter.blocks[0].before_mlp,
    ]
    norms += [drafter.attention[0].norm] if drafter.attention[0].norm is not None else []
    assert all(
        torch.equal(norm.weight, torch.full_like(norm.weight, offset + raw)) for norm in norms
    )


@pytest.mark.parametrize("key", ["mtp_num_hidden_layers", "num_mtp_layers"])
def test_as_many_mtp_layers_as_the_config_says_are_looked_for(folder: Path, key: str):
    config = json.loads((folder / "config.json").read_text())
    config.pop("num_mtp_layers")

    def says(count: int | None) -> None:
        (folder / "config.json").write_text(json.dumps(config | {key: count}))

    says(2)
    assert "missing mtp.layers.1.input_layernorm.weight" in refusal(folder)
    says(8)
    assert "8 MTP layers, supported: 1 to 7" in refusal(folder)
    for count in (None, 0, 1):
        says(count)
        load(folder)
    rewrite(
        folder,
        lambda tensors: tensors | {"mtp.layers.1.mlp.down_proj.weight": torch.zeros(64, 128)},
    )
    assert "unknown mtp.layers.1.mlp.down_proj.weight" in refusal(folder)


def test_a_head_of_another_model_is_refused(folder: Path, tmp_path: Path):
    other = load_target(
        write_qwen3_5(tmp_path / "other", hidden_size=32), slots=1, context=64, dtype=torch.float32
    )
    with pytest.raises(ValueError, match=r"hidden size 64"):
        load_qwen_mtp(folder, other, buckets=Buckets())
