"""What a workload on tapes gives: requests that need neither a target nor a drafter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from mtp.executor import Limits
from mtp.request import Request
from mtp.tape import Tape


@dataclass(frozen=True)
class TapeSet:
    """Requests with their tapes."""

    requests: list[Request]
    tapes: Mapping[str, Tape]  # by request id
    limits: Limits
    depth: int  # drafts their chains hold at most
    evidence: str  # `tape` where they were recorded, else `synthetic`


@runtime_checkable
class TapeWorkload(Protocol):
    """A workload that brings tapes; it says so with `on_tapes = True`."""

    on_tapes: bool

    def tapes(self, *, max_new_tokens: int, seed: int) -> TapeSet:
        """Raises BadInput. Cheap: it is asked once before a sweep and once for the run."""
        ...
