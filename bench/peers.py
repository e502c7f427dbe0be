"""Peers' own accept kernels, where they are installed: each in a process of its own that imports nothing of this project.

Their packages bring a `triton_kernels` of their own, and none is a dependency here. A peer that is absent, that finds no GPU, or whose
kernel is called otherwise than `bench/peer_process.py` knows, is skipped with one line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from bench import oracle
from bench.cases.seam import SLOTS_ROWS
from bench.recorded import recorded_window
from bench.rows import row_of, write_rows_to

PEERS = ("vllm", "sglang", "flashinfer")
PROCESS = Path(__file__).with_name("peer_process.py")
PEER_S = 300  # seconds


def uniform(slots: int, rows: int) -> dict[str, Any]:
    """A recorded window's slots as peers take them: every request has three drafts. picks: [slots, 4]; expected: tokens kept."""
    data = recorded_window(slots, rows, 2_048, torch.float32)
    kept, tokens, _, _ = oracle.accepted(data)
    fed = torch.cat([data.state.anchors[:, None], data.state.drafts], 1)
    picks = torch.cat([fed[:, 1:], torch.zeros(len(fed), 1, dtype=torch.int32)], 1)
    for slot, count in enumerate(kept):
        picks[slot, max(0, count - 1)] = tokens[slot][count - 1] if count else (fed[slot, 1] + 1) % 2_048
    agree = (picks[:, :-1] == fed[:, 1:]).int().cumprod(1).sum(1).tolist()
    return {"drafts": fed[:, 1:].contiguous(), "picks": picks, "expected": [picks[i, : n + 1].tolist() for i, n in enumerate(agree)]}


def run(rows: Path) -> Iterator[str]:
    """A line a peer; what was timed is added to the file of rows."""
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder) / "windows.pt"
        torch.save([({"slots": slots, "rows": 4 * slots}, uniform(slots, count)) for slots, count in SLOTS_ROWS], given)
        for peer in PEERS:
            yield _run(peer, given, rows)


def _run(peer: str, given: Path, rows: Path) -> str:
    command = [sys.executable, "-P", str(PROCESS), peer, str(given)]
    try:
        done = subprocess.run(command, cwd=given.parent, capture_output=True, text=True, timeout=PEER_S, check=False)
    except subprocess.TimeoutExpired:
        return f"peer {peer}: skipped, it ran past {PEER_S} s"
    if done.returncode:
        return f"peer {peer}: skipped, {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    said = json.loads(done.stdout.splitlines()[-1])
    made = [row_of({**entry, "implementation": f"{peer} {said['version']}"}, entry["seconds"]) for entry in said["timed"]]
    write_rows_to(rows, made)
    return f"peer {peer} {said['version']}: {len(made)} cases"
