"""The trainer: same arithmetic as transformers, resumable, refuses bad settings."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from rich.console import Console
from safetensors.torch import load_file
from transformers import Qwen3_5ForCausalLM
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from experiments.config.checks import BadInput
from experiments.train import CONFIGS, run, settings, train
from experiments.training.corpus import Windows
from experiments.training.delta import CHUNK, gated_delta, inverse_unit_lower, unit
from experiments.training.generate import continue_greedy
from experiments.training.losses import repeats
from experiments.training.model import QwenModel, QwenShape
from experiments.training.mtp_head import MtpHead
from experiments.training.qwen_folder import read_folder, write_folder
from experiments.training.tokenizer import train_tokenizer
from experiments.training.trainable import TargetRows

MICRO = QwenShape(
    vocab=320,
    hidden=48,
    layers=4,
    intermediate=64,
    heads=4,
    kv_heads=2,
    head_size=16,
    linear_heads=3,
    linear_key=8,
    linear_value=16,
)
SETTINGS = [
    "steps=16",
    "workers=1",
    "characters=60000",
    "save_s=0",
    "batch=2",
    "length=64",
    "head_batch=2",
    "head_length=48",
    "own_texts=2",
    "share_loops=0.25",
    "shape.vocab=320",
    "shape.hidden=32",
    "shape.layers=4",
    "shape.intermediate=48",
    "shape.heads=2",
    "shape.kv_heads=1",
    "shape.head_size=16",
    "shape.linear_heads=2",
    "shape.linear_key=8",
    "shape.linear_value=8",
]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """What a training sets, put back after it."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, QwenModel, MtpHead]:
    """An fp32 folder with random weights, norms and gates included, and what it was written
    from."""
    torch.manual_seed(0)
    model = QwenModel(MICRO)
    head = MtpHead(model)
    for parameter in (*model.parameters(), *head.parameters()):
        parameter.data += torch.randn_like(parameter) * 0.1
    folder = tmp_path_factory.mktemp("written")
    write_folder(
        model,
        head,
        train_tokenizer(["def f(x):\n    return x\n"] * 9, MICRO.vocab),
        folder,
        torch.float32,
    )
    return folder, model.eval(), head.eval()


