"""Random engines on every family: slots, rows, policies, chunks, cancels, grants, layout keys,
kernel paths and, where they are bit-equal, row buckets. Texts equal plain decoding alone, and what
a drafter proposes after a prefix is the same whenever it is asked."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bench.host.cpu_paths import PATHS, kernel_path
from mtp.buckets import Buckets
from mtp.drafters import load_gemma_assistant, load_qwen_mtp
from mtp.drafters.protocol import Drafted, Drafter
from mtp.engine import Engine
from mtp.execution.bit_equal import bit_equal_row_counts
from mtp.execution.model import ModelExecutor
from mtp.grants import Rotate
from mtp.graphs.backends import CpuGraphs
from mtp.layouts import Keyed, LayoutCache
from mtp.policies import RotateAnchorsFirst, RotateGrow, StaticK
from mtp.request import Finished, Request
from mtp.targets import load_target
from tests.support import checkpoints as qwen
from tests.support import gemma_checkpoints as gemma
from tests.support.small import BUCKETS, CPU, VOCAB
from triton_kernels import Packed

PER_LAYER = {"vocab_size_per_layer_input": VOCAB}
FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "hybrid": (qwen.write_qwen3_5, {}),
    "hybrid_odd": (qwen.write_qwen3_5, qwen.ODD | {"mtp": 2}),
    "experts": (qwen.write_qwen3_5_moe, {"mtp": 2}),
    "qwen3": (qwen.write_qwen3, {"mtp": 3}),
    "qwen3_deep": (qwen.write_qwen3, {"mtp": 7}),
    "qwen2": (qwen.write_qwen2, {}),
    "llama": (qwen.write_llama, qwen.NINE_HEADS | {"rope_parameters": qwen.LLAMA3_ROPE}),
    "gemma4": (gemma.write_gemma4, gemma.PER_LAYER | PER_LAYER),
    "gemma4_odd": (gemma.write_gemma4, gemma.ODD | PER_LAYER),
    "gemma4_experts": (gemma.write_gemma4, gemma.EXPERTS),
    "gemma4_sees_itself": (gemma.write_gemma4, {"sliding_window": 1}),
    "gemma4_sees_a_block": (gemma.write_gemma4, gemma.ONE_PROJECTION | {"sliding_window": 64}),
    "gemma3": (gemma.write_gemma3, {"sliding_window": 33}),
}
Texts = Mapping[str, Finished]


class Helped:
    """A drafter that works as ever; its drafts are noted by request and position, then replaced
    by what is right in four of five."""

    def __init__(
        self, inner: Drafter, slots: int, context: int, noted: dict[tuple[str, int], list[int]]
    ) -> None:
        self.inner, self.context, self.max_depth, self.noted = (
            inner,
            inner.context,
            inner.max_depth,
            noted,
        )
        self.table = torch.zeros(slots, context + 60, dtype=torch.int32)
        self.names: dict[int, str] = {}
        self.recorded = True  # then the host may not look
        self.differing: list[tuple[str, int]] = []

    def bind(self, target: Any) -> None: ...

    def prefill(self, slot: int, ids: Tensor, hidden: Tensor, start: int) -> None:
        self.inner.prefill(slot, ids, hidden, start)

    def clear(self, slot: int) -> None:
        self.inner.clear(slot)

    def seat(self, slot: int, name: str, text: tuple[int, ...]) -> None:
        self.names[slot] = name
        right = torch.tensor(text, dtype=torch.int32)
        wrong = torch.rand(len(text), generator=torch.Generator().manual_seed(slot)) < 0.2
        self.table[slot, : len(text)] = torch.where(wrong, (right + 1) % VOCAB, right)

    def advance(
        self, window: Packed, kept: Tensor, picks: Tensor, hidden: Tensor, depth: int
    ) -> Drafted:
        drafted = self.inner.advance(window, kept, picks, hidden, depth)
        last = (window.starts[:-1] + kept - 1).clamp(0, len(window.ids) - 1)
        position = window.positions[last].long()
        if not self.recorded:
            for slot in kept.nonzero().flatten().tolist():
                mine = drafted.tokens[slot].tolist()
                before = self.noted.setdefault((self.names[slot], int(position[slot])), mine)
                both = min(len(before), len(mine))
                # told later: the executor goes on without a drafter that raises
                if before[:both] != mine[:both]:
                    self.differing.append((self.names[slot], int(position[slot])))
        ahead = (position[:, None] + 2 + torch.arange(depth)).clamp(max=self.table.shape[1] - 1)
        return drafted._replace(tokens=self.table.gather(1, ahead))


class Executor(ModelExecutor):
    texts: Texts

    def admit(self, slot: int, request: Request) -> None:
        super().admit(slot, request)
        if isinstance(self.drafting.drafter, Helped):
            self.drafting.drafter.seat(
                slot, request.id, request.prompt + self.texts[request.id].tokens
            )


def draw(rng: random.Random, context: int) -> list[Request]:
    lengths = (
        1,
        2,
        rng.randint(1, context - 1),
        context - 1,
        context - 30,
        context - 12,
        min(64, context - 1),
        min(65, context - 1),
    )
    return [
        Request(
            f"r{i}",
            tuple(rng.randrange(VOCAB) for _ in range(rng.choice(lengths))),
            rng.choice([1, 2, rng.randint(3, 30), 40]),
            stop_ids=frozenset(rng.sample(range(VOCAB), int(rng.random() < 0.2))),
            min_new_tokens=rng.choice([0, 0, 1]),
            arrival_s=rng.choice([0, 1e-3]),
        )
        for i in range(rng.randint(2, 4))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("family", FAMILIES)
def test_texts_and_drafts_depend_on_the_request_alone(
    family: str, seed: int, path: str, tmp_path: Path
):
    with kernel_path(path):
        compare(family, random.Random(f"{path} {family} {seed}"), seed, tmp_path)


def compare(family: str, rng: random.Random, seed: int, tmp_path: Path) -> None:
    write, config = FAMILIES[family]
    write(tmp_path / "target", seed=seed, **(config | {"vocab_size": VOCAB}))
    context, slots, chunk = (
        rng.choice([31, 70, 140]),
        rng.randint(3, 5),
        rng.choice([1, 3, 7, 64, 256]),
    )
    target = load_target(
        tmp_path / "target",
        slots=slots,
        context=context,
        dtype=rng.choice([torch.float32, torch.bfloat16]),
    )
    equal = bit_equal_row_counts(target.linear_weights(), rows=8)
    buckets = BUCKETS
    if set(range(2, 9)) <= set(equal):
        buckets = rng.choice([BUCKETS, Buckets((4, 8)), Buckets(())])
    own: Drafter
    if "gemma" in family:
        gemma.write_assistant(tmp_path / "assistant", tmp_path / "target")
        own = load_gemma_assistant(tmp_path / "assistant", target, buckets=buckets)
    else:
        own = load_qwen_mtp(tmp_path / "target", target, buckets=buckets)
    todo, texts, noted = draw(rng, context), {}, {}
    policies = (RotateGrow(), StaticK(3), StaticK(7, sizes=(1, 2, 4, 8)), RotateAnchorsFirst())
    accepted = 0
    for turn in range(4):
        policy = rng.choice(policies) if turn else StaticK(0)
        key = rng.choice(["rows", "sorted", "slots"]) if turn == 3 else None
        grants = (
            Rotate(budget=rng.choice([1, 2, 5]), share=rng.choice(["tick", "window"]))
            if turn and rng.random() < 0.4
            else None
        )
        helped = Helped(own, slots, context, noted)
        helped.recorded = key is not None
        rows = rng.choice([4, 5, 8])
        drafter = helped if turn else None
        executor = Executor(
            target,
            drafter,
            slots=slots,
            rows=rows,
            largest_group=8,
            depth=policy.depth,
            buckets=buckets,
            device=CPU,
        )
        executor.texts = texts
        layout = (
            Keyed(key, LayoutCache(rng.choice([1, 2, 32]), CpuGraphs(executor.dry_run)))
            if key
            else None
        )
        options: dict[str, Any] = {
            "rows": rows,
            "grants": grants,
            "layout": layout,
            "prefill_chunk": chunk,
        }
        engine = Engine(executor, slots=slots if turn else 1, policy=policy, **options)
        for request in todo:
            engine.submit(request)
        cancelled, at = (rng.choice(todo).id if turn == 2 else None), rng.randint(1, 20)
        while engine.step():
            at -= 1
            if cancelled and not at:
                engine.cancel(cancelled)
        assert not helped.differing
        assert not any(done.speculation_disabled for done in engine.finished)
        accepted += sum(round_.accepted for round_ in engine.rounds)
        for done in engine.finished:
            alone = texts.setdefault(done.id, done)
            if done.finish == "cancelled":
                assert done.tokens == alone.tokens[: len(done.tokens)]
            else:
                assert (done.tokens, done.finish, done.error) == (
                    alone.tokens,
                    alone.finish,
                    None,
                ), (turn, policy, key, grants)
    # else nothing was compared
    assert accepted or all(len(done.tokens) < 5 for done in texts.values())
