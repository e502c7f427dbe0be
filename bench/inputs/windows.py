"""Random windows: what the four window kernels are given, in every state that an engine can
bring about."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from triton_kernels import Packed, SlotLimits, SlotState, advance_window_torch, row_argmax_torch

INT = torch.int32
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
# name, least depth, k
POLICIES = (
    ("rotate_grow", 3, 0),
    ("static_k", 0, 0),
    ("static_k", 1, 1),
    ("static_k", 3, 3),
)


@dataclass(frozen=True)
class WindowData:
    """Tables and logits on one device, and the options of a plan."""

    state: SlotState
    limits: SlotLimits
    window: Packed
    logits: Tensor  # [bucket, vocab + 3] with other rows between
    proposals: Tensor  # [bucket, <= depth]
    vocab: int
    rows: int
    policy: str
    k: int

    def copy(self) -> tuple[SlotState, Packed]:
        """What a window changes."""
        return SlotState(*(tensor.clone() for tensor in self.state)), Packed(
            *(tensor.clone() for tensor in self.window)
        )

    @property
    def plan(self) -> dict[str, Any]:
        return {"rows": self.rows, "policy": self.policy, "k": self.k}

    def bans(self) -> dict[str, Tensor]:
        """The stop ids of rows whose output number is below the slot's least."""
        owner = self.window.slots.long()
        early = self.state.produced[owner] + self.window.group_index < self.limits.min_new[owner]
        counts = torch.where(early, self.limits.stop_counts[owner], 0)
        return {"banned": self.limits.stop_ids[owner], "banned_counts": counts.int()}

    def argmax_arguments(self) -> dict[str, Any]:
        return {
            "logits": self.logits,
            "vocab": self.vocab,
            **(self.bans() if len(self.state.anchors) else {}),
        }

    def pack_arguments(self) -> dict[str, Any]:
        tables = {name: getattr(self.state, name) for name in ("anchors", "drafts", "positions")}
        return tables | {"group_rows": self.window.starts.diff(), "bucket": len(self.window.ids)}

    def accept_arguments(self) -> dict[str, Any]:
        """Also limits that lie within a group, which a planner does not allow."""
        slot = torch.arange(len(self.state.anchors), dtype=INT, device=self.logits.device)
        least = self.window.starts.diff().clamp(max=1)
        max_new = torch.maximum(self.limits.max_new - slot % 4, self.state.produced + least)
        context = torch.maximum(
            self.limits.context - (slot + 1) % 3, self.state.positions + 1 + least
        )
        picks = row_argmax_torch(**self.argmax_arguments())
        arguments = {
            "picks": picks.ids,
            "faults": picks.faults,
            "ids": self.window.ids,
            "starts": self.window.starts,
        }
        arguments |= {
            name: getattr(self.state, name) for name in ("anchors", "positions", "produced")
        }
        arguments |= {
            name: getattr(self.limits, name) for name in ("min_new", "stop_ids", "stop_counts")
        }
        return arguments | {
            "max_new": max_new,
            "context": context,
            "width": self.state.drafts.shape[1] + 1,
        }

    def advance_arguments(self, stage: str) -> dict[str, Any]:
        given = {"limits": self.limits, **self.plan}
        return (
            given
            if stage == "plan"
            else given | {"logits": self.logits, "vocab": self.vocab, "proposals": self.proposals}
        )


