"""Loading takes the memory of the weights and little more, and says how it gets on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from einops import rearrange
from safetensors.torch import load_file, save_file

from experiments.runs import loading
from mtp.targets import load_target
from mtp.targets.loading.weights import Stored, stored_in
from mtp.targets.qwen.config import QwenConfig
from mtp.targets.qwen.family import model_shapes
from tests.support.checkpoints import write_qwen3_5
from triton_kernels.product import form_of

CONFIG = {
    "model_type": "qwen3_5_text",  # with gated queries, whose halves are taken apart
    "vocab_size": 48_000,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 3,
    "full_attention_interval": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": True,
}
GROWTH = """
import sys, torch
from mtp.targets import load_target
torch.set_num_threads(1)
from triton_kernels.product import Matrix
for dtype in (torch.float32, torch.bfloat16):  # compilers are no weights
    Matrix(torch.ones(8, 8, dtype=dtype))(torch.ones(2, 8, dtype=dtype))
def memory(name):
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(name))) * 1024
before = memory("VmRSS")
seen = []
target = load_target(
    sys.argv[1], slots=1, context=64, dtype=sys.argv[2], progress=lambda *bytes: seen.append(bytes)
)
assert seen == sorted(seen) and seen[-1] == (seen[0][1],) * 2, seen[-1]
# of this process alone, unlike ru_maxrss, which begins with its parent's
print(memory("VmHWM") - before)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A checkpoint of 200 MB in bf16, in two files; how many numbers it holds."""
    folder = tmp_path_factory.mktemp("large")
    shapes = {
        name: shape
        for name, shape in model_shapes(QwenConfig.read(CONFIG)).items()
        if name != "lm_head.weight"
    }
    tensors = {
        name: torch.full(shape, 0.01, dtype=torch.bfloat16) for name, shape in shapes.items()
    }
    names = list(tensors)
    for part in (0, 1):
        save_file({name: tensors[name] for name in names[part::2]}, folder / f"{part}.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder, sum(tensor.numel() for tensor in tensors.values())


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads a process's peak where Linux keeps it"
)
@pytest.mark.parametrize("dtype", ["bf16", pytest.param("fp32", marks=pytest.mark.slow)])
def test_peak_memory_is_that_of_the_weights(large: tuple[Path, int], dtype: str):
    folder, numbers = large
    out = subprocess.run(
        [sys.executable, "-c", GROWTH, str(folder), dtype],
        capture_output=True,
        text=True,
        check=False,
    )
    assert out.returncode == 0, out.stderr
    kind = {"bf16": torch.bfloat16, "fp32": torch.float32}[dtype]
    share = int(out.stdout) / (numbers * kind.itemsize)
    limit = 1.15
    if form_of(torch.zeros(1, 1, dtype=kind)):
        # the embedding is also the head, which is laid out for products; so is every other matrix,
        # one at a time, and its plain form is freed
        head, largest = CONFIG["vocab_size"], 2 * CONFIG["intermediate_size"]
        limit += 1.1 * (head + largest) * CONFIG["hidden_size"] / numbers
    assert 0.95 < share <= limit


@pytest.mark.parametrize("stored", [torch.float16, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("wanted", [torch.float32, torch.bfloat16], ids=str)
def test_every_dtype_is_converted_as_torch_does(
    tmp_path: Path, stored: torch.dtype, wanted: torch.dtype
):
    folder = write_qwen3_5(tmp_path)
    tensors = {
        name: tensor.to(stored) for name, tensor in load_file(folder / "model.safetensors").items()
    }
    save_file(tensors, folder / "model.safetensors")
    target = load_target(folder, slots=1, context=32, dtype=wanted)
    here = {
        name.removeprefix("model.layers.3."): t.to(wanted)
        for name, t in tensors.items()
        if name.startswith("model.layers.3.")
    }
    assert torch.equal(target.embedding, tensors["model.embed_tokens.weight"].to(wanted))
    queries, gates = rearrange(  # stored per head: its query, then its gate
        here["self_attn.q_proj.weight"],
        "(head two size) hidden -> two (head size) hidden",
        head=4,
        two=2,
    )
    k, v = here["self_attn.k_proj.weight"], here["self_attn.v_proj.weight"]
    assert torch.equal(target.blocks[3].mixer.project.weight, torch.cat([queries, k, v, gates]))
    assert torch.equal(
        target.blocks[3].mlp.gate_up.weight,
        torch.cat([here["mlp.gate_proj.weight"], here["mlp.up_proj.weight"]]),
    )
    assert all(matrix.weight.data_ptr() % 64 == 0 for matrix in target.linear_weights())


def test_numbers_of_another_kind_are_refused(tmp_path: Path):
    folder = write_qwen3_5(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    save_file(
        tensors | {"model.norm.weight": torch.zeros(64, dtype=torch.int8)},
        folder / "model.safetensors",
    )
    with pytest.raises(
        ValueError, match=r"of another dtype model\.norm\.weight I8 \(expected F32, BF16, F16"
    ):
        load_target(folder, slots=1, context=32)


def header(tmp_path: Path, **entry: object) -> dict[str, Stored]:
    text = json.dumps(
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | entry}
    ).encode()
    (tmp_path / "one.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    return stored_in(tmp_path / "one.safetensors")


def test_a_header_that_points_past_its_file_is_refused(tmp_path: Path):
    assert header(tmp_path)["a"].size == 8
    for offsets, shape in (([0, 16], [4]), ([-4, 4], [2]), ([0, 8], [3])):
        with pytest.raises(ValueError, match=r"a F32\[\d\] lies at"):
            header(tmp_path, data_offsets=offsets, shape=shape)


def test_progress_is_said_only_where_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    clock = iter([0.0, 1.0, 2.5, 3.0, 5.0])
    monkeypatch.setattr(loading, "perf_counter", lambda: next(clock))
    line = loading.Loading()
    for done in (1, 2, 3, 4):
        line(done * 10**9, 4 * 10**9)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "loading weights: 2.00 of 4.00 GB, 2 s",
        "loading weights: 4.00 of 4.00 GB, 5 s",
    ]


def test_data_at_an_odd_offset_is_read(tmp_path: Path):
    """Headers are padded by those who write them, if they like."""
    folder = write_qwen3_5(tmp_path)
    whole = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(whole[:8], "little")
    aligned = load_target(folder, slots=1, context=32).blocks[3].mixer.project.weight
    (folder / "model.safetensors").write_bytes(
        (length + 1).to_bytes(8, "little") + whole[8 : 8 + length] + b" " + whole[8 + length :]
    )
    assert torch.equal(
        load_target(folder, slots=1, context=32).blocks[3].mixer.project.weight, aligned
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_slots_memory_is_what_the_page_on_models_says(tmp_path: Path, dtype: torch.dtype):
    slots, context = 3, 100
    target = load_target(write_qwen3_5(tmp_path), slots=slots, context=context, dtype=dtype)
    held = sum(tensor.nbytes for cache in target.caches for tensor in (cache.keys, cache.values))
    assert held == slots * 128 * (1 * 2 * 2 * 16 * dtype.itemsize)
    (state,) = target.states
    assert state.recurrent.nbytes + state.past_inputs.nbytes == slots * 3 * 4 * (
        4 * 16 * 16 + 3 * (2 * 2 * 16 + 4 * 16)
    )
