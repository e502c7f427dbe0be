"""`workload=recorded`: what a run with policy=record left in its folder, replayed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from experiments.config.checks import BadInput
from experiments.io import write_json, write_whole
from experiments.workloads.prompt_file import PromptFile
from experiments.workloads.tape_set import TapeSet
from mtp.executor import Limits
from mtp.policies.record import Recording
from mtp.request import Request
from mtp.tape import read_tapes, text_of, write_tapes

TAPES, PROMPTS, LIMITS = "tape.parquet", "prompts.jsonl", "tape.json"


@dataclass(frozen=True)
class RecordedWorkload:
    """A recorded run, replayed. Keys without a comment: as in `PromptFile`."""

    path: str  # the folder of the run
    requests: int | None = None
    arrivals: str = "file"
    rate: float | None = None
    trace: str | None = None
    priorities: list[int] | None = None
    on_tapes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in (TAPES, PROMPTS, LIMITS):
            if not (Path(self.path) / name).is_file():
                raise BadInput(
                    f"workload.path is {self.path}, expected the folder of a recorded run: it has "
                    f"no {name}"
                )
        self._prompts()

    def tapes(self, *, max_new_tokens: int, seed: int) -> TapeSet:
        """Each request's own max_new_tokens and seed hold: they belong to what was recorded."""
        folder = Path(self.path)
        requests = self._prompts().load(_no_text, max_new_tokens=max_new_tokens, seed=seed)
        try:
            known = json.loads((folder / LIMITS).read_text())
            limits = Limits(known["vocab"], known["context"], frozenset(known["stop_ids"]))
            tapes = read_tapes(folder / TAPES)
            for request in requests:
                if request.id not in tapes:
                    raise ValueError(f"{TAPES} holds no tape of request {request.id}")
                text_of(tapes[request.id], request, limits)
            return TapeSet(requests, tapes, limits, known["depth"], "tape")
        except (ValueError, KeyError, TypeError) as wrong:
            raise BadInput(f"workload.path {self.path}: {wrong}") from wrong

    def _prompts(self) -> PromptFile:
        path = str(Path(self.path) / PROMPTS)
        return PromptFile(
            path, self.requests, self.arrivals, self.rate, self.trace, priorities=self.priorities
        )


def write_recording(
    folder: Path, recording: Recording, requests: Sequence[Request], limits: Limits
) -> None:
    """All that a replay needs: the tapes; the requests, as a prompt file; the limits they were
    decoded under."""
    write_tapes(folder / TAPES, recording.tapes())
    write_whole(
        folder / PROMPTS,
        "".join(
            json.dumps(_line(request), ensure_ascii=False) + "\n" for request in requests
        ).encode(),
    )
    sizes = {"depth": recording.depth, "vocab": limits.vocab, "context": limits.context}
    write_json(folder / LIMITS, {**sizes, "stop_ids": sorted(limits.stop_ids)})


def _line(request: Request) -> dict[str, Any]:
    fields = {name: value for name, value in vars(request).items() if name != "prompt"}
    return {**fields, "prompt_ids": list(request.prompt), "stop_ids": sorted(request.stop_ids)}


def _no_text(text: str) -> list[int]:
    raise ValueError("expected prompt_ids")