def random_window(
    seed: int,
    *,
    slots: int | None = None,
    bucket: int | None = None,
    depth: int | None = None,
    vocab: int | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> WindowData:
    """Few different tokens, so that drafts match, stops hit and logits tie; also faults, limits
    at hand and idle slots."""
    chance = random.Random(seed)
    noise = torch.Generator().manual_seed(seed)
    slots = chance.randint(0, 9) if slots is None else slots
    bucket = chance.choice((1, 4, 8, 8, 16)) if bucket is None else bucket
    depth = chance.choice((0, 1, 3, 3, 3, 7)) if depth is None else depth
    vocab = chance.randint(1, 40) if vocab is None else vocab
    dtype = dtype or chance.choice(DTYPES)
    tokens, stops = min(vocab, 6), chance.choice((0, 1, 3, 3))

    def ints(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high + 1, shape or (slots,), generator=noise, dtype=INT)

    live = (torch.rand(slots, generator=noise) < 0.9).to(INT)
    state = SlotState(
        anchors=ints(0, tokens - 1),
        positions=ints(0, 20),
        produced=ints(0, 4),
        live=live,
        held=torch.maximum(ints(0, depth), ints(0, depth)),
        drafts=ints(0, tokens - 1, slots, depth),
        start=ints(0, max(slots - 1, 0), 1),
    )
    limits = SlotLimits(
        max_new=state.produced + ints(0, 9),
        context=state.positions + 1 + ints(0, 9),
        min_new=ints(0, 6) * ints(0, 1),
        allowed=ints(0, 4) * 2,
        stop_ids=ints(0, max(tokens - 2, 0), slots, stops),
        stop_counts=ints(0, stops),
    )
    policy, _, k = chance.choice([choice for choice in POLICIES if choice[1] <= depth])
    rows = chance.choice((bucket, bucket, chance.randint(1, bucket)))
    window = Packed._make(
        [*(torch.zeros(bucket, dtype=INT) for _ in range(4)), torch.zeros(slots + 1, dtype=INT)]
    )
    advance_window_torch("plan", state, limits, window, rows=rows, policy=policy, k=k)
    logits = random_logits(noise, bucket, vocab, dtype)
    for row in range(bucket):
        agrees = row + 1 < bucket and chance.random() < 0.7
        chosen = (
            int(window.ids[row + 1]) if agrees else chance.randrange(chance.choice((tokens, vocab)))
        )
        if chance.random() < 0.95:
            logits[row, chosen] = 9.0
        else:
            logits[row, :vocab] = logits[row, :vocab].clamp(max=0)  # zeros win, of either sign
        if chance.random() < 0.2:
            logits[row, chance.randrange(vocab)] = 9.0  # a tie
        if chance.random() < 0.08:
            logits[row, chance.randrange(vocab)] = float("nan") * chance.choice((1, -1))
        if chance.random() < 0.02:
            logits[row, :vocab] = float("-inf")
    data = WindowData(
        state,
        limits,
        window,
        logits,
        ints(0, tokens - 1, bucket, chance.randint(0, depth)),
        vocab,
        rows,
        policy,
        k,
    )
    return data if torch.device(device).type == "cpu" else moved(data, device)


def random_logits(noise: torch.Generator, rows: int, vocab: int, dtype: torch.dtype) -> Tensor:
    """[rows, vocab + 3], whole numbers of either sign and both zeros; rows lie apart and start
    anywhere; NaN in between."""
    width = vocab + 3
    spread = torch.full(
        (rows, width + int(torch.randint(0, 9, (), generator=noise))), float("nan"), dtype=dtype
    )
    logits = spread[:, spread.shape[1] - width :]
    signs = torch.randint(0, 2, (rows, vocab), generator=noise) * 2.0 - 1.0
    logits[:, :vocab] = (torch.randint(0, 4, (rows, vocab), generator=noise) * signs).to(dtype)
    logits[:, vocab:] = 99.0  # past the vocabulary
    return logits


def moved(data: WindowData, device: torch.device | str) -> WindowData:
    """The same on another device; the logits keep their strides."""
    logits = torch.empty_strided(
        data.logits.shape, data.logits.stride(), dtype=data.logits.dtype, device=device
    ).copy_(data.logits)
    state = SlotState(*(tensor.to(device, copy=True) for tensor in data.state))
    limits = SlotLimits(*(tensor.to(device, copy=True) for tensor in data.limits))
    window = Packed(*(tensor.to(device, copy=True) for tensor in data.window))
    return replace(
        data,
        state=state,
        limits=limits,
        window=window,
        logits=logits,
        proposals=data.proposals.to(device, copy=True),
    )
