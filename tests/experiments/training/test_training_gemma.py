"""The trainer's Gemma: what it writes is what transformers reads, its chain is transformers'
assistant at every anchor at once."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from rich.console import Console
from safetensors.torch import load_file
from torch import Tensor
from transformers import Gemma4AssistantForCausalLM, Gemma4ForCausalLM

from experiments.train import CONFIGS, run, settings, train
from experiments.training.assistant import Assistant, balanced_clusters
from experiments.training.gemma import GemmaModel, GemmaShape
from experiments.training.gemma_folder import read_folder, start_assistant, write_folder
from experiments.training.losses import distance
from experiments.training.optimizer import Optimizer
from experiments.training.progress import Progress
from experiments.training.tokenizer import train_tokenizer

SIZES = {
    "vocab": 320,
    "hidden": 40,
    "layers": 6,
    "intermediate": 48,
    "heads": 4,
    "kv_heads": 2,
    "head_size": 8,
    "full_head_size": 16,
    "window": 6,
    "per_layer": 4,
    "assistant_hidden": 32,
    "assistant_intermediate": 48,
    "clusters": 16,
    "top_clusters": 3,
}
MICRO = GemmaShape(**SIZES)
SETTINGS = [
    "model=tiny_gemma",
    "steps=12",
    "characters=60000",
    "save_s=0",
    "batch=2",
    "length=48",
    "head_batch=2",
    "head_length=48",
    "own_texts=2",
    "share_loops=0.25",
    *(f"shape.{key}={value}" for key, value in SIZES.items()),
]

Written = tuple[Path, GemmaModel, Assistant]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """An fp32 folder with random weights and what it was written from."""
    torch.manual_seed(0)
    target = GemmaModel(MICRO)
    assistant = start_assistant(target)
    for parameter in (*target.parameters(), *assistant.parameters()):
        parameter.data += torch.randn_like(parameter) * 0.1
    folder = tmp_path_factory.mktemp("written")
    write_folder(
        target,
        assistant,
        train_tokenizer(["def f(x):\n    return x\n"] * 9, MICRO.vocab),
        folder,
        torch.float32,
    )
    return folder, target.eval(), assistant.eval()


def ids_of(rows: int, tokens: int) -> Tensor:
    return torch.randint(
        MICRO.vocab, (rows, tokens), generator=torch.Generator().manual_seed(tokens)
    )


def test_folder_loads_in_transformers_with_equal_logits(written: Written) -> None:
    folder, target, _ = written
    reference = Gemma4ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = ids_of(2, 50)
    with torch.no_grad():
        torch.testing.assert_close(
            target.logits(target(ids)), reference(ids).logits, rtol=1e-4, atol=1e-4
        )


def test_greedy_text_of_the_pair_in_transformers_is_the_targets_own(written: Written) -> None:
    folder, target, _ = written
    reference = Gemma4ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assistant = Gemma4AssistantForCausalLM.from_pretrained(
        folder / "assistant", dtype=torch.float32
    ).eval()
    assistant.generation_config.num_assistant_tokens = 3
    made = reference.generate(
        ids_of(1, 9), max_new_tokens=20, assistant_model=assistant, eos_token_id=None
    )
    with torch.no_grad():
        assert torch.equal(target.logits(target(made[:, :-1]))[:, 8:].argmax(-1), made[:, 9:])


def test_chain_is_transformers_assistant_at_each_anchor(written: Written) -> None:
    """Given the target's committed keys alone, before and after the window has filled."""
    folder, target, assistant = written
    reference = Gemma4AssistantForCausalLM.from_pretrained(
        folder / "assistant", dtype=torch.float32
    ).eval()
    ids = ids_of(2, 30)
    with torch.no_grad():
        read = target.read(ids)
        steps = assistant.chain(target, ids, read, 3, own=True)
        for anchor in (0, MICRO.window - 1, MICRO.window, MICRO.window + 1, 26):
            kv = {
                kind: (keys[:, :, : anchor + 1], values[:, :, : anchor + 1])
                for kind, (keys, values) in read.kv.items()
            }
            row, token = read.hidden[:, anchor, None], ids[:, anchor + 1, None]
            for step in steps:
                pair = torch.cat([target.embed(token), row], -1)
                out = reference(
                    inputs_embeds=pair,
                    position_ids=torch.tensor([[anchor + 1]]),
                    shared_kv_states=kv,
                )
                row, token = out.last_hidden_state, out.logits.argmax(-1)
                torch.testing.assert_close(step.hidden[:, anchor], row[:, 0], rtol=1e-4, atol=1e-4)
                assert torch.equal(step.picks[:, anchor], token[:, 0])


