"""Files that appear complete or not at all, and caches of them, on folders that several machines
may share."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from mtp.errors import say

T = TypeVar("T")


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


def remembered(file: Path, make: Callable[[], Mapping[str, Any]], read: Callable[[Any], T]) -> T:
    """What a JSON file of a cache holds; made where there is none, and where there is one that
    cannot be used, which one line on stderr names. Of several makers at once, the first one's
    counts. A cache that cannot be written costs no result.

    read: of the file's value; raises ValueError, TypeError or KeyError where it cannot be used
    """
    try:
        return _held(file, read)
    except FileNotFoundError:
        pass
    except UNUSABLE as wrong:
        why = " ".join(str(wrong).split())
        say(f"warning: {file} cannot be used ({why}), it is made again", sys.stderr)
    made = make()
    with contextlib.suppress(*UNUSABLE):
        return _held(file, read)  # somebody else was faster
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole(file) as aside:
            aside.write_text(json.dumps(made), encoding="utf-8")
    except OSError as fault:
        say(f"warning: {file} cannot be written ({fault.strerror}), nothing is kept", sys.stderr)
    return read(made)


UNUSABLE = (OSError, ValueError, TypeError, KeyError)


def _held(file: Path, read: Callable[[Any], T]) -> T:
    return read(json.loads(file.read_text(encoding="utf-8")))


@cache
def code_digest(*places: Path) -> str:
    """16 hex digits of the Python files there, folders with all below them: the version of what
    computes a value that is kept."""
    digest = hashlib.sha256()
    for place in places:
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(f"{file.relative_to(place.parent)}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


LFS_POINTER = "is a Git LFS pointer, expected the file itself: git lfs pull"


def is_lfs_pointer(path: Path) -> bool:
    """Whether a clone left a Git LFS pointer where the file should be."""
    try:
        with path.open("rb") as file:
            return file.read(30).startswith(b"version https://git-lfs")
    except OSError:
        return False
