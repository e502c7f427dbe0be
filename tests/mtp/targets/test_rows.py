"""What a row's bits may depend on (nothing but its own past), and what verify, commit and padding
may change (nothing)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mtp.buckets import Buckets
from mtp.targets import load_target
from mtp.targets.decoder import DecoderTarget
from tests.support import gemma_checkpoints as gemma
from tests.support.checkpoints import (
    NINE_HEADS,
    ODD,
    write_llama,
    write_qwen2,
    write_qwen3_5,
    write_qwen3_5_moe,
)
from tests.support.teacher import Row, Teacher, ints
from triton_kernels import Packed

SLOTS, NEW = 4, 20
PROMPTS = [5, 50, 61, 120]  # the windows cross borders of the attention's key blocks
DTYPES = (torch.float32, torch.bfloat16)


FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "hybrid": (write_qwen3_5, {}),
    "odd": (write_qwen3_5, ODD),
    "experts": (write_qwen3_5_moe, {}),
    "llama": (write_llama, NINE_HEADS | {"vocab_size": 320}),
    "qwen2": (write_qwen2, {"vocab_size": 320}),
    "gemma4": (gemma.write_gemma4, gemma.PER_LAYER),
    "gemma4_experts": (gemma.write_gemma4, gemma.EXPERTS),
    "gemma4_odd": (gemma.write_gemma4, gemma.ODD),
}


@pytest.fixture(scope="module", params=FORMS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    write, config = FORMS[request.param]
    return write(tmp_path_factory.mktemp(request.param), **config)


@pytest.fixture(scope="module")
def texts() -> Tensor:
    return torch.randint(0, 300, (SLOTS, 160), generator=torch.Generator().manual_seed(7))


def load(folder: Path, dtype: torch.dtype) -> DecoderTarget:
    return load_target(folder, slots=SLOTS, context=192, dtype=dtype)


def state_of(target: DecoderTarget, slot: int, length: int) -> list[Tensor]:
    """Everything committed of one slot."""
    caches = [
        cache[slot, :, :length] for layer in target.caches for cache in (layer.keys, layer.values)
    ]
    recurrent = [
        table[:, slot] for state in target.states for table in (state.recurrent, state.past_inputs)
    ]
    return [tensor.clone() for tensor in (*recurrent, *caches)]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(map(torch.equal, a, b))


def poison_scratch(target: DecoderTarget, lengths: dict[int, int]) -> None:
    """NaN in all that is free to write."""
    for state in target.states:
        for scratch in (state.inputs, state.keys, state.deltas, state.decays):
            scratch.fill_(torch.nan)
    for layer in target.caches:
        for slot, length in lengths.items():
            layer.keys[slot, :, length:] = torch.nan
            layer.values[slot, :, length:] = torch.nan


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_m03_alone_and_in_company_are_bit_equal_under_buckets(
    folder: Path, texts: Tensor, dtype: torch.dtype
):
    """One row at a time, alone, against groups of any size beside others.

    In other slots, after rejections, on poison. In fp32 some CPUs sum 4 rows in another order than
    8.
    """
    buckets = Buckets((4, 8)) if dtype == torch.bfloat16 else Buckets((8,))
    alone: dict[tuple[int, int], Row] = {}
    states = {}
    for request in range(SLOTS):
        teacher = Teacher(load(folder, dtype), {0: texts[request]}, SLOTS, buckets=buckets)
        teacher.prefill(0, PROMPTS[request])
        for _ in range(NEW):
            alone |= {
                (request, position): row for (_, position), row in teacher.step({0: 1}).items()
            }
        states[request] = state_of(teacher.target, 0, PROMPTS[request] + NEW)

    rng = random.Random(1)
    for _ in range(3):
        slot_of = rng.sample(range(SLOTS), SLOTS)
        request_in = {slot: request for request, slot in enumerate(slot_of)}
        target = load(folder, dtype)
        teacher = Teacher(
            target,
            {slot_of[request]: texts[request] for request in range(SLOTS)},
            SLOTS,
            buckets=buckets,
        )
        for request, slot in enumerate(slot_of):
            teacher.prefill(slot, PROMPTS[request])
        while open_slots := [
            s for s in range(SLOTS) if teacher.lengths[s] < PROMPTS[request_in[s]] + NEW
        ]:
            rows: dict[int, int] = {}
            for slot in rng.sample(open_slots, len(open_slots)):
                left = PROMPTS[request_in[slot]] + NEW - teacher.lengths[slot]
                if size := min(rng.choice([1, 2, 3, 4, 8]), left, 8 - sum(rows.values())):
                    rows[slot] = size
            poison_scratch(target, teacher.lengths)
            for (slot, position), row in teacher.step(
                rows, {slot: rng.randint(0, size) for slot, size in rows.items()}
            ).items():
                for got, want in zip(row, alone[request_in[slot], position], strict=True):
                    assert torch.equal(got, want), (slot, position, rows)
        for slot, request in request_in.items():
            assert same(state_of(target, slot, PROMPTS[request] + NEW), states[request])


def test_m03_with_exact_rows_the_sums_differ_only_by_rounding(folder: Path, texts: Tensor):
    """The gap is measured, not assumed: one window of 4 rows against four of 1, no padding."""
    results = []
    for sizes in ([4], [1, 1, 1, 1]):
        teacher = Teacher(load(folder, torch.float32), {0: texts[0]}, SLOTS, buckets=Buckets(()))
        teacher.prefill(0, 50)
        rows = [row for size in sizes for row in teacher.step({0: size}).values()]
        results.append(torch.stack([row.logits for row in rows]))
    gap = (results[0] - results[1]).abs().max().item()
    assert gap < 1e-3
    top = results[0].topk(2).values
    clear = top[:, 0] - top[:, 1] > 2 * gap
    assert torch.equal(results[0].argmax(1)[clear], results[1].argmax(1)[clear])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_verify_changes_nothing_and_so_does_a_commit_of_nothing(
    folder: Path, texts: Tensor, dtype: torch.dtype
):
    target = load(folder, dtype)
    teacher = Teacher(target, dict(enumerate(texts)), SLOTS)
    for slot, count in enumerate(PROMPTS):
        teacher.prefill(slot, count)
    before = [state_of(target, slot, count) for slot, count in enumerate(PROMPTS)]
    rows = {0: 1, 1: 4, 3: 2}
    poison_scratch(target, teacher.lengths)
    first = teacher.verify(rows)[1]
    poison_scratch(target, teacher.lengths)
    window, second = teacher.verify(rows)
    assert all(
        torch.equal(a, b)
        for place in first
        for a, b in zip(first[place], second[place], strict=True)
    )
    target.commit(window, ints([0] * SLOTS))
    assert all(
        same(state_of(target, slot, count), before[slot]) for slot, count in enumerate(PROMPTS)
    )
    target.commit(window, ints([0, 2, 0, 0]))
    changed = [
        not same(state_of(target, slot, count), before[slot]) for slot, count in enumerate(PROMPTS)
    ]
    assert changed == [False, bool(target.states), False, False]


def test_padding_rows_touch_nothing(folder: Path, texts: Tensor):
    """Whatever they hold: here they point at a committed row of a slot that is in the window, and
    of one that is not."""
    target = load(folder, torch.float32)
    teacher = Teacher(target, dict(enumerate(texts)), SLOTS)
    for slot, count in enumerate(PROMPTS):
        teacher.prefill(slot, count)
    packed, clean = teacher.verify({1: 1, 2: 4})
    everything = [state_of(target, slot, 192) for slot in range(SLOTS)]
    real = int(packed.starts[-1])
    junk: dict[str, Tensor] = {}
    for name, values in (
        ("ids", [299, 7, 1]),
        ("positions", [4, 49, 60]),
        ("slots", [0, 1, 2]),
        ("group_index", [0, 3, 1]),
    ):
        junk[name] = torch.cat([getattr(packed, name)[:real], ints(values)])
    logits, _ = target.verify(Packed(**junk, starts=packed.starts))
    assert all(same(state_of(target, slot, 192), everything[slot]) for slot in range(SLOTS))
    assert all(torch.equal(logits[i], row.logits) for i, row in enumerate(clean.values()))


def test_a_faulty_draft_does_not_reach_the_rows_before_it_nor_the_next_window(
    folder: Path, texts: Tensor
):
    texts = texts.clone()
    bad, n = 311, 50
    results = []
    for token in (int(texts[0, n + 1]), bad):
        target = load(folder, torch.float32)
        target.embedding = target.embedding.clone()
        target.embedding[bad] = torch.nan
        teacher = Teacher(target, {0: texts[0].clone(), 1: texts[1]}, SLOTS)
        teacher.prefill(0, n)
        teacher.prefill(1, 30)
        teacher.texts[0][n + 1] = token
        rows = teacher.step({0: 4, 1: 2}, {0: 1, 1: 2})
        teacher.texts[0] = texts[0]
        later = teacher.step({0: 2, 1: 1})
        results.append([rows[0, n], rows[1, 31], later[0, n + 1], later[0, n + 2], later[1, 32]])
        assert rows[0, n + 1].logits.isnan().any() == (token == bad)
    for clean, beside in zip(*results, strict=True):
        assert torch.equal(clean.logits, beside.logits)
        assert not clean.logits.isnan().any()


def test_p13_cache_row_and_rope_position_are_both_n(folder: Path, texts: Tensor):
    n, rows = 50, 4
    target, whole = load(folder, torch.float32), load(folder, torch.float32)
    Teacher(whole, {2: texts[0]}, SLOTS).prefill(2, n + rows)
    teacher = Teacher(target, {2: texts[0]}, SLOTS)
    teacher.prefill(2, n)
    before = [cache.clone() for cache in target.kv("full_attention")]
    window = teacher.pack({2: rows})
    assert window.positions[:rows].tolist() == [50, 51, 52, 53]
    target.verify(window)
    for cache, old, expected in zip(
        target.kv("full_attention"), before, whole.kv("full_attention"), strict=True
    ):
        changed = (cache != old).any(3).any(1)  # [slots, context]
        assert changed.nonzero().tolist() == [[2, n + i] for i in range(rows)]
        torch.testing.assert_close(
            cache[2, :, n : n + rows], expected[2, :, n : n + rows], atol=1e-3, rtol=0
        )


def test_clear_leaves_nothing(folder: Path, texts: Tensor):
    target = load(folder, torch.float32)
    teacher = Teacher(target, {1: texts[0]}, SLOTS)
    teacher.prefill(1, 40)
    teacher.step({1: 4})
    target.clear(1)
    assert not any(tensor.any() for tensor in state_of(target, 1, 192))


def test_the_last_row_of_the_context_has_room(folder: Path, texts: Tensor):
    target = load_target(folder, slots=1, context=64, dtype=torch.float32)
    teacher = Teacher(target, {0: texts[0]}, 1)
    teacher.prefill(0, 60)
    assert len(teacher.step({0: 4})) == 4
    with pytest.raises(ValueError, match=r"tokens 64\.\.64 of slot 0 do not fit 1 slots of 64"):
        target.prefill(0, ints([1]), 64)
    with pytest.raises(ValueError, match="a window of 9 rows, expected at most 8"):
        target.verify(Packed(*[torch.zeros(9, dtype=torch.int32)] * 4, starts=ints([0, 9])))
