"""Gated-delta twins against the rule itself in double, one row after another."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bench.reference import mixer_oracle
from tests.support.teacher import ints
from triton_kernels.gated_delta import gated_delta_prefill_torch, gated_delta_verify_torch
from triton_kernels.gated_delta_commit import gated_delta_commit_torch

SLOTS = 3
# key heads, heads, key size, value size
SHAPES = [
    (2, 4, 16, 16),
    (3, 9, 10, 14),
    (1, 1, 5, 3),
    (2, 2, 8, 4),
]


class Rows(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor
    beta: Tensor


def some_rows(shape: tuple[int, int, int, int], count: int, seed: int = 0) -> tuple[Rows, Tensor]:
    """Inputs of `count` rows and a state [heads, key size, value size] for each slot."""
    torch.manual_seed(seed)
    key_heads, heads, key_size, value_size = shape
    q, k = (normalize(torch.randn(count, key_heads, key_size), dim=-1) for _ in range(2))
    rows = Rows(
        q,
        k,
        torch.randn(count, heads, value_size),
        torch.rand(count, heads),
        torch.rand(count, heads),
    )
    return rows, torch.randn(SLOTS, heads, key_size, value_size)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "sizes", [(1, 0, 0), (0, 4, 0), (2, 4, 2), (1, 2, 4), (1, 1, 1), (0, 0, 8), (0, 0, 0)], ids=str
)
def test_verify_follows_the_rule_and_commit_moves_by_the_kept_rows(
    shape: tuple[int, int, int, int], sizes: tuple[int, ...]
):
    rows, states = some_rows(shape, 8)
    before = states.clone()
    starts = ints([0, *torch.tensor(sizes).cumsum(0).tolist()])
    deltas = torch.full_like(rows.v, torch.nan)
    out = gated_delta_verify_torch(*rows, states, starts, deltas=deltas)
    assert torch.equal(states, before)
    assert not out[sum(sizes) :].any()
    assert deltas[sum(sizes) :].isnan().all()
    kept = [min(size, wanted) for size, wanted in zip(sizes, (1, 3, 2), strict=True)]
    layers = [torch.stack([x, torch.zeros_like(x)]) for x in (states, rows.k, deltas, rows.decay)]
    gated_delta_commit_torch(*layers, starts, ints(kept))
    for slot, (first, size) in enumerate(zip(starts.tolist(), sizes, strict=False)):
        group, keeps = (slice(first, first + count) for count in (size, kept[slot]))
        expected, *_ = mixer_oracle.delta_rule(*(x[group] for x in rows), before[slot])
        torch.testing.assert_close(out[group].double(), expected, atol=1e-5, rtol=0)
        *_, after = mixer_oracle.delta_rule(*(x[keeps] for x in rows), before[slot])
        torch.testing.assert_close(layers[0][0, slot].double(), after, atol=1e-5, rtol=0)
        assert kept[slot] or torch.equal(layers[0][0, slot], before[slot])
    assert not layers[0][1].any()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_group_of_four_has_the_bits_of_four_windows_of_one(shape: tuple[int, int, int, int]):
    rows, states = some_rows(shape, 4, seed=1)
    whole, one_by_one = states.clone()[None], states.clone()[None]
    deltas = torch.empty_like(rows.v)
    out = gated_delta_verify_torch(*rows, states, ints([0, 0, 4, 4]), deltas=deltas)
    gated_delta_commit_torch(
        whole, rows.k[None], deltas[None], rows.decay[None], ints([0, 0, 4, 4]), ints([0, 4, 0])
    )
    for i in range(4):
        row = Rows(*(x[i : i + 1] for x in rows))
        delta = torch.empty_like(row.v)
        assert torch.equal(
            gated_delta_verify_torch(*row, one_by_one[0], ints([0, 0, 1, 1]), deltas=delta),
            out[i : i + 1],
        )
        gated_delta_commit_torch(
            one_by_one,
            row.k[None],
            delta[None],
            row.decay[None],
            ints([0, 0, 1, 1]),
            ints([0, 1, 0]),
        )
    assert torch.equal(whole, one_by_one)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("count", [1, 5, 64, 65, 150])
def test_a_prompt_follows_the_rule(shape: tuple[int, int, int, int], count: int):
    rows, states = some_rows(shape, count, seed=2)
    expected, _, after = mixer_oracle.delta_rule(*rows, states[1])
    out = gated_delta_prefill_torch(*rows[:3], rows.decay.log(), rows.beta, states[1])
    torch.testing.assert_close(out.double(), expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(states[1].double(), after, atol=1e-4, rtol=0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_prompt_has_the_same_bits_in_every_slot(shape: tuple[int, int, int, int]):
    rows, states = some_rows(shape, 70, seed=3)
    states[:] = states[0]
    outs = [
        gated_delta_prefill_torch(*rows[:3], rows.decay.log(), rows.beta, state) for state in states
    ]
    assert all(torch.equal(out, outs[0]) for out in outs)
    assert all(torch.equal(state, states[0]) for state in states)


def test_a_decay_that_forgets_everything_overflows_nothing():
    rows, states = some_rows(SHAPES[0], 70)
    out = gated_delta_prefill_torch(
        *rows[:3], torch.full_like(rows.decay, -60.0), rows.beta, states[0]
    )
    assert out.isfinite().all()
    assert states[0].isfinite().all()


def test_refusals_name_the_tensor():
    rows, states = some_rows(SHAPES[1], 2)
    with pytest.raises(ValueError, match=r"beta has shape \[2, 8\], expected \[2, 9\]"):
        gated_delta_verify_torch(
            *rows[:4], rows.beta[:, 1:], states, ints([0, 0, 0, 0]), deltas=rows.v
        )
    with pytest.raises(ValueError, match="v has 8 heads, expected a multiple of 3 key heads"):
        gated_delta_prefill_torch(rows.q, rows.k, rows.v[:, 1:], rows.decay, rows.beta, states[0])
    with pytest.raises(ValueError, match=r"kept has shape \[2\], expected \[3\]"):
        gated_delta_commit_torch(
            states[None],
            rows.k[None],
            rows.v[None],
            rows.decay[None],
            ints([0, 1, 2, 2]),
            ints([1, 1]),
        )
