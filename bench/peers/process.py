"""`process.py PEER WINDOWS`: a peer's own kernels on the windows of a file, checked, then timed by
graph replay.

Runs in a process of its own that imports torch, Triton and the peer, nothing of this project. The
last line of stdout is JSON: version, and what was timed. Exit code 1, and why as the last line of
stderr, where there is nothing to tell. --check-only: without times, also on a CPU. --compile:
instead, what the compiler makes of the peer's Triton kernels, from their source. --source DIR: take
that source, not the installed one's (with --check-only: the kernels cut out of it, in Triton's
interpreter).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).with_name("side")))
from peer_calls import PEERS, Peer
from peer_source import cut, imported, root_of, version_of

CALLS, REPLAYS = 64, 50
COMPILING = Path(__file__).parents[1] / "gpu" / "compiling.py"


def windows_of(path: str, device: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(shape, what a call is given on the device)."""
    for shape, given in torch.load(path):
        yield (
            shape,
            {
                name: value.to(device) if isinstance(value, torch.Tensor) else value
                for name, value in given.items()
            },
        )


def checked(
    peer: Peer, source: Any, windows: str, device: str
) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], Callable[[], Any]]]:
    """(operation, shape, given, call) whose first output was right."""
    for shape, given in windows_of(windows, device):
        for operation, call in peer.calls.items():
            run, read = call(source, given)
            run()
            found = read()
            if found != given[operation]:
                sys.exit(
                    f"the output of its {operation} differs from the oracle's at {shape}: {found}, "
                    f"expected {given[operation]}"
                )
            yield operation, shape, given, run


def seconds_of(run: Callable[[], Any]) -> list[float]:
    """Of one call, of every replay of a graph of many."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            run()
    times = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / CALLS)
    return times


def timed(peer: Peer, source: Any, windows: str) -> list[dict[str, Any]]:
    entries = []
    for operation, shape, given, run in checked(peer, source, windows, "cuda"):
        entry = {
            "operation": operation,
            "shape": shape,
            "mode": "graph",
            "bytes": given["logits"].nbytes,
            "per": 1,
        }
        entries.append({**entry, "seconds": seconds_of(run)})
    return entries


def compiled(peer: Peer, source: Any, windows: str) -> list[dict[str, Any]]:
    """The launches of every operation on every architecture, on the first window."""
    spec = importlib.util.spec_from_file_location("compiling", COMPILING)
    assert spec is not None
    assert spec.loader is not None
    compiling = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = compiling  # its dataclasses look themselves up
    spec.loader.exec_module(compiling)
    found = []
    for operation, call in peer.calls.items():
        for architecture in compiling.ARCHITECTURES:
            _, given = next(windows_of(windows, "cpu"))
            found.append(
                {"operation": operation, **compiling.compiled(call(source, given)[0], architecture)}
            )
    return found


def without_this_project() -> None:
    """Where this project is installed in the peer's environment, a package of the peer's may
    have the name of one of ours."""
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if "mtplab" not in getattr(finder, "__module__", "")
    ]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("peer", choices=PEERS)
    options.add_argument("windows")
    options.add_argument("--device", default="cuda")
    options.add_argument("--check-only", action="store_true")
    options.add_argument("--compile", action="store_true")
    options.add_argument("--source", default="")
    chosen = options.parse_args()
    peer = PEERS[chosen.peer]
    without_this_project()
    with tempfile.TemporaryDirectory() as folder:
        try:
            if (chosen.compile or chosen.source) and not peer.triton:
                raise LookupError("it has no Triton kernels")
            if chosen.compile or chosen.source:
                source, version = cut(peer, root_of(peer, chosen.source), Path(folder))
            else:
                version = version_of(peer)
                if chosen.device == "cuda" and not torch.cuda.is_available():
                    raise LookupError("there is no GPU")
                source = imported(peer)
        except (LookupError, ImportError, AttributeError) as wanting:
            sys.exit(str(wanting.args[0]))
        said: dict[str, Any] = {"version": version}
        if chosen.compile:
            said["compiled"] = compiled(peer, source, chosen.windows)
        elif chosen.check_only:
            said["checked"] = [
                [operation, shape]
                for operation, shape, *_ in checked(peer, source, chosen.windows, chosen.device)
            ]
        else:
            said["timed"] = timed(peer, source, chosen.windows)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
