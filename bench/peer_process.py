"""`peer_process.py PEER WINDOWS`: one peer's greedy accept of three drafts a request, checked, then timed by graph replay.

Imports torch and the peer, nothing of this project. The last line of stdout is JSON: version, and timed cases. Exit code 1, and why as
the last line of stderr, where there is nothing to time. Not yet run beside an installed peer: its calls may need mending there; one
that fails is a line, never a wrong figure.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

CALLS, REPLAYS = 64, 50
Run = Callable[[], Any]
Peer = Callable[[Tensor, Tensor], tuple[Run, Callable[[], list[list[int]]]]]  # (drafts, picks) -> the call, and the tokens it kept


def vllm(drafts: Tensor, picks: Tensor) -> tuple[Run, Callable[[], list[list[int]]]]:
    """V1's greedy rejection kernel. The bonus has been picked before it."""
    from vllm.v1.sample.rejection_sampler import rejection_greedy_sample_kernel

    count, depth = drafts.shape
    out = torch.full((count, depth + 1), -1, dtype=torch.int32, device=drafts.device)
    ends = torch.arange(1, count + 1, dtype=torch.int32, device=drafts.device) * depth
    flat, target, bonus = drafts.flatten(), picks[:, :depth].flatten().long(), picks[:, depth:].contiguous()

    def call() -> None:
        rejection_greedy_sample_kernel[(count,)](out, ends, flat, target, bonus, None, depth)

    return call, lambda: [[token for token in row if token >= 0] for row in out.tolist()]


def sglang(drafts: Tensor, picks: Tensor) -> tuple[Run, Callable[[], list[list[int]]]]:
    """The greedy tree verification, on chains."""
    from sgl_kernel import verify_tree_greedy

    count, depth = drafts.shape
    device, width = drafts.device, depth + 1
    place = torch.arange(width, device=device)
    row = torch.arange(count * width, device=device).view(count, width)
    following = torch.where(place < depth, place + 1, -1).expand(count, width).contiguous()
    siblings = torch.full_like(following, -1)
    candidates = torch.cat([torch.zeros_like(drafts[:, :1]), drafts], 1).long()
    predicted = torch.full((count * width,), -1, dtype=torch.int32, device=device)
    index = torch.full((count, width), -1, dtype=torch.int32, device=device)
    accepted = torch.zeros(count, dtype=torch.int32, device=device)
    target = picks.long()

    def call() -> None:
        verify_tree_greedy(predicted, index, accepted, candidates, row, following, siblings, target)

    def read() -> list[list[int]]:
        chosen = predicted.tolist()
        return [[chosen[i] for i in kept[: n + 1]] for kept, n in zip(index.tolist(), accepted.tolist(), strict=True)]

    return call, read


def flashinfer(drafts: Tensor, picks: Tensor) -> tuple[Run, Callable[[], list[list[int]]]]:
    """Chain sampling with probabilities of 0 and 1."""
    from flashinfer.sampling import chain_speculative_sampling

    vocab = int(max(drafts.max(), picks.max())) + 1
    proposed, wanted = (torch.nn.functional.one_hot(ids.long(), vocab).float() for ids in (drafts, picks))
    found: list[Tensor] = []

    def call() -> None:
        found[:] = chain_speculative_sampling(proposed, drafts, wanted)

    return call, lambda: [[token for token in row if token >= 0] for row in found[0].tolist()]


PEERS: dict[str, tuple[str, Peer]] = {"vllm": ("vllm", vllm), "sglang": ("sgl_kernel", sglang), "flashinfer": ("flashinfer", flashinfer)}
PACKAGES = {"vllm": "vllm", "sglang": "sgl-kernel", "flashinfer": "flashinfer-python"}


def seconds_of(call: Run) -> list[float]:
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    times = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3 / CALLS)
    return times


def main(name: str, windows: str) -> None:
    module, peer = PEERS[name]
    try:
        __import__(module)
    except ImportError as absent:
        sys.exit(f"it is not installed ({absent})")
    if not torch.cuda.is_available():
        sys.exit("there is no GPU")
    timed = []
    for shape, given in torch.load(windows):
        drafts, picks = given["drafts"].cuda(), given["picks"].cuda()
        call, read = peer(drafts, picks)
        call()
        if read() != given["expected"]:
            sys.exit(f"its output differs from the oracle's at {shape}")
        entry = {"operation": "accept", "shape": shape, "mode": "graph", "bytes": drafts.nbytes + picks.nbytes, "per": 1}
        timed.append({**entry, "seconds": seconds_of(call)})
    print(json.dumps({"version": metadata.version(PACKAGES[name]), "timed": timed}))


if __name__ == "__main__":
    main(*sys.argv[1:])
