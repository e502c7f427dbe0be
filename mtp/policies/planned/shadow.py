"""Shadow scoring: drafts are compared with the tokens committed later, whether they were given rows
or not.

A chain of drafts is right as far as its leading drafts equal the tokens after it; the draft after
those is wrong. Both are known once that many tokens are committed, over one window or several,
before or after a park. What is not known teaches nothing: drafts behind the first wrong one, and
every chain that is open when its request ends (its last window may be clipped, stopped, faulty or
cancelled). A chain that is right to its end says that each of its drafts was, and nothing of a
longer one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mtp.policies.protocol import WindowResult


class Verdict(NamedTuple):
    """Of one draft of a chain whose earlier drafts were right."""

    request: str
    place: int  # of the draft, from 0
    hit: bool
    verified: bool  # it had a row
    confidence: float | None  # the drafter's own; None where it gives none
    expected: float  # what the policy estimated when the draft was made (conditional)


@dataclass
class _Chain:
    drafts: tuple[int, ...]
    confidence: tuple[float, ...]
    expected: tuple[float, ...]
    given: int = -1  # drafts that had a row; -1: its window has not come yet
    right: int = 0


class Shadow:
    """Open chains by request: at most one per draft of the deepest chain."""

    def __init__(self) -> None:
        self._open: dict[str, list[_Chain]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def observe(self, result: WindowResult) -> list[Verdict]:
        """What this window's tokens say about drafts made before it. Chains made in it are kept
        by `hold`."""
        verdicts: list[Verdict] = []
        for part in result.slots:
            chains = self._open.get(part.request)
            if not chains:
                continue
            if part.committed.finish or not part.committed.tokens:
                self.release(part.request)
                continue
            still = []
            for chain in chains:
                if chain.given < 0:
                    chain.given = part.rows - 1
                if self._follow(part.request, chain, part.committed.tokens, verdicts):
                    still.append(chain)
            self._open[part.request] = still
        return verdicts

    def hold(
        self,
        request: str,
        drafts: tuple[int, ...],
        confidence: tuple[float, ...],
        expected: tuple[float, ...],
    ) -> None:
        if drafts:
            self._open.setdefault(request, []).append(_Chain(drafts, confidence, expected))

    def release(self, request: str) -> None:
        self._open.pop(request, None)

    @staticmethod
    def _follow(
        request: str, chain: _Chain, tokens: tuple[int, ...], verdicts: list[Verdict]
    ) -> bool:
        """Whether the chain is still open after these tokens."""
        for token in tokens:
            place = chain.right
            hit = chain.drafts[place] == token
            confidence = chain.confidence[place] if place < len(chain.confidence) else None
            verdicts.append(
                Verdict(request, place, hit, place < chain.given, confidence, chain.expected[place])
            )
            chain.right += hit
            if not hit or chain.right == len(chain.drafts):
                return False
        return True
