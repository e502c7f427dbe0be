"""The model executor: pack, verify, picks, accept, commit, draft - on tensors, with one device-to-host copy a window."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mtp.commit import Committed
from mtp.commit import Finish as CommitFinish
from mtp.drafters.protocol import Drafter
from mtp.execution.buckets import Buckets
from mtp.execution.buffers import Buffers
from mtp.execution.protocol import Outcome, Timing, stops_of
from mtp.request import Request
from mtp.targets.protocol import Target
from mtp.windows import Group
from triton_kernels import Accepted, Packed, accept_prefix, pack_window, row_argmax
from triton_kernels.accept import ERROR, LENGTH, RUNNING, STOP

FINISH: dict[int, CommitFinish | None] = {RUNNING: None, STOP: "stop", LENGTH: "length", ERROR: "error"}
NUMERIC_ERROR = "numeric error: a row of the target's logits holds a NaN or nothing above -inf"


class Verified(NamedTuple):
    window: Packed
    picks: Tensor  # [bucket] int32
    accepted: Accepted
    hidden: Tensor  # [bucket, hidden]


class ModelExecutor:
    """One target, one drafter (None: plain decoding), one set of slots.

    largest_group: most rows a policy gives a slot; depth: most drafts made at once; buckets: row counts that windows are
    rounded up to.
    """

    def __init__(
        self, target: Target, drafter: Drafter | None, *, slots: int, largest_group: int, depth: int, buckets: Buckets, device: torch.device
    ) -> None:
        if drafter is not None and depth > drafter.max_depth:
            raise ValueError(f"draft depth is {depth}, expected at most {drafter.max_depth} (this drafter)")
        self.target, self.drafter = target, drafter
        self.limits = target.limits
        self.max_depth = depth if drafter is not None else 0
        self.buckets = buckets
        self.buffers = Buffers(slots, depth=max(largest_group - 1, depth), device=device)
        self.timing = Timing()
        self._width = largest_group
        self._prompts: dict[int, Tensor] = {}  # by slot
        self._banning: set[int] = set()  # slots whose stop ids may be banned
        self._device = device

    # ---- slots

    def check(self, request: Request) -> None:
        stops = stops_of(request, self.limits)
        if len(stops) > self.buffers.max_stop_ids:
            raise ValueError(f"request {request.id}: {len(stops)} stop ids, expected at most {self.buffers.max_stop_ids}")

    def admit(self, slot: int, request: Request) -> None:
        self.release(slot)
        self.buffers.admit(slot, request, self.limits)
        self._prompts[slot] = torch.tensor(request.prompt, dtype=torch.int32, device=self._device)
        if request.min_new_tokens > 0:
            self._banning.add(slot)

    def release(self, slot: int) -> None:
        self.buffers.clear(slot)
        self.target.clear(slot)
        if self.drafter is not None:
            self.drafter.clear(slot)
        self._prompts.pop(slot, None)
        self._banning.discard(slot)

    # ---- steps

    @torch.inference_mode()
    def prefill(self, slot: int, start: int, stop: int, depth: int) -> Outcome | None:
        """A chunk of the prompt; the last one is closed like a window of one row: the last prompt token."""
        begin_s = self._clock()
        prompt = self._prompts[slot]
        logits, hidden = self.target.prefill(slot, prompt[start:stop], start)
        last = stop == len(prompt)
        if self.drafter is not None:  # entry i needs token i + 1: the last row's is not known before its pick
            fed = stop - start - int(last)
            self.drafter.prefill(slot, prompt[start : start + fed + 1], hidden[:fed], start)
        if not last:
            self.timing = Timing(verify=self._clock() - begin_s)
            return None
        self.buffers.anchors[slot] = prompt[-1]
        self.buffers.positions[slot] = stop - 1
        self.buffers.stage({slot: 1})
        b = self.buffers
        window = pack_window(b.anchors, b.drafts, b.positions, b.group_rows, bucket=self.buckets.round_up(1))
        spread = torch.zeros(window.ids.shape[0], hidden.shape[1], dtype=hidden.dtype, device=hidden.device)
        spread[0] = hidden[-1]
        verified = self._pick(window, logits.expand(window.ids.shape[0], -1), spread)
        return self._close([Group(slot, 1)], verified, depth, begin_s, prefilled=True)[0]

    @torch.inference_mode()
    def window(self, groups: Sequence[Group], depth: int) -> Sequence[Outcome]:
        begin_s = self._clock()
        b = self.buffers
        b.stage({group.slot: group.rows for group in groups})
        bucket = self.buckets.round_up(sum(group.rows for group in groups))
        window = pack_window(b.anchors, b.drafts, b.positions, b.group_rows, bucket=bucket)
        verified = self._pick(window, *self.target.verify(window))
        return self._close(groups, verified, depth, begin_s)

    def _pick(self, window: Packed, logits: Tensor, hidden: Tensor) -> Verified:
        picks = row_argmax(logits, vocab=self.limits.vocab, **self._bans(window))
        b = self.buffers
        accepted = accept_prefix(
            picks.ids,
            picks.faults,
            window.ids,
            window.starts,
            b.anchors,
            b.positions,
            b.produced,
            b.max_new,
            b.context,
            b.min_new,
            b.stop_ids,
            b.stop_counts,
            width=self._width,
        )
        return Verified(window, picks.ids, accepted, hidden)

    def _bans(self, window: Packed) -> dict[str, Tensor]:
        """Stop ids cannot be picked in a row whose output number is below the slot's minimum."""
        if not self._banning:
            return {}
        b = self.buffers
        early = b.produced[window.slots] + window.group_index < b.min_new[window.slots]
        return {"banned": b.stop_ids[window.slots], "banned_counts": torch.where(early, b.stop_counts[window.slots], 0).int()}

    def _close(self, groups: Sequence[Group], verified: Verified, depth: int, begin_s: float, prefilled: bool = False) -> list[Outcome]:
        """Commit target and drafter, draft, and read the results: everything of a slot moves here, together."""
        verified_s = self._clock()
        accepted, b = verified.accepted, self.buffers
        if not prefilled:
            self.target.commit(verified.window, accepted.kept)
        b.move(accepted)
        held = torch.zeros_like(accepted.kept)
        confidence = torch.zeros(b.slots, depth, device=self._device)
        if self.drafter is not None:
            # the entry before the anchor's position is the last one fed; past its own context a drafter is not asked
            room = self.drafter.context - b.positions + 1
            fed = torch.where(room > 0, accepted.kept, 0)
            drafts, confidence, counts = self.drafter.advance(verified.window, fed, verified.picks, verified.hidden, depth)
            held = torch.where((fed > 0) & (accepted.finish == RUNNING), torch.minimum(counts, room), 0).int()
            b.hold(accepted.kept, drafts, held)
        numbers = torch.stack([accepted.kept, accepted.finish, held], 1)  # [slots, 3]
        rows = torch.cat([numbers, accepted.tokens, confidence.view(torch.int32)], 1).cpu()  # the one device-to-host copy
        self.timing = Timing(
            verify=verified_s - begin_s,
            commit_and_draft=self._clock() - verified_s,
            padded=0 if prefilled else verified.window.ids.shape[0] - sum(group.rows for group in groups),
        )
        floats = rows[:, 3 + self._width :].view(torch.float32)
        return [_outcome(slot, rows[slot].tolist(), floats[slot].tolist()) for slot in (group.slot for group in groups)]

    # ---- time

    def now(self) -> float:
        return time.perf_counter()

    def wait_until(self, time_s: float) -> None:
        time.sleep(max(0.0, time_s - time.perf_counter()))

    def _clock(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


def _outcome(slot: int, row: list[int], confidence: list[float]) -> Outcome:
    kept, finish, held = row[:3]
    committed = Committed(tuple(row[3 : 3 + kept]), kept, max(0, kept - 1), FINISH[finish])
    return Outcome(slot, committed, held, tuple(confidence[:held]), NUMERIC_ERROR if finish == ERROR else None)
