"""The model executor: pack, verify, picks, accept, commit, draft - on tensors, with one
device-to-host copy a window."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mtp.buckets import Buckets
from mtp.commit import Committed
from mtp.commit import Finish as CommitFinish
from mtp.drafters.protocol import Drafted, Drafter
from mtp.execution.bit_equal import fewest_rows
from mtp.execution.buffers import Buffers, copy_into
from mtp.execution.drafter_guard import DrafterGuard
from mtp.executor import Outcome, stops_of
from mtp.graphs.capture import capturing
from mtp.profiling import profiled
from mtp.request import Request
from mtp.targets.protocol import Target
from mtp.windows import Group
from triton_kernels import Packed, accept_prefix, pack_window, row_argmax
from triton_kernels.accept import ERROR, LENGTH, RUNNING, STOP
from triton_kernels.argmax import Picks

FINISH: dict[int, CommitFinish | None] = {
    RUNNING: None,
    STOP: "stop",
    LENGTH: "length",
    ERROR: "error",
}
NUMERIC_ERROR = "numeric error: a row of the target's logits holds a NaN or nothing above -inf"


class ModelExecutor:
    """One target, one drafter, one set of slots."""

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,  # None: plain decoding
        *,
        slots: int,
        rows: int = 8,  # of a window
        largest_group: int,  # most rows a policy gives a slot
        depth: int,  # most drafts made at once
        buckets: Buckets,  # row counts that windows are rounded up to
        device: torch.device,
        reload_drafter: Callable[[], Drafter] | None = None,  # another one, bound, when one fails
    ) -> None:
        if drafter is not None and depth > drafter.max_depth:
            raise ValueError(
                f"draft depth is {depth}, expected at most {drafter.max_depth} (this drafter)"
            )
        self.target = target
        self.drafting = DrafterGuard(drafter, reload_drafter)
        self.limits = target.limits
        self.max_depth = depth if drafter is not None else 0
        self.buckets = buckets
        self._fewest = fewest_rows(target) if buckets.tight else 1
        self.buffers = Buffers(
            slots,
            depth=depth,
            largest_group=largest_group,
            rows=self.bucket(rows),
            hidden=target.hidden_size,
            dtype=target.dtype,
            device=device,
        )
        self._prompts: dict[int, Tensor] = {}  # by slot
        self._banning: set[int] = set()  # slots whose stop ids may be banned
        self._device = device

    def bucket(self, rows: int) -> int:
        """Rows of a window of `rows` rows with its padding."""
        return max(self._fewest, self.buckets.round_up(rows))

    # ---- slots

    def check(self, request: Request) -> None:
        stops = stops_of(request, self.limits)
        for name, value in (
            ("max_new_tokens", request.max_new_tokens),
            *(("stop id", stop) for stop in stops),
        ):
            if not 0 <= value < 2**31:
                raise ValueError(
                    f"request {request.id}: {name} is {value}, expected 0 to {2**31 - 1}"
                )
        if len(stops) > self.buffers.max_stop_ids:
            raise ValueError(
                f"request {request.id}: {len(stops)} stop ids, "
                f"expected at most {self.buffers.max_stop_ids}"
            )

    def admit(self, slot: int, request: Request) -> None:
        self.release(slot)
        self.drafting.admit(slot)
        self.buffers.admit(slot, request, self.limits)
        self._hold_none_where_ended()
        self._prompts[slot] = torch.tensor(request.prompt, dtype=torch.int32, device=self._device)
        if request.min_new_tokens > 0:
            self._banning.add(slot)

    def release(self, slot: int) -> None:
        self.buffers.clear(slot)
        self.target.clear(slot)
        self.drafting.release(slot)
        self._prompts.pop(slot, None)
        self._banning.discard(slot)

    # ---- steps

    @torch.inference_mode()
    def prefill(self, slot: int, start: int, stop: int, depth: int) -> Outcome | None:
        """A chunk of the prompt; the last one ends like a window of one row: the last prompt
        token."""
        prompt, b = self._prompts[slot], self.buffers
        logits, hidden = self.target.prefill(slot, prompt[start:stop], start)
        last = stop == len(prompt)
        # entry i needs token i + 1: the last row's is not known before its pick
        fed = stop - start - int(last)
        text = prompt[start : start + fed + 1]
        self.drafting.call(
            lambda drafter: drafter.prefill(slot, text, hidden[:fed], start), slot=slot
        )
        self._hold_none_where_ended()
        if not last:
            return None
        b.anchors[slot] = prompt[-1]
        b.positions[slot] = stop - 1
        b.stage({slot: 1})
        bucket = self.bucket(1)
        self._pack(bucket)
        b.hidden(bucket)[0] = hidden[-1]
        self._accept(bucket, self._pick(bucket, logits.expand(bucket, -1), bool(self._banning)))
        b.move()
        self._draft_and_report(bucket, depth)
        return self.outcomes([Group(slot, 1)], depth)[0]

    @profiled("stage")
    def window(self, groups: Sequence[Group], depth: int) -> ModelWindow:
        self.buffers.stage({group.slot: group.rows for group in groups})
        return ModelWindow(self, groups, depth, bans=bool(self._banning))

    # ---- the two phases of a window: device data in, device data out, nothing read by the host

    @torch.inference_mode()
    def verify(self, bucket: int, bans: bool) -> None:
        """Pack, target forward, picks, accept. Changes no committed state."""
        self._pack(bucket)
        self._accept(bucket, self._pick(bucket, self._forward(bucket), bans))

    @torch.inference_mode()
    def commit(self, bucket: int, depth: int) -> None:
        """Keep rows, draft: everything of a slot moves here, together."""
        self._keep(bucket)
        self._draft_and_report(bucket, depth)

    @profiled("pack")
    def _pack(self, bucket: int) -> None:
        b = self.buffers
        copy_into(
            b.window(bucket),
            pack_window(b.anchors, b.drafts, b.positions, b.group_rows, bucket=bucket),
        )

    @profiled("verify")
    def _forward(self, bucket: int) -> Tensor:
        logits, hidden = self.target.verify(self.buffers.window(bucket))
        self.buffers.hidden(bucket).copy_(hidden)
        return logits

    @profiled("picks")
    def _pick(self, bucket: int, logits: Tensor, bans: bool) -> Picks:
        picks = row_argmax(logits, vocab=self.limits.vocab, **(self._bans(bucket) if bans else {}))
        self.buffers.picks(bucket).copy_(picks.ids)
        return picks

    @profiled("accept")
    def _accept(self, bucket: int, picks: Picks) -> None:
        b = self.buffers
        window = b.window(bucket)
        limits = (b.produced, b.max_new, b.context, b.min_new, b.stop_ids, b.stop_counts)
        accepted = accept_prefix(
            picks.ids,
            picks.faults,
            window.ids,
            window.starts,
            b.anchors,
            b.positions,
            *limits,
            width=b.width,
        )
        copy_into(b.accepted, accepted)

    def _bans(self, bucket: int) -> dict[str, Tensor]:
        """Stop ids cannot be picked in a row whose output number is below the slot's minimum."""
        b = self.buffers
        window = b.window(bucket)
        early = b.produced[window.slots] + window.group_index < b.min_new[window.slots]
        return {
            "banned": b.stop_ids[window.slots],
            "banned_counts": torch.where(early, b.stop_counts[window.slots], 0).int(),
        }

    @profiled("commit")
    def _keep(self, bucket: int) -> None:
        self.target.commit(self.buffers.window(bucket), self.buffers.accepted.kept)
        self.buffers.move()

    @profiled("draft")
    def _draft_and_report(self, bucket: int, depth: int) -> None:
        """The drafter is fed and chains, and the results are laid out for the host."""
        b = self.buffers
        b.report(
            *self.draft(
                b.window(bucket), b.accepted.kept, b.accepted.finish, b.picks(bucket), depth
            )
        )

    def draft(
        self, window: Packed, kept: Tensor, finish: Tensor, picks: Tensor, depth: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The drafter is fed the kept rows and chains; gives held [slots], drafts and confidence
        [slots, depth], as the slots hold them now."""
        b = self.buffers
        held = torch.zeros_like(kept)
        drafts = torch.zeros(b.slots, depth, dtype=torch.int32, device=self._device)
        confidence = torch.zeros(b.slots, depth, device=self._device)

        def advance(drafter: Drafter) -> tuple[Tensor, Drafted]:
            # the entry before the anchor's position is the last one fed; past its own context a
            # drafter is not asked
            room = (drafter.context - b.positions + 1).clamp(min=0)
            fed = torch.where(room > 0, kept, 0)
            return room, drafter.advance(window, fed, picks, b.hidden(len(window.ids)), depth)

        if self.drafting.drafter is not None:
            # a failure inside a capture is the capture's: the window then runs eagerly, and the
            # guard acts there
            advanced = (
                advance(self.drafting.drafter) if capturing() else self.drafting.call(advance)
            )
            if advanced is not None:
                room, (drafts, confidence, counts) = advanced
                counts = torch.minimum(counts, self._leading_tokens(drafts))
                held = (
                    torch.where((finish == RUNNING) & (kept > 0), torch.minimum(counts, room), 0)
                    * b.draftable
                )
                b.hold(kept, drafts, held)
            else:
                b.held.zero_()
                self._hold_none_where_ended()
        return held, drafts, confidence

    def _leading_tokens(self, drafts: Tensor) -> Tensor:
        """How many drafts come before the first that is no token of the target: [slots] int32."""
        known = (drafts >= 0) & (drafts < self.limits.vocab)
        return known.int().cumprod(1).sum(1, dtype=torch.int32)

    def _hold_none_where_ended(self) -> None:
        for slot in self.drafting.ended:
            self.buffers.draftable[slot] = 0
            self.buffers.held[slot] = 0

    def dry_run(self) -> contextlib.AbstractContextManager[None]:
        """For warm-ups: while it is open, nothing is kept."""
        return self.buffers.dry_run()

    # ---- results and time

    @profiled("read")
    def outcomes(self, groups: Sequence[Group], depth: int) -> list[Outcome]:
        width = self.buffers.width
        rows = self.buffers.results[
            :, : 3 + width + 2 * depth
        ].cpu()  # the window's one device-to-host copy
        floats = rows[:, 3 + width + depth :].view(torch.float32)
        reasons = self.drafting.speculation_disabled
        return [
            _outcome(
                slot,
                rows[slot, : 3 + width + depth].tolist(),
                width,
                floats[slot].tolist(),
                reasons(slot),
            )
            for slot in (group.slot for group in groups)
        ]

    def wait_until(self, time_s: float) -> None:
        time.sleep(max(0.0, time_s - time.perf_counter()))

    def now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return time.perf_counter()


class ModelWindow:
    """One staged window of the model executor."""

    def __init__(
        self, executor: ModelExecutor, groups: Sequence[Group], depth: int, bans: bool
    ) -> None:
        rows = sum(group.rows for group in groups)
        self._executor, self.groups, self._depth, self._bans = executor, groups, depth, bans
        self._bucket = executor.bucket(rows)
        self.graph_constants = (self._bucket, depth, executor.target.dtype, bans)
        self.graph_epoch = executor.drafting.reloads  # a new drafter has buffers of its own
        self.padded = self._bucket - rows

    def verify(self) -> None:
        self._executor.verify(self._bucket, self._bans)

    def commit(self) -> None:
        self._executor.commit(self._bucket, self._depth)

    def outcomes(self) -> list[Outcome]:
        return self._executor.outcomes(self.groups, self._depth)


def _outcome(
    slot: int, row: list[int], width: int, confidence: list[float], speculation_disabled: str | None
) -> Outcome:
    kept, finish, held = row[:3]
    committed = Committed(tuple(row[3 : 3 + kept]), kept, max(0, kept - 1), FINISH[finish])
    error = NUMERIC_ERROR if finish == ERROR else None
    drafts = tuple(row[3 + width : 3 + width + held])
    return Outcome(
        slot, committed, held, drafts, tuple(confidence[:held]), error, speculation_disabled
    )
