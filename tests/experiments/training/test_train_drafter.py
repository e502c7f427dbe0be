"""A drafter for a frozen target: what is trained is what runs, and a kill at any time costs nothing
but time."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from experiments import train_drafter
from experiments.assets import MODELS
from experiments.config.checks import BadInput
from experiments.training.drafters import collect, session
from experiments.training.drafters.frozen import FrozenTarget
from experiments.training.drafters.head import SidecarHead
from experiments.training.drafters.recipe import DrafterRecipe
from experiments.training.drafters.session import Session, style_of
from experiments.training.drafters.store import Store, StoredRow, Text
from experiments.training.drafters.texts import Cut, prompts, read
from experiments.training.progress import Progress
from experiments.training.trainable import TargetRows
from mtp.buckets import Buckets
from mtp.drafters import check_qwen_mtp, load_gemma_assistant, load_qwen_mtp
from mtp.engine import Engine
from mtp.execution.model import ModelExecutor
from mtp.policies import RotateGrow, StaticK
from mtp.request import Request
from mtp.targets import load_target
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.qwen.config import QwenConfig
from tests.mtp.drafters.test_qwen_mtp import Student
from tests.support.checkpoints import write_llama, write_qwen2, write_qwen3, write_qwen3_5
from tests.support.gemma_checkpoints import write_gemma3, write_gemma4

TARGET = MODELS / "tiny_qwen"
CPU, BUCKETS = torch.device("cpu"), Buckets((4, 8))
CHEAP = {
    "style": "qwen_mtp", "data": None, "texts": 16, "held_out": 6, "length": 40, "prompt": 12,
    "given": 0.5, "chat": 0.4, "slots": 4, "collect_minutes": None, "minutes": 1, "steps": 4,
    "batch": 4, "depth": 3, "rate": 2e-3, "decay": 0.1, "draft_vocab": 700,
    "clusters": 8, "top_clusters": 2, "save_s": 0, "save_every": 2, "seed": 0, "threads": 1,
}  # fmt: skip


class Killed(Exception):
    pass


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Some of the pinned code, as a plain file."""
    from experiments.training.corpus import documents

    file = tmp_path_factory.mktemp("data") / "code.txt"
    file.write_text("\n".join(one.text for one in documents("code", 150_000)), encoding="utf-8")
    return [str(file)]


def made(out: Path, data: list[str], **changes: object) -> Session:
    return Session(
        DrafterRecipe.of(CHEAP | {"data": data} | changes), TARGET, "auto", out, Console(quiet=True)
    )


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory, data):
    out = tmp_path_factory.mktemp("sidecar") / "out"
    made(out, data).run()
    return out


def killing(monkeypatch, owner, name, at):
    """The at-th call of it does not return."""
    real, calls = getattr(owner, name), []

    def counted(self, *arguments, **options):
        calls.append(None)
        if len(calls) == at:
            raise Killed
        return real(self, *arguments, **options)

    monkeypatch.setattr(owner, name, counted)


