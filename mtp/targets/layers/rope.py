"""Rotary positions."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from mtp.targets.loading.config import RopeSettings


class Rotation(NamedTuple):
    """Of some rows. Elements that are not rotated have cosine 1 and sine 0."""

    cos: Tensor  # [rows, 1, head size]
    sin: Tensor  # [rows, 1, head size], signed
    partner: Tensor  # [head size] long, the element that each is rotated with

    def __call__(self, x: Tensor) -> Tensor:
        """x: [rows, heads, head size] fp32 -> the same shape and dtype, rotated."""
        return x * self.cos + x.index_select(-1, self.partner) * self.sin


class Rope:
    """Tables for positions 0..length - 1.

    These are rope positions, which are not cache rows wherever images count otherwise.

    frequencies: [n] fp32; the first 2 n elements of a head of `size` are rotated, i with i + n, and
    the rest is not
    """

    def __init__(self, frequencies: Tensor, size: int, length: int, device: torch.device) -> None:
        half, rotary = len(frequencies), 2 * len(frequencies)
        angle = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)  # [length, n]
        rest = torch.ones(length, size - rotary)
        self.cos = torch.cat([angle.cos(), angle.cos(), rest], 1)[:, None].to(device)
        self.sin = torch.cat([-angle.sin(), angle.sin(), 0 * rest], 1)[:, None].to(device)
        self.partner = torch.cat(
            [torch.arange(half, rotary), torch.arange(half), torch.arange(rotary, size)]
        ).to(device)

    def at(self, positions: Tensor) -> Rotation:
        """positions: [rows] int."""
        return Rotation(
            self.cos.index_select(0, positions), self.sin.index_select(0, positions), self.partner
        )


def frequencies(rope: RopeSettings) -> Tensor:
    """[rotary / 2] fp32, radians a position. The llama3 rule is Llama 3.1's own model code's."""
    plain = rope.theta ** -(torch.arange(0, rope.rotary, 2, dtype=torch.float32) / rope.rotary)
    if rope.kind == "linear":
        return plain / rope.factor
    if rope.kind == "llama3":
        turns = rope.original * plain / (2 * math.pi)  # over the positions of the first training
        kept = ((turns - rope.low) / (rope.high - rope.low)).clamp(0, 1)
        return kept * plain + (1 - kept) * plain / rope.factor
    if rope.kind == "proportional":
        plain[int(rope.share * rope.rotary // 2) :] = 0
        return plain / rope.factor
    return plain
