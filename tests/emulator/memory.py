"""Memory that notices what a GPU does not: accesses outside a tensor, misalignment, and races.

Two accesses of the same bytes, one of them a write, race unless something orders them: the same
thread; a barrier between them (threads of one program); or a release and an acquire (programs of
one grid). Atomics do not race with each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from tests.emulator.ptx import Instruction, PtxError

if TYPE_CHECKING:
    from tests.emulator.machine import Program

UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class MemoryFault(PtxError):
    """An access outside every tensor, or not aligned."""


class Race(PtxError):
    """Two accesses of the same bytes with nothing that orders them."""


@dataclass(frozen=True)
class Access:
    program: Program
    epoch: int  # barriers of the program before it
    time: int  # releases of the program before it, plus one
    threads: np.ndarray
    phases: np.ndarray  # warp barriers of each thread before it
    addresses: np.ndarray
    width: int  # bytes
    atomic: bool
    instruction: Instruction


@dataclass
class Segment:
    base: int
    bytes: np.ndarray
    reads: list[Access] = field(default_factory=list)
    writes: list[Access] = field(default_factory=list)


class Memory:
    """Segments of addressable bytes. clocks: what an acquire at an address makes visible."""

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.clocks: dict[int, np.ndarray] = {}

    def place(self, content: np.ndarray, base: int) -> None:
        """Bytes (uint8, shared with the caller) at an address."""
        if content.size and not any(
            old.base == base and old.bytes.size == content.size for old in self.segments
        ):
            self.segments.append(Segment(base, content))

    def add(self, tensor: torch.Tensor) -> int:
        """A tensor's elements at their real addresses: what lies between rows is not
        addressable. Returns its address."""
        size = tensor.element_size()
        rows = (
            tensor
            if tensor.ndim == 2 and not tensor.is_contiguous()
            else tensor.reshape(1, -1)
            if tensor.is_contiguous()
            else None
        )
        if rows is None or (rows.shape[1] > 1 and rows.stride(1) != 1):
            raise PtxError(f"a tensor of strides {tensor.stride()} was given")
        storage = np.frombuffer(_storage_of(tensor), dtype=np.uint8)
        for row in range(rows.shape[0]):
            offset = (rows.storage_offset() + row * rows.stride(0)) * size
            self.place(
                storage[offset : offset + rows.shape[1] * size],
                tensor.untyped_storage().data_ptr() + offset,
            )
        return tensor.data_ptr()

    def _segment(
        self, addresses: np.ndarray, width: int, instruction: Instruction
    ) -> list[tuple[Segment, np.ndarray]]:
        """(segment, which lanes) of an access; every lane is in exactly one."""
        if (addresses % np.uint64(width)).any():
            raise MemoryFault(f"misaligned by {width} bytes: {instruction}")
        low, high = int(addresses.min()), int(addresses.max())
        found, left = [], np.ones(addresses.shape, bool)
        for segment in self.segments:
            end = segment.base + segment.bytes.size
            if high + width <= segment.base or low >= end:
                continue
            inside = (
                left
                & (addresses >= np.uint64(segment.base))
                & (addresses + np.uint64(width) <= np.uint64(end))
            )
            if inside.any():
                found.append((segment, inside))
                left &= ~inside
        if left.any():
            raise MemoryFault(
                f"{width} bytes at {int(addresses[left][0]):#x}, outside every tensor: "
                f"{instruction}"
            )
        return found

    def load(
        self,
        program: Program,
        threads: np.ndarray,
        addresses: np.ndarray,
        width: int,
        instruction: Instruction,
    ) -> np.ndarray:
        """[lanes, width] bytes."""
        content = np.empty((len(threads), width), np.uint8)
        for segment, lanes in self._segment(addresses, width, instruction):
            access = _access(program, threads[lanes], addresses[lanes], width, instruction)
            for earlier in segment.writes:
                _check(access, earlier)
            segment.reads.append(access)
            offsets = (addresses[lanes] - np.uint64(segment.base)).astype(np.int64)
            content[lanes] = segment.bytes[offsets[:, None] + np.arange(width)]
        return content

    def store(
        self,
        program: Program,
        threads: np.ndarray,
        addresses: np.ndarray,
        content: np.ndarray,
        instruction: Instruction,
    ) -> None:
        """content: [lanes, width] bytes."""
        width = content.shape[1]
        for segment, lanes in self._segment(addresses, width, instruction):
            access = _access(program, threads[lanes], addresses[lanes], width, instruction)
            for earlier in segment.reads + segment.writes:
                _check(access, earlier)
            segment.writes.append(access)
            offsets = (addresses[lanes] - np.uint64(segment.base)).astype(np.int64)[
                :, None
            ] + np.arange(width)
            segment.bytes[offsets] = content[lanes]
            if (segment.bytes[offsets] != content[lanes]).any():
                raise Race(f"threads store different values to one address: {instruction}")

    def atomic(
        self,
        program: Program,
        thread: int,
        address: int,
        width: int,
        instruction: Instruction,
        order: str,
    ) -> np.ndarray:
        """One thread's bytes [width], to be changed in place."""
        ((segment, _),) = self._segment(np.array([address], np.uint64), width, instruction)
        access = _access(
            program,
            np.array([thread]),
            np.array([address], np.uint64),
            width,
            instruction,
            atomic=True,
        )
        for earlier in segment.reads + segment.writes:
            _check(access, earlier)
        segment.writes.append(access)
        if order == "acq_rel":
            clock = self.clocks.setdefault(address, np.zeros_like(program.clock))
            np.maximum(program.clock, clock, out=program.clock)
            self.clocks[address] = program.clock.copy()
            program.clock[program.number] += 1
        offset = address - segment.base
        return segment.bytes[offset : offset + width]


def _storage_of(tensor: torch.Tensor) -> memoryview:
    storage = tensor.untyped_storage()
    return memoryview(torch.empty(0, dtype=torch.uint8).set_(storage).numpy())


def _access(
    program: Program,
    threads: np.ndarray,
    addresses: np.ndarray,
    width: int,
    instruction: Instruction,
    atomic: bool = False,
) -> Access:
    time = int(program.clock[program.number])
    return Access(
        program,
        program.epoch,
        time,
        threads,
        program.phase[threads],
        addresses,
        width,
        atomic,
        instruction,
    )


def _check(now: Access, earlier: Access) -> None:
    """Raise Race if nothing orders two accesses that share a byte."""
    if now.atomic and earlier.atomic:
        return
    same = now.program is earlier.program
    if (same and now.epoch != earlier.epoch) or (
        not same and now.program.clock[earlier.program.number] >= earlier.time
    ):
        return
    # aligned powers of two: they nest or are disjoint
    block = np.uint64(max(now.width, earlier.width))
    here, there = now.addresses // block, earlier.addresses // block
    if here.max() < there.min() or there.max() < here.min():
        return
    for i in np.flatnonzero(np.isin(here, there)):
        for j in np.flatnonzero(there == here[i]):
            thread, other = int(now.threads[i]), int(earlier.threads[j])
            warp_ordered = thread // 32 == other // 32 and now.phases[i] != earlier.phases[j]
            if not same or (thread != other and not warp_ordered):
                who = (
                    f"thread {thread} of program {now.program.number} and thread {other} of "
                    f"program {earlier.program.number}"
                )
                raise Race(f"{who}: {now.instruction} and, before it, {earlier.instruction}")