@pytest.mark.slow
def test_killed_while_fitting_the_same_command_ends_with_the_same_weights(
    sidecar, data, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    shutil.copytree(sidecar / "texts", out / "texts")
    for owner, name, at in ((Progress, "show", 3), (session, "stats", 1)):
        with monkeypatch.context() as context:
            killing(context, owner, name, at)
            with pytest.raises(Killed):
                made(out, data).run()
    made(out, data).run()
    whole, resumed = (load_file(folder / "model.safetensors") for folder in (sidecar, out))
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert not (out / "checkpoint.pt").exists()
    with pytest.raises(BadInput, match="holds a drafter"):
        made(out, data)


@pytest.mark.slow
def test_killed_while_collecting_only_what_is_missing_is_collected(
    sidecar, data, tmp_path, monkeypatch
):
    monkeypatch.setattr(collect, "SAVE_S", 0.0)
    texts = read(data)
    with monkeypatch.context() as context:
        killing(context, Store, "append", 3)
        with pytest.raises(Killed):
            made(tmp_path, data)._collected(texts)
    before = len(json.loads((tmp_path / "texts" / "rows.json").read_text())["rows"])
    store = made(tmp_path, data)._collected(texts)
    assert 0 < before < len(store.rows)
    assert sorted(row.number for row in store.rows) == list(range(CHEAP["texts"]))
    about = json.loads((sidecar / "texts" / "rows.json").read_text())["about"]
    whole = Store(sidecar / "texts", about, rows=CHEAP["texts"], length=40, hidden=256)
    for held_out in (True, False):  # the same prompts, whatever was killed
        same, other = (one.tokens[one.chosen(held_out=held_out)][:, :12] for one in (whole, store))
        assert torch.equal(same, other)


def test_the_sidecar_runs_with_its_target_and_changes_no_token(sidecar):
    check_qwen_mtp(sidecar, Checkpoint(TARGET))
    target = load_target(TARGET, slots=2, context=64)
    texts = {}
    for name, policy in (("plain", StaticK(0)), ("speculative", RotateGrow())):
        drafter = load_qwen_mtp(sidecar, target, buckets=BUCKETS)
        executor = ModelExecutor(
            target,
            drafter,
            slots=2,
            largest_group=4,
            depth=policy.depth,
            buckets=BUCKETS,
            device=CPU,
        )
        engine = Engine(executor, slots=2, policy=policy)
        for i in range(3):
            engine.submit(Request(str(i), (40 + i, 50, 60, 70), 16, ignore_stop=True))
        texts[name] = {one.id: one.tokens for one in engine.run()}
    assert texts["plain"] == texts["speculative"]
    assert len(drafter.head) == 700
    assert sorted(file.name for file in (sidecar / "heads").iterdir()) == [
        "000002.safetensors",
        "000004.safetensors",
    ]
    load_qwen_mtp(sidecar, target, buckets=BUCKETS, weights="heads/000002.safetensors")
    stats = json.loads((sidecar / "figures.json").read_text())
    assert len(stats["code"]["own"]) == len(stats["code"]["teacher_forced"]) == 3


@pytest.mark.parametrize(
    ("write", "full_heads"),
    [
        (write_gemma3, (2, 16)),
        (write_gemma4, (2, 32)),
        (partial(write_gemma4, attention_k_eq_v=True, num_global_key_value_heads=1), (1, 32)),
    ],
    ids=["gemma3", "gemma4", "gemma4_full_heads"],
)
def test_an_assistant_is_trained_for_a_frozen_gemma_and_runs_with_it(
    write, full_heads, data, tmp_path
):
    folder = write(tmp_path / "target", vocab_size=2048)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TARGET / file, folder)
    changes = {
        "style": "assistant",
        "draft_vocab": None,
        "steps": 3,
        "texts": 10,
        "held_out": 4,
        "save_every": None,
    }
    recipe = DrafterRecipe.of(CHEAP | {"data": data} | changes)
    out = tmp_path / "out"
    Session(recipe, folder, "fp32", out, Console(quiet=True)).run()
    store = Store(
        out / "texts",
        json.loads((out / "texts" / "rows.json").read_text())["about"],
        rows=10,
        length=40,
        hidden=64,
        kv={"sliding_attention": (2, 16), "full_attention": full_heads},
    )
    target = load_target(folder, slots=2, context=64, dtype="fp32")
    target.prefill(1, store.tokens[0], 0)
    for kind, both in store.kv.items():
        for stored, cache in zip(both[0], target.kv(kind), strict=True):
            torch.testing.assert_close(stored.float(), cache[1, :, :39], rtol=0.02, atol=0.02)
    drafter = load_gemma_assistant(out, target, buckets=BUCKETS)
    texts = {}
    for name, one, policy in (("plain", None, StaticK(0)), ("speculative", drafter, RotateGrow())):
        executor = ModelExecutor(
            target, one, slots=2, largest_group=4, depth=policy.depth, buckets=BUCKETS, device=CPU
        )
        engine = Engine(executor, slots=2, policy=policy)
        engine.submit(Request("a", (40, 50, 60), 16, ignore_stop=True))
        texts[name] = engine.run()[0].tokens
    assert texts["plain"] == texts["speculative"]


@pytest.mark.parametrize(
    ("style", "changes", "named"),
    [
        (
            "assistant",
            {"draft_vocab": None},
            "style is assistant, but the target's model_type is 'qwen3_5_text'",
        ),
        ("qwen_mtp", {}, "style is qwen_mtp, but the target's model_type is 'gemma4_text'"),
        ("assistant", {"draft_vocab": 7}, "expected null"),
        (
            "assistant",
            {"draft_vocab": None, "clusters": 7},
            "clusters is 7, expected 0 or a divisor",
        ),
    ],
)
def test_a_style_that_does_not_fit_the_target_is_refused(style, changes, named, tmp_path):
    folder = TARGET
    if "qwen3_5" not in named:
        folder = write_gemma4(tmp_path / "target")
    recipe = DrafterRecipe.of(CHEAP | {"style": style} | changes)
    with pytest.raises(BadInput, match=named):
        style_of(Checkpoint(folder), recipe)