@pytest.mark.parametrize("tokens", [1, CHUNK - 1, CHUNK, 3 * CHUNK + 5])
def test_gated_delta_is_its_recurrence(tokens: int) -> None:
    torch.manual_seed(tokens)
    q, k, v = (torch.randn(2, 3, tokens, size) for size in (8, 8, 5))
    decay, beta, state = (
        -torch.rand(2, 3, tokens),
        torch.rand(2, 3, tokens),
        torch.randn(2, 3, 8, 5),
    )
    out, last = gated_delta(q, k, v, decay, beta, state)
    want = []
    for t in range(tokens):
        query, key = unit(q[:, :, t]) * 8**-0.5, unit(k[:, :, t])
        state = state * decay[:, :, t, None, None].exp()
        error = beta[:, :, t, None] * (v[:, :, t] - torch.einsum("bhk,bhkv->bhv", key, state))
        state = state + key[..., :, None] * error[..., None, :]
        want.append(torch.einsum("bhk,bhkv->bhv", query, state))
    torch.testing.assert_close(out, torch.stack(want, 2), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(last, state, rtol=1e-4, atol=1e-5)


def test_inverse_of_a_unit_lower_triangle() -> None:
    below = torch.randn(4, 32, 32, dtype=torch.float64).tril(-1) * 0.3
    whole = torch.eye(32, dtype=torch.float64) + below
    torch.testing.assert_close(
        inverse_unit_lower(below) @ whole, torch.eye(32, dtype=torch.float64).expand(4, -1, -1)
    )


def test_folder_loads_in_transformers_with_equal_logits(
    written: tuple[Path, QwenModel, MtpHead],
) -> None:
    folder, model, _ = written
    reference = Qwen3_5ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.randint(MICRO.vocab, (2, 77))
    with torch.no_grad():
        torch.testing.assert_close(
            model.logits(model(ids)), reference(ids).logits, rtol=1e-4, atol=1e-4
        )


def test_head_loads_in_transformers_with_an_equal_first_draft(
    written: tuple[Path, QwenModel, MtpHead],
) -> None:
    folder, model, head = written
    reference = Qwen3_5ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    drafter = MtpModel.from_pretrained(reference).eval()
    full = torch.randint(MICRO.vocab, (1, 24))
    with torch.no_grad():
        hidden = model(full)
        mine = model.logits(head.chain(model, full, TargetRows(hidden, {}), 1)[0].hidden)[:, -1]
        cache = MtpCache(config=reference.config.get_mtp_config())
        cache.activate_past_recording()
        positions = torch.arange(1, 24)[None]
        _, logits, _ = drafter(
            full[:, 1:], hidden[:, :-1], None, positions, cache, full_input_ids=full
        )
    torch.testing.assert_close(mine, logits[:, 0], rtol=1e-4, atol=1e-4)


def test_folder_reads_back_as_written(written: tuple[Path, QwenModel, MtpHead]) -> None:
    folder, model, head = written
    again, head_again, _ = read_folder(folder)
    assert again.shape == model.shape
    for one, other in ((model, again), (head, head_again)):
        assert all(
            torch.equal(tensor, other.state_dict()[name])
            for name, tensor in one.state_dict().items()
        )


def test_greedy_text_by_steps_is_greedy_text_at_once(
    written: tuple[Path, QwenModel, MtpHead],
) -> None:
    _, model, _ = written
    made = continue_greedy(model, torch.randint(MICRO.vocab, (3, 37)), 40)
    with torch.no_grad():
        assert torch.equal(model.logits(model(made[:, :-1]))[:, 36:].argmax(-1), made[:, 37:])


def test_chain_of_own_picks_is_a_chain_on_the_text_they_spell(
    written: tuple[Path, QwenModel, MtpHead],
) -> None:
    """One anchor at the end of a text; its provisional entries come after all committed ones."""
    _, model, head = written
    ids = torch.randint(MICRO.vocab, (1, 20))
    with torch.no_grad():
        read = model.read(ids)
        own = head.chain(model, ids, read, 3, own=True)
        anchor = own[0].hidden.shape[1] - 1
        picks = [int(step.picks[0, anchor]) for step in own]
        spelled = ids.clone()
        spelled[0, anchor + 2 : anchor + 4] = torch.tensor(picks[:2])
        taught = head.chain(model, spelled, read, 3)
    for one, other in zip(own, taught, strict=True):
        torch.testing.assert_close(one.hidden[:, anchor], other.hidden[:, anchor])


def test_repeats_marks_grams_seen_before() -> None:
    assert repeats(torch.tensor([[1, 2, 3, 4, 1, 2, 3, 4, 1]])).tolist() == [
        [False] * 7 + [True, True]
    ]


def test_windows_come_once_an_epoch() -> None:
    windows = Windows(
        {"a": torch.arange(100), "b": torch.arange(40).view(8, 5)}, {"a": 0.5, "b": 0.5}, 5, seed=3
    )
    rows = torch.cat([windows.take(4) for _ in range(4)])
    texts = [
        row
        for row in rows.tolist()
        if row[0] % 5 == 0 and row in torch.arange(40).view(8, 5).tolist()
    ]
    assert len({tuple(row) for row in texts}) == 8
    assert windows.seen == {"a": 8, "b": 8}


@pytest.mark.slow
def test_killed_training_goes_on_to_the_same_weights(tmp_path: Path, one_thread: None) -> None:
    """Killed without warning after its first checkpoint; deterministic because it counts steps, not
    minutes."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.train", *SETTINGS, f"out={killed}"],
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not (killed / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert (killed / "checkpoint.pt").exists()
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        recipe, _ = settings(compose("train", overrides=SETTINGS))
    shown = io.StringIO()
    for folder in (killed, whole):
        train(recipe, folder, Console(file=shown))
    assert shown.getvalue().count("goes on in phase") == 1
    assert not (killed / "checkpoint.pt").exists()
    for name in ("model.safetensors", "heads/low.safetensors", "heads/mid.safetensors"):
        mine, reference = load_file(killed / name), load_file(whole / name)
        assert all(torch.equal(tensor, reference[key]) for key, tensor in mine.items()), name
    histories = [
        json.loads((folder / "training.json").read_text())["history"] for folder in (killed, whole)
    ]
    assert [(entry[:2], entry[3]) for entry in histories[0]] == [
        (entry[:2], entry[3]) for entry in histories[1]
    ]
    with pytest.raises(BadInput, match="holds a model"):
        train(recipe, whole, Console(file=shown))


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("minutes=0", "minutes"),
        ("minutes=abc", "minutes"),
        ("seed=-1", "seed"),
        ("batch=1.5", "batch"),
        ("share_head=1", "share_head"),
        ("shape.layers=5", "shape.layers"),
        ("nonsense=1", "nonsense"),
    ],
)
def test_bad_settings_are_one_line(
    override: str, named: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([override, f"out={tmp_path}/x"]) == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert named in lines[0]
    assert not (tmp_path / "x").exists()
