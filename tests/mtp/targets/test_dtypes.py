"""The dtype of a run: requested, stored, or measured once per machine and model."""

from __future__ import annotations

import json
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mtp.targets import load_target
from mtp.targets.loading import dtypes
from mtp.targets.loading.checkpoint import Checkpoint
from mtp.targets.loading.dtypes import Timed, choose_dtype, faster, time_products
from tests.support.checkpoints import write_llama, write_qwen3_5
from tests.support.gemma_checkpoints import PER_LAYER, write_gemma4
from triton_kernels.product import Matrix

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_qwen3_5(tmp_path_factory.mktemp("original"))


def stored(folder: Path, dtype: torch.dtype, named: str | None) -> Checkpoint:
    tensors = {
        name: tensor.to(dtype) for name, tensor in load_file(folder / "model.safetensors").items()
    }
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config.pop("dtype", None)
    (folder / "config.json").write_text(
        json.dumps(config | ({"torch_dtype": named} if named else {}))
    )
    return Checkpoint(folder)


@pytest.mark.parametrize(
    ("dtype", "named", "runs"),
    [
        (torch.float32, None, torch.float32),
        (torch.bfloat16, None, torch.bfloat16),
        (torch.float16, "float16", torch.bfloat16),
        (torch.float32, "torch.bfloat16", torch.bfloat16),
    ],
)
def test_as_stored_which_never_is_fp16(
    tmp_path: Path, dtype: torch.dtype, named: str | None, runs: torch.dtype
):
    checkpoint = stored(write_qwen3_5(tmp_path), dtype, named)
    assert choose_dtype(checkpoint, "stored", device=CPU, rows=8) == (runs, "")
    assert choose_dtype(checkpoint, "auto", device=GPU, rows=8) == (runs, "")
    assert load_target(tmp_path, slots=1, context=32).dtype == runs


def test_fp32_only_where_it_is_a_tenth_faster():
    assert faster(Timed(bf16=11.0, fp32=10.0)) == torch.float32
    assert faster(Timed(bf16=10.9, fp32=10.0)) == torch.bfloat16
    assert faster(Timed(bf16=10.0, fp32=10.0)) == torch.bfloat16


def test_measured_once_for_a_model_and_a_window_size(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    def measure(shapes: Counter[tuple[int, int]], rows: int) -> Timed:
        asked.append(rows)
        return Timed(3.0, 2.0) if rows == 8 else Timed(2.0, 3.0)

    monkeypatch.setattr(dtypes, "time_products", measure)
    for _ in range(3):
        target = load_target(original, slots=1, context=32, dtype="auto", cache=tmp_path)
        assert target.dtype == torch.float32
    assert target.dtype_reason.startswith(
        "this model's products with 8 rows take 3.0 ms in bf16 and 2.0 ms in fp32 here, so fp32"
    )
    assert (
        load_target(original, slots=1, context=32, dtype="auto", rows=16, cache=tmp_path).dtype
        == torch.bfloat16
    )
    assert (
        load_target(
            write_llama(tmp_path / "llama"), slots=1, context=32, dtype="auto", cache=tmp_path
        ).dtype
        == torch.float32
    )
    assert asked == [8, 16, 8]


def test_what_is_measured_are_the_models_own_matrices(tmp_path: Path):
    tied = Checkpoint(write_llama(tmp_path / "tied", tie_word_embeddings=True, vocab_size=300))
    assert tied.matrices() == {(64, 64): 6, (32, 64): 6, (128, 64): 6, (64, 128): 3, (300, 64): 1}
    assert Checkpoint(write_llama(tmp_path / "own", vocab_size=300)).matrices() == tied.matrices()
    # whose table [320, 6 * 8] is only looked up
    per_layer = Checkpoint(write_gemma4(tmp_path / "per_layer", **PER_LAYER))
    assert per_layer.matrices().keys() >= {(320, 64), (48, 64), (8, 64)}
    assert (320, 48) not in per_layer.matrices()


def test_the_probe_takes_both_dtypes_in_turns_and_ends_in_time(monkeypatch: pytest.MonkeyPatch):
    clock, seen = count(), []
    monkeypatch.setattr(dtypes.time, "perf_counter", lambda: 0.05 * next(clock))

    class Noted(Matrix):
        def __call__(self, x: Tensor) -> Tensor:
            seen.append((tuple(self.shape), self.dtype))
            return x

    monkeypatch.setattr(dtypes, "Matrix", Noted)
    timed = time_products({(1 << 13, 1024): 2, (64, 32): 3}, 8)
    # as few as are allowed: the clock was past the budget
    assert len(seen) == 4 * (1 + dtypes.FEWEST)
    assert [dtype for _, dtype in seen[4:8]] == [torch.float32, torch.bfloat16] * 2
    assert [dtype for _, dtype in seen[8:12]] == [torch.bfloat16, torch.float32] * 2
    # a large matrix is cut, and its time scaled: 2 * 2 + 3 times 50 ms
    assert seen[0][0] == (
        4096,
        1024,
    )
    assert timed == (pytest.approx(350), pytest.approx(350))


def test_an_unknown_dtype_is_refused(original: Path):
    with pytest.raises(ValueError, match="dtype is 'fp16', expected auto, stored, fp32 or bf16"):
        load_target(original, slots=1, context=32, dtype="fp16")
