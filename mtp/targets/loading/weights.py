"""Tensors of a checkpoint, memory-mapped and converted straight into their own place."""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Callable, Mapping
from copy import copy
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from mtp.files import LFS_POINTER, is_lfs_pointer

STORED_AS = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "I64": torch.int64,
    "I32": torch.int32,
}
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
PIECE = 1 << 24  # bytes of a file that are in memory at a time

Progress = Callable[[int, int], None]  # bytes read so far, bytes in all
Shapes = dict[str, tuple[int, ...]]


class Stored(NamedTuple):
    """Where a tensor lies."""

    file: Path
    dtype: str  # as safetensors writes it
    shape: tuple[int, ...]
    offset: int  # in the file
    size: int  # bytes


def stored_in(file: Path) -> dict[str, Stored]:
    """The header of a safetensors file: a length of 8 bytes, JSON, then the data.

    Raises ValueError where it is broken.
    """
    if is_lfs_pointer(file):
        raise ValueError(f"it {LFS_POINTER}")
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if not 2 <= length <= size - 8:
            raise ValueError(f"its header of {length} bytes does not fit a file of {size}")
        header = json.loads(opened.read(length))
    header.pop("__metadata__", None)
    found = {}
    for name, entry in header.items():
        (first, last), shape, dtype = entry["data_offsets"], tuple(entry["shape"]), entry["dtype"]
        wanted = (
            math.prod(shape) * STORED_AS[dtype].itemsize if dtype in STORED_AS else last - first
        )
        if not 0 <= first <= last <= size - 8 - length or wanted != last - first:
            raise ValueError(
                f"{name} {dtype}{list(shape)} lies at {first}..{last} "
                f"of {size - 8 - length} bytes of data"
            )
        found[name] = Stored(file, dtype, shape, 8 + length + first, last - first)
    return found


def tensors_in(file: Path) -> dict[str, Tensor]:
    """Every tensor of a file, as stored. Raises ValueError where it is broken."""
    stored, files = stored_in(file), _Files(0, None)
    return {name: files.view(one).clone() for name, one in stored.items()}


class Weights:
    """Checked tensors by name, below a prefix. At most PIECE bytes of a file are in memory besides.

    Every tensor it gives has aligned memory of its own: on a CPU a product's last bits depend on
    its operands' alignment.

    dtype, device: of what it gives
    """

    def __init__(
        self,
        stored: Mapping[str, Stored],
        *,
        dtype: torch.dtype,
        device: torch.device,
        progress: Progress | None = None,
    ) -> None:
        self.dtype, self.device = dtype, device
        self._files = _Files(sum(one.size for one in stored.values()), progress)
        self._stored, self._prefix = stored, ""

    def under(self, prefix: str) -> Weights:
        below = copy(self)
        below._prefix += prefix
        return below

    def __contains__(self, name: str) -> bool:
        return self._prefix + name in self._stored

    @property
    def folder(self) -> Path:
        return next(iter(self._stored.values())).file.parent

    def shape(self, name: str) -> tuple[int, ...]:
        return self._stored[self._prefix + name].shape

    def same(self, first: str, second: str) -> bool:
        """Whether two tensors are equal in the dtype of the model."""
        one, other = (
            self._files.view(self._stored[self._prefix + name]) for name in (first, second)
        )
        lines = max(1, PIECE // (one.element_size() * max(1, one[0].numel())))
        return all(
            torch.equal(mine.to(self.dtype), theirs.to(self.dtype))
            for mine, theirs in zip(one.split(lines), other.split(lines), strict=True)
        )

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """As it is stored, converted. dtype: another than the model's, for what must not be
        rounded.
        """
        out = torch.empty(self.shape(name), dtype=dtype or self.dtype, device=self.device)
        self.fill(out, name)
        return out

    def stacked(self, *names: str) -> Tensor:
        """One below another along dimension 0: a fused projection."""
        shapes = [self.shape(name) for name in names]
        out = torch.empty(
            sum(shape[0] for shape in shapes), *shapes[0][1:], dtype=self.dtype, device=self.device
        )
        for part, name in zip(out.split([shape[0] for shape in shapes]), names, strict=True):
            self.fill(part, name)
        return out

    def fill(
        self, out: Tensor, name: str, view: Callable[[Tensor], Tensor] = lambda whole: whole
    ) -> None:
        """Copies view(the stored tensor) into `out`, which has that shape, piece by piece."""
        one = self._stored[self._prefix + name]
        source = view(self._files.view(one))
        if not source.ndim:
            source, out = source[None], out[None]
        # bytes of the file in a line of the view
        spanned = max(1, math.prod(one.shape) * source.element_size() // max(1, len(source)))
        lines = max(1, PIECE // spanned)
        for some in range(0, len(source), lines):
            piece = source[some : some + lines]
            out[some : some + lines].copy_(piece)
            self._files.used(one, piece.numel() * piece.element_size())


class _Files:
    """Open mappings, and how much of them has been read."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._maps: dict[Path, mmap.mmap] = {}
        self._total, self._progress, self._done = total, progress, 0

    def view(self, one: Stored) -> Tensor:
        if not one.size:
            return torch.empty(one.shape, dtype=STORED_AS[one.dtype])
        if one.file not in self._maps:
            with one.file.open("rb") as opened:
                self._maps[one.file] = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_COPY)
        flat = torch.frombuffer(
            self._maps[one.file],
            dtype=STORED_AS[one.dtype],
            count=math.prod(one.shape),
            offset=one.offset,
        )
        return flat.view(one.shape)

    def used(self, one: Stored, size: int) -> None:
        """The pages stay the file's; without them in memory nothing is held twice."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._maps[one.file].madvise(mmap.MADV_DONTNEED)
        self._done += size
        if self._progress is not None:
            self._progress(self._done, self._total)
