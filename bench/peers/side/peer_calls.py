"""How peers are called: each on a window in which every request has the same number of drafts
(`bench.ops.uniform_windows.given`). Imports torch alone.

Read in, and known for, the versions that `PEERS` names. A call gets the peer's own functions
(`source`) and the window; it gives what is run again and again, and how to read what the first run
found: `verify` the tokens kept by request, `next_window` its ids and positions. Whatever turns
logits into picks is inside the call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Given = Mapping[str, Any]
Run = tuple[Callable[[], Any], Callable[[], list[list[int]]]]
Call = Callable[[Any, Given], Run]
# tokens that a peer's table of all ids has room for: more than any timing commits
LONGEST = 1 << 16


def _starts(count: int, width: int, device: torch.device) -> Tensor:
    return torch.arange(count + 1, dtype=torch.int32, device=device) * width


def _cut(tokens: Tensor, counts: list[int]) -> list[list[int]]:
    return [row[:count] for row, count in zip(tokens.tolist(), counts, strict=True)]


def vllm_v1(source: Any, given: Given) -> Run:
    """Rows of drafts and of bonuses are taken out of the logits, each is picked, the kernel
    walks the drafts."""
    logits, fed = given["logits"], given["fed"]
    (count, width), device = fed.shape, fed.device
    place = torch.arange(count * width, device=device).view(count, width)
    drafted, last = place[:, :-1].flatten(), place[:, -1].contiguous()
    drafts, ends = (
        fed[:, 1:].flatten().contiguous(),
        _starts(count, width - 1, device)[1:].contiguous(),
    )
    out = torch.empty(count, width, dtype=torch.int32, device=device)

    def run() -> None:
        out.fill_(-1)
        bonus = logits[last].argmax(-1, keepdim=True)
        target = logits[drafted].argmax(-1)
        source.rejection_greedy_sample_kernel[(count,)](
            out, ends, drafts, target, bonus, None, width - 1, None, None, SYNTHETIC_MODE=False
        )

    return run, lambda: [[token for token in row if token >= 0] for row in out.tolist()]


class _V2:
    """The tables that V2's runner keeps by request, all of whose prompts are over."""

    def __init__(self, given: Given) -> None:
        self.logits, fed = given["logits"], given["fed"]
        (self.count, self.width), device = fed.shape, fed.device
        zeros = torch.zeros(self.count, dtype=torch.int32, device=device)
        self.index = torch.arange(self.count, device=device)  # batch to request
        self.starts = _starts(self.count, self.width, device)
        self.ids, self.computed = fed.flatten().clone(), given["positions"].clone()
        place = torch.arange(self.width, dtype=torch.int32, device=device)
        self.local = place.repeat(self.count)
        self.owner = self.index.repeat_interleave(self.width)
        self.positions = (self.computed[:, None] + place).flatten().long()
        self.lengths, self.prompts, self.total = (
            self.computed + self.width,
            zeros,
            self.computed + 1,
        )
        self.rows = torch.arange(self.count * self.width, device=device)
        self.temperature, self.seeds = zeros.float(), zeros.long()
        self.drafts = given["proposals"].long()
        self.last = fed[:, :1].long().contiguous()
        self.all_ids = torch.zeros(self.count, LONGEST, dtype=torch.int32, device=device)

    def accept(self, source: Any) -> tuple[Tensor, Tensor]:
        fed, places = self.ids[self.rows], self.positions[self.rows]
        indices = (self.starts, places, self.index, self.owner, self.local)
        return source.rejection_sample(
            self.logits, None, fed, *indices, self.temperature, self.seeds, self.width - 1
        )


def vllm_v2_verify(source: Any, given: Given) -> Run:
    tables = _V2(given)
    found: list[Tensor] = []

    def run() -> None:
        found[:] = tables.accept(source)

    return run, lambda: _cut(found[0], found[1].tolist())


def vllm_v2_next_window(source: Any, given: Given) -> Run:
    """Accept, commit, and pack of what the tables then hold, as V2's runner does between two
    forwards."""
    t = _V2(given)

    def run() -> None:
        sampled, kept = t.accept(source)
        kept, rejected = source.get_num_sampled_and_rejected(
            kept, t.lengths, t.starts, t.index, t.prompts
        )
        source.post_update(
            t.index, t.computed, t.last, None, sampled, kept, rejected, t.starts, t.all_ids, t.total
        )
        t.owner, t.local = source.expand_idx_mapping(t.index, t.count * t.width, t.starts, t.width)
        source.prepare_pos_seq_lens(t.index, t.starts, t.computed, t.positions, t.lengths)
        t.rows = source.combine_sampled_and_draft_tokens(
            t.ids,
            t.index,
            t.last,
            t.starts,
            t.lengths,
            t.prompts,
            t.drafts,
            t.starts,
            t.count * t.width,
        )

    return run, lambda: [t.ids.tolist(), t.positions.tolist()]


def sglang_tail(source: Any, given: Given) -> Run:
    """Picks, then the accept and its bookkeeping in one launch."""
    logits, candidates = given["logits"], given["fed"].long()
    count, width = candidates.shape

    def table(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=candidates.device)

    correct, tokens = table(count), table(count, width)
    outputs = {
        "correct_len_out": correct,
        "bonus_out": table(count),
        "out_tokens_out": tokens,
        "new_seq_lens_out": table(count),
    }
    outputs |= {
        name: table(count, dtype=torch.int32) for name in ("cap_trim_lens_out", "commit_lens_out")
    }
    lengths, widths, gate = (
        given["positions"].long() + 1,
        table(count) + width,
        table(1, dtype=torch.int32),
    )

    def run() -> None:
        source.static_accept_tail(
            candidates=candidates,
            target_predict=logits.argmax(-1),
            seq_lens=lengths,
            verify_lens=widths,
            gate=gate,
            **outputs,
        )

    return run, lambda: _cut(tokens, [count + 1 for count in correct.tolist()])


