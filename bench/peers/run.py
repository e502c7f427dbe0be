"""Peers' own kernels on the windows of `bench.ops.uniform_windows`, each in a process of its own
that imports nothing of this project.

Their packages bring a `triton_kernels` of their own, and none is a dependency here. `PEER_PYTHON`
names the interpreter of an environment that they are installed in (default: this one),
`PEER_SOURCE` a folder of unpacked sources to compile instead of installed ones. A peer that is
absent, of a version whose calls are not known, or without a GPU to time it on, is skipped with one
line.

`python -m bench.peers.run`: only whether the calls are right, by the sources below `PEER_SOURCE`,
in Triton's interpreter; no GPU needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from bench.ops.cases.seam import DTYPES
from bench.ops.cases.uniform import shapes
from bench.ops.registry import Shape
from bench.ops.uniform_windows import given
from bench.rows import Row, row_of, write_rows_to

PEERS = ("vllm-v1", "vllm-v2", "sglang-tail", "sglang-tree", "flashinfer")
PROCESS = Path(__file__).with_name("process.py")
PEER_S = 300  # seconds
COMPILED: Shape = {"slots": 4, "rows": 16, "vocab": 151_936, "dtype": "bf16"}


class Skipped(Exception):
    """Why, in one line."""


def write_windows(path: Path, chosen: Iterable[Shape]) -> Path:
    """A file of (shape, what a peer is given)."""
    torch.save(
        [
            (shape, given(shape["slots"], shape["vocab"], DTYPES[shape["dtype"]]))
            for shape in chosen
        ],
        path,
    )
    return path


def ask(peer: str, windows: Path, *options: str) -> dict[str, Any]:
    """What the peer's process says. Raises Skipped."""
    command = [
        os.environ.get("PEER_PYTHON") or sys.executable,
        "-P",
        str(PROCESS),
        peer,
        str(windows),
        *options,
    ]
    try:
        done = subprocess.run(
            command, cwd=windows.parent, capture_output=True, text=True, timeout=PEER_S, check=False
        )
    except OSError as wrong:
        raise Skipped(
            f"PEER_PYTHON is {command[0]}, expected an interpreter: {wrong.strerror}"
        ) from wrong
    except subprocess.TimeoutExpired as late:
        raise Skipped(f"it ran past {PEER_S} s") from late
    if done.returncode:
        raise Skipped((done.stderr.strip().splitlines() or ["no message"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def run(rows: Path) -> Iterator[str]:
    """A line a peer; what was timed is added to the file of rows."""
    with tempfile.TemporaryDirectory() as folder:
        windows = write_windows(Path(folder) / "windows.pt", shapes(torch.cuda.is_available()))
        for peer in PEERS:
            try:
                said = ask(peer, windows)
            except Skipped as why:
                yield f"peer {peer}: skipped, {why}"
                continue
            name = f"{peer} {said['version']}"
            made = [
                row_of({**entry, "implementation": name}, entry["seconds"])
                for entry in said["timed"]
            ]
            write_rows_to(rows, made)
            yield f"peer {name}: {len(made)} cases"


def compiled(rows_of: Callable[..., Iterable[Row]]) -> Iterator[tuple[str, list[Row]]]:
    """A line a peer, and its rows. rows_of: (operation, implementation, architecture, launches)
    to rows."""
    with tempfile.TemporaryDirectory() as folder:
        windows = write_windows(Path(folder) / "windows.pt", [COMPILED])
        source = os.environ.get("PEER_SOURCE")
        options = ("--source", str(Path(source).resolve())) if source else ()
        for peer in PEERS:
            try:
                said = ask(peer, windows, "--compile", *options)
            except Skipped as why:
                yield f"peer {peer}: not compiled, {why}", []
                continue
            name, entries = f"{peer} {said['version']}", said["compiled"]
            yield (
                f"peer {name}: compiled",
                [row for entry in entries for row in rows_of(implementation=name, **entry)],
            )


def checked(source: str) -> Iterator[str]:
    """A line a peer: its Triton kernels, cut out of a folder of sources and run in Triton's
    interpreter, against the oracle."""
    with tempfile.TemporaryDirectory() as folder:
        windows = write_windows(
            Path(folder) / "windows.pt",
            [{**COMPILED, "slots": slots, "rows": 4 * slots, "dtype": "fp32"} for slots in (1, 4)],
        )
        for peer in PEERS:
            try:
                said = ask(
                    peer,
                    windows,
                    "--device",
                    "cpu",
                    "--check-only",
                    "--source",
                    str(Path(source).resolve()),
                )
            except Skipped as why:
                yield f"peer {peer}: not checked, {why}"
                continue
            yield f"peer {peer} {said['version']}: {len(said['checked'])} outputs are the oracle's"


def main() -> int:
    if not (source := os.environ.get("PEER_SOURCE")):
        print(
            "error: PEER_SOURCE is not given, expected a folder of unpacked sources",
            file=sys.stderr,
        )
        return 2
    os.environ["TRITON_INTERPRET"] = "1"  # of the peers' processes
    lines = []
    for line in checked(source):
        lines.append(line)
        print(line, flush=True)
    return 1 if any("differs" in line for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
