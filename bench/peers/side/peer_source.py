"""Where a peer's functions come from: its installed package, or the Triton kernels and launchers
cut out of its source files.

A cut needs none of what the files import, so a peer's kernels can be compiled, or run in Triton's
interpreter, where the peer itself cannot be installed. The cut lies in a folder of the caller and
is never kept.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from peer_calls import Peer

HEAD = """from __future__ import annotations
import torch
import triton
import triton.language as tl
import triton.language.extra.libdevice as tldevice
"""


def version_of(peer: Peer) -> str:
    """The installed version. Raises LookupError, one line, where there is none or the calls are
    not known for it."""
    try:
        version = metadata.version(peer.distribution)
    except metadata.PackageNotFoundError as absent:
        raise LookupError(f"{peer.distribution} is not installed") from absent
    digits = tuple(int(part) for part in version.split("+")[0].split(".") if part.isdigit())
    if not peer.since <= digits < peer.below:
        known = f"{'.'.join(map(str, peer.since))} up to, without, {'.'.join(map(str, peer.below))}"
        raise LookupError(f"{peer.distribution} is {version}, its calls are known for {known}")
    return version


def imported(peer: Peer) -> Any:
    """The peer's own functions. Raises ImportError or AttributeError where it has them
    elsewhere."""
    found: dict[str, Any] = {}
    for part in peer.parts:
        module = importlib.import_module(part.file.removesuffix(".py").replace("/", "."))
        found |= {known: getattr(module, name) for known, name in part.names.items()}
    return SimpleNamespace(**found)


def root_of(peer: Peer, given: str) -> Path:
    """The folder that holds the peer's package. given: one to look in instead of the installed one,
    or "".

    Raises LookupError, one line, where its files are not there."""
    package = peer.triton[0].file.partition("/")[0]
    if not given:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise LookupError(f"{package} is not installed, and PEER_SOURCE is not given")
        given = str(Path(next(iter(spec.submodule_search_locations))).parent)
    missing = [part.file for part in peer.triton if not (Path(given) / part.file).is_file()]
    if missing:
        raise LookupError(f"there is no {missing[0]} below {given}")
    return Path(given)


def cut(peer: Peer, root: Path, folder: Path) -> tuple[Any, str]:
    """The peer's functions from the kernels and launchers of its source files, and a name of
    that source: a hash of the files."""
    pieces, digest = [HEAD], hashlib.sha256()
    for part in peer.triton:
        text = (root / part.file).read_text(encoding="utf-8")
        digest.update(text.encode())
        pieces += _kept(text, set(part.names.values()))
    name = f"cut_{digest.hexdigest()[:12]}"
    path = folder / f"{name}.py"
    path.write_text("\n\n".join(pieces), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for known, stand_in in (peer.stand_ins or {}).items():
        setattr(module, known, stand_in)
    names = {known: name for part in peer.triton for known, name in part.names.items()}
    return SimpleNamespace(
        **{known: getattr(module, name) for known, name in names.items()}
    ), f"source {digest.hexdigest()[:12]}"


def _kept(text: str, names: set[str]) -> Iterator[str]:
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            jitted = any(
                ast.unparse(decorator).startswith("triton.jit") for decorator in node.decorator_list
            )
            if jitted or node.name in names:
                first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
                yield "\n".join(lines[first - 1 : node.end_lineno])
        elif (
            isinstance(node, (ast.Assign, ast.AnnAssign))
            and node.value is not None
            and _constant(node.value)
        ):
            yield ast.unparse(node)


def _constant(value: ast.expr) -> bool:
    return not any(
        isinstance(part, ast.Name) and part.id != "tl" for part in ast.walk(value)
    ) and not any(
        isinstance(part, ast.Call) and not ast.unparse(part.func).startswith("tl.")
        for part in ast.walk(value)
    )