def sglang_tree(source: Any, given: Given) -> Run:
    """Picks, then the greedy verification of trees, here chains."""
    logits, candidates = given["logits"], given["fed"].long()
    (count, width), device = candidates.shape, candidates.device
    row = torch.arange(count * width, device=device).view(count, width)
    following = torch.where(row % width < width - 1, row % width + 1, -1)
    siblings = torch.full_like(row, -1)
    predicted = torch.empty(count * width, dtype=torch.int32, device=device)
    index = torch.empty(count, width, dtype=torch.int32, device=device)
    accepted = torch.empty(count, dtype=torch.int32, device=device)

    def run() -> None:
        predicted.zero_()
        index.fill_(-1)
        target = logits.argmax(-1).view(count, width)
        source.verify_tree(predicted, index, accepted, candidates, row, following, siblings, target)

    def read() -> list[list[int]]:
        chosen = predicted.tolist()
        return [
            [chosen[i] for i in kept[: n + 1]]
            for kept, n in zip(index.tolist(), accepted.tolist(), strict=True)
        ]

    return run, read


def flashinfer(source: Any, given: Given) -> Run:
    """Picks made probabilities of 0 and 1, then chain sampling."""
    logits, fed = given["logits"], given["fed"]
    (count, width), vocab, device = fed.shape, logits.shape[1], fed.device
    drafts = fed[:, 1:].contiguous()
    proposed = torch.zeros(count, width - 1, vocab, device=device).scatter_(
        2, drafts[..., None].long(), 1.0
    )
    wanted = torch.empty(count * width, vocab, device=device)
    found: list[Tensor] = []
    # a capture needs tensors
    fixed = {name: torch.zeros(1, dtype=torch.int64, device=device) for name in ("seed", "offset")}

    def run() -> None:
        wanted.zero_().scatter_(1, logits.argmax(-1, keepdim=True), 1.0)
        found[:] = source.chain_speculative_sampling(
            proposed, drafts, wanted.view(count, width, vocab), **fixed
        )

    return run, lambda: [[token for token in row if token >= 0] for row in found[0].tolist()]


@dataclass(frozen=True)
class SourcePart:
    """names: the functions that a call takes from a file of the peer, by the names that it knows
    them by."""

    file: str
    names: Mapping[str, str]


@dataclass(frozen=True)
class Peer:
    """distribution: whose version counts; since, below: the versions that the calls are known for.

    parts: imported where the peer is installed; triton: files whose Triton kernels, and the
    functions named, are compiled from source (none: it is CUDA or C++); stand_ins: names that those
    functions take from files that are not read.
    """

    distribution: str
    since: tuple[int, ...]
    below: tuple[int, ...]
    parts: tuple[SourcePart, ...]
    calls: Mapping[str, Call]
    triton: tuple[SourcePart, ...] = ()
    stand_ins: Mapping[str, Any] | None = None


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_V1 = SourcePart("vllm/v1/sample/rejection_sampler.py", _same("rejection_greedy_sample_kernel"))
_ACCEPT = SourcePart(
    "vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py", _same("rejection_sample")
)
_BATCH = SourcePart(
    "vllm/v1/worker/gpu/input_batch.py",
    _same(
        "get_num_sampled_and_rejected",
        "post_update",
        "expand_idx_mapping",
        "prepare_pos_seq_lens",
        "combine_sampled_and_draft_tokens",
    ),
)
_NOISE = (
    SourcePart("vllm/v1/worker/gpu/sample/gumbel.py", {}),
    SourcePart("vllm/v1/worker/gpu/sample/watermark.py", {}),
)
_TAIL = SourcePart(
    "sglang/kernels/ops/speculative/dspark/static_accept_tail.py",
    _same("static_accept_tail", "_static_accept_tail_triton"),
)
_TREE = SourcePart("sglang/kernels/ops/speculative/tree.py", {"verify_tree": "verify_tree_greedy"})
_TREE_TRITON = SourcePart(
    "sglang/kernels/ops/speculative/spec_tree.py", {"verify_tree": "verify_tree_greedy_triton"}
)
_CHAIN = SourcePart("flashinfer/sampling.py", _same("chain_speculative_sampling"))
_VLLM: tuple[str, tuple[int, ...], tuple[int, ...]] = ("vllm", (0, 33), (0, 34))
_SGLANG: tuple[str, tuple[int, ...], tuple[int, ...]] = ("sglang", (0, 5, 23), (0, 5, 24))

PEERS: dict[str, Peer] = {
    "vllm-v1": Peer(*_VLLM, (_V1,), {"verify": vllm_v1}, (_V1,)),
    "vllm-v2": Peer(
        *_VLLM,
        (_ACCEPT, _BATCH),
        {"verify": vllm_v2_verify, "next_window": vllm_v2_next_window},
        (*_NOISE, _ACCEPT, _BATCH),
    ),
    "sglang-tail": Peer(
        *_SGLANG,
        (_TAIL,),
        {"verify": sglang_tail},
        (_TAIL,),
        stand_ins={"inputs_on_cuda": lambda *_, **__: True},
    ),
    "sglang-tree": Peer(*_SGLANG, (_TREE,), {"verify": sglang_tree}, (_TREE_TRITON,)),
    "flashinfer": Peer("flashinfer-python", (0, 7), (0, 8), (_CHAIN,), {"verify": flashinfer}),
}