def test_folder_reads_back_as_written(written: Written, tmp_path: Path) -> None:
    folder, target, assistant = written
    again, assistant_again, _ = read_folder(folder)
    assert again.shape == target.shape
    for one, other in ((target, again), (assistant, assistant_again)):
        assert all(
            torch.equal(tensor, other.state_dict()[name])
            for name, tensor in one.state_dict().items()
        )


def test_assistant_starts_from_the_targets_last_layers() -> None:
    """Whose widths it shares here, so at first its whole head is the target's."""
    torch.manual_seed(1)
    target = GemmaModel(GemmaShape(**SIZES | {"assistant_hidden": SIZES["hidden"]}))
    assistant = start_assistant(target)
    mine, reference = assistant.net.state_dict(), target.net.state_dict()
    for name in ("self_attn.q_proj.weight", "mlp.down_proj.weight"):
        # sliding
        assert torch.equal(mine[f"model.layers.0.{name}"], reference[f"model.layers.4.{name}"])
        # full
        assert torch.equal(mine[f"model.layers.1.{name}"], reference[f"model.layers.5.{name}"])
    assert torch.equal(mine["lm_head.weight"], reference["lm_head.weight"])


def test_assistant_learns_text_and_clusters(written: Written) -> None:
    """What the ordered head finds, so its centroids must have learnt too."""
    _, target, _ = written
    torch.manual_seed(2)
    assistant, ids = start_assistant(target), ids_of(4, 24)
    with torch.no_grad():
        read = target.read(ids)
        labels = target.logits(read.hidden).argmax(-1)[:, 1:22]

    def found() -> float:
        assistant.eval()
        with torch.no_grad():
            return float((assistant.chain(target, ids, read, 3)[0].picks == labels).float().mean())

    assert found() < 0.15
    assistant.train()
    optimizer = Optimizer(assistant, 1e-2, 0.0)
    for step in range(40):
        distance(target, assistant, ids).backward()
        optimizer.step(0.1 + step / 80)
    assert found() > 0.3


def test_clusters_are_of_one_size_and_of_a_kind() -> None:
    torch.manual_seed(3)
    centres = torch.randn(5, 16) * 4
    kinds = torch.arange(40) % 5
    places = balanced_clusters(centres[kinds] + torch.randn(40, 16) * 0.1, 5)
    assert torch.bincount(places, minlength=5).tolist() == [8] * 5
    assert all(len(kinds[places == cluster].unique()) == 1 for cluster in range(5))
    odd = balanced_clusters(torch.ones(12, 4), 3)
    assert torch.bincount(odd, minlength=3).tolist() == [4] * 3


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_interrupted_training_goes_on_to_the_same_weights(
    tmp_path: Path, one_thread: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once in each phase."""
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        recipe, _ = settings(compose("train", overrides=SETTINGS))
    show = Progress.show

    def train_until(folder: Path, phase: str, step: int) -> None:
        def interrupted(self: Progress, at: str, count: int, *others: float) -> None:
            show(self, at, count, *others)
            if (at, count) == (phase, step):
                raise KeyboardInterrupt

        monkeypatch.setattr(Progress, "show", interrupted)
        train(recipe, folder, Console(file=io.StringIO()))

    for phase, step in (("target", 3), ("loops", 2), ("head", 2)):
        with pytest.raises(KeyboardInterrupt):
            train_until(tmp_path / "cut", phase, step)
    train_until(tmp_path / "cut", "", 0)
    train_until(tmp_path / "whole", "", 0)
    for name in ("model.safetensors", "assistant/model.safetensors"):
        mine, reference = load_file(tmp_path / "cut" / name), load_file(tmp_path / "whole" / name)
        assert all(torch.equal(tensor, reference[key]) for key, tensor in mine.items()), name


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("model=nobody", "model"),
        ("shape.shared=4", "shape.shared"),
        ("shape.clusters=60", "shape.clusters"),
        ("shape.top_clusters=65", "shape.top_clusters"),
        ("shape.vocab=big", "shape.vocab"),
        ("+shape.rotary=0.5", "shape.rotary"),
        ("bf16=2", "bf16"),
    ],
)
def test_bad_settings_are_one_line(
    override: str, named: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["model=tiny_gemma", override, f"out={tmp_path}/x"]) == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert named in lines[0]