@pytest.mark.parametrize(
    "write",
    [write_llama, write_qwen2, write_qwen3, write_qwen3_5],
    ids=["llama", "qwen2", "qwen3", "qwen3_5"],
)
def test_the_head_that_is_trained_drafts_what_the_head_that_runs_drafts(write, tmp_path):
    folder = write(tmp_path / "target")
    config = QwenConfig.read(Checkpoint(folder).config)
    text = torch.randint(0, 290, (60,), generator=torch.Generator().manual_seed(1))
    student = Student(folder, {0: text})
    student.begin(0, 30)
    drafted = student.draft({0: 1}, {0: 1}, 3)
    head = SidecarHead(config, 60)
    stored = load_file(folder / "model.safetensors")
    head.load_state_dict(
        {
            name.removeprefix("mtp."): tensor.float()
            for name, tensor in stored.items()
            if name.startswith("mtp.")
        }
    )
    student.target.clear(0)
    _, hidden = student.target.prefill(0, text[:50].int(), 0)
    frozen = FrozenTarget(student.target, None)
    with torch.no_grad():
        steps = head.chain(frozen, text[None, :50], TargetRows(hidden[None], {}), 3, own=True)
    assert [int(step.picks[0, 30]) for step in steps] == drafted.tokens[0].tolist()
    chances = [float(step.logits[0, 30].softmax(-1).max()) for step in steps]
    torch.testing.assert_close(torch.tensor(chances), drafted.confidence[0], rtol=1e-3, atol=1e-5)


def test_collected_rows_are_the_targets_own(sidecar):
    about = json.loads((sidecar / "texts" / "rows.json").read_text())["about"]
    store = Store(sidecar / "texts", about, rows=CHEAP["texts"], length=40, hidden=256)
    target = load_target(TARGET, slots=1, context=64)
    own = given = 0
    for number in range(CHEAP["texts"]):
        row, ids = store.rows[number], store.tokens[number]
        target.clear(0)
        _, hidden = target.prefill(0, ids, 0)
        torch.testing.assert_close(
            store.hidden[number].float(), hidden[:39].float(), rtol=0.1, atol=0.15
        )
        picks = (hidden.float() @ target.head.weight.float().T).argmax(-1)[row.begin - 1 : 39]
        same = (picks == ids[row.begin : 40]).float().mean() if row.begin < 40 else torch.ones(())
        assert same > 0.8  # stop ids are banned, and a row alone is summed in another order
        own, given = own + (row.begin < 40), given + (row.begin == 40)
    assert own
    assert given


def test_a_store_counts_what_is_whole_and_refuses_another_collection(tmp_path):
    store = Store(tmp_path, {"a": 1}, rows=4, length=3, hidden=2)
    texts = [Text(torch.arange(3) + begin, torch.ones(2, 2), {}) for begin in (0, 3)]
    store.append([StoredRow(7, "code", True, 3), StoredRow(1, "prose", False, 2)], texts)
    store.tokens[2] = 9  # written, but never counted
    again = Store(tmp_path, {"a": 1}, rows=4, length=3, hidden=2)
    assert [row.number for row in again.rows] == [7, 1]
    assert again.tokens[:2].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert again.chosen(held_out=True).tolist() == [0]
    assert again.chosen(held_out=False, own=True).tolist() == [1]
    with pytest.raises(ValueError, match="other settings"):
        Store(tmp_path, {"a": 2}, rows=4, length=3, hidden=2)


def test_prompts_are_the_same_again_and_held_out_text_is_never_trained_on(data):
    from tokenizers import Tokenizer

    tokenizer, texts = Tokenizer.from_file(str(TARGET / "tokenizer.json")), read(data)
    cut = Cut(length=24, prompt=8, given=0.5, chat=1.0, seed=0)
    drawn = {}
    for held_out in (True, False):
        one, two = (
            prompts(texts, tokenizer, lambda text: f"<{text}>", cut, held_out=held_out)
            for _ in range(2)
        )
        drawn[held_out] = [next(one) for _ in range(12)]
        assert drawn[held_out] == [next(two) for _ in range(12)]
        found = "".join(text.text for text in texts["code"] if text.held_out is held_out)
        assert all(
            tokenizer.decode(list(prompt.ids)) in found
            for prompt in drawn[held_out]
            if prompt.given
        )
    assert {prompt.given for prompt in drawn[False]} == {True, False}
    assert all(
        tokenizer.decode(list(prompt.ids)).startswith("<")
        for prompt in drawn[False]
        if not prompt.given
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["target=tiny_qwen", "batch=0"], "batch is 0"),
        (
            ["target=tiny_qwen", "style=other"],
            "style is 'other', expected one of qwen_mtp, assistant",
        ),
        (
            ["target=tiny_qwen", "data=[nowhere.txt]"],
            "data names nowhere.txt, expected an existing file",
        ),
        (["target=tiny_qwen", "given=1.5"], "given is 1.5, expected a share"),
        (["target=tiny_qwen", "held_out=5000"], "held_out is 5000, expected less than texts"),
        (["target=tiny_qwen", "nonsense=1"], "nonsense"),
        (["target.path=nowhere"], "target.path is nowhere, expected an existing checkpoint folder"),
        ([], "target.path is not given"),
    ],
)
def test_input_that_cannot_be_used_is_one_line_and_2(arguments, named, capsys):
    assert train_drafter.run(arguments) == 2
    printed = capsys.readouterr().err
    assert named in printed
    assert len(printed.splitlines()) == 1
