"""Files that appear complete or not at all, on folders that several machines may share."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """The place to write to, beside `path`: it is renamed when all went well and removed when not.
    Its name is random, because process ids repeat among hosts and containers."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield aside
        aside.replace(path)
    except BaseException as fault:
        with contextlib.suppress(OSError):
            aside.unlink()
        if isinstance(fault, OSError) and fault.filename is None:
            fault.filename = str(path)  # a full disk is no file's fault, but one may want to know
        raise


LFS_POINTER = "is a Git LFS pointer, expected the file itself: git lfs pull"


def is_lfs_pointer(path: Path) -> bool:
    """Whether a clone left a Git LFS pointer where the file should be."""
    try:
        with path.open("rb") as file:
            return file.read(30).startswith(b"version https://git-lfs")
    except OSError:
        return False
