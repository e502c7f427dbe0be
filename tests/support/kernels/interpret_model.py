"""Whole models on the kernels against the same models on their twins, in Triton's interpreter. A
program of its own, as interpret.py is. Prints nothing if logits and committed states agree."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from bench.host.window_rows import random_target
from mtp.buckets import Buckets
from mtp.drafters import load_gemma_assistant
from mtp.targets import load_target
from tests.support.gemma_checkpoints import FULL, SLIDING, write_assistant, write_gemma4
from tests.support.kernels.dot import sum_in_order
from triton_kernels import attention, causal_conv, gated_delta, gated_delta_commit, pack_window

HYBRID: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 10,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": True,
    "max_position_embeddings": 256,
}
# rows of each slot, and how many are kept
WINDOWS = [
    ((4, 0, 1), (2, 0, 1)),
    ((1, 2, 2), (1, 2, 0)),
    ((0, 1, 4), (0, 1, 4)),
]


def on_kernels() -> ExitStack:
    """What the operations do on a GPU, on CPU tensors."""
    stack = ExitStack()
    stack.enter_context(mock.patch.object(causal_conv, "_verify", causal_conv._launch_verify))
    stack.enter_context(mock.patch.object(causal_conv, "_commit", causal_conv._launch_commit))
    for module in (gated_delta, gated_delta_commit, attention):
        stack.enter_context(mock.patch.object(module, "_operation", module._launch))
    return stack


GEMMA: dict[str, Any] = {
    "num_hidden_layers": 3,
    "layer_types": [SLIDING, FULL, FULL],
    "num_kv_shared_layers": 1,
    "num_key_value_heads": 1,
}


def hybrid() -> tuple[torch.Tensor, ...]:
    """Logits of the rows of every window, and the states after the last commit."""
    target = random_target(100, slots=3, model=HYBRID, dtype="fp32")
    for table in (target.state.recurrent, target.state.past_inputs):
        table.normal_()
    logits, lengths = [], torch.tensor([60, 0, 9], dtype=torch.int32)
    for number, (sizes, keeps) in enumerate(WINDOWS):
        groups, kept = (torch.tensor(each, dtype=torch.int32) for each in (sizes, keeps))
        drafts = torch.arange(9, dtype=torch.int32).view(3, 3) + number
        window = pack_window(
            torch.full((3,), 5, dtype=torch.int32), drafts, lengths, groups, bucket=8
        )
        logits.append(target.verify(window)[0][: sum(sizes)])
        target.commit(window, kept)
        lengths = lengths + kept
    return (*logits, target.state.recurrent, target.state.past_inputs)


def gemma() -> tuple[torch.Tensor, ...]:
    """Logits of the rows of a window that slides, and an assistant's confidence after it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_gemma4(folder / "target", **GEMMA)
        write_assistant(folder / "assistant", folder / "target")
        target = load_target(folder / "target", slots=3, context=192, dtype="fp32")
        drafter = load_gemma_assistant(folder / "assistant", target, buckets=Buckets((8,)))
    for cache in target.caches:
        cache.keys.normal_()
        cache.values.normal_()
    lengths, groups, kept = (
        torch.tensor(each, dtype=torch.int32) for each in ([70, 0, 9], [4, 0, 2], [3, 0, 1])
    )
    window = pack_window(
        torch.full_like(lengths, 5),
        torch.arange(9, dtype=torch.int32).view(3, 3),
        lengths,
        groups,
        bucket=8,
    )
    logits, hidden = target.verify(window)
    drafted = drafter.advance(window, kept, window.ids, hidden, 3)
    return logits[:6], drafted.confidence[[0, 2]]


def main() -> None:
    sum_in_order()
    for model in (hybrid, gemma):
        twins = model()
        with on_kernels():
            kernels = model()
        for i, (got, want) in enumerate(zip(kernels, twins, strict=True)):
            if not torch.allclose(got, want, rtol=1e-4, atol=1e-5) or torch.equal(
                got, torch.zeros_like(got)
            ):
                print(
                    f"{model.__name__}: result {i} differs by up to "
                    f"{float((got - want).abs().max())}"
                )
        if all(torch.equal(got, want) for got, want in zip(kernels, twins, strict=True)):
            print(f"{model.__name__}: equal in every bit: the kernels did not run")


if __name__ == "__main__":
    sys.exit(main())
