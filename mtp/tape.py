"""The acceptance tape: a request as a table. What is emitted does not depend on the policy, so this is all there is to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tape:
    """Row i belongs to output token i.

    tokens[i]: its id; matches[i]: how many leading drafts, made with token i as the anchor, equal the tokens after it;
    confidence[i]: the drafter's own, per draft of that chain (may be empty).
    """

    tokens: tuple[int, ...]
    matches: tuple[int, ...]
    confidence: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.tokens or len(self.matches) != len(self.tokens) or (self.confidence and len(self.confidence) != len(self.tokens)):
            raise ValueError(f"a tape needs one row per token, got {len(self.tokens)} tokens and {len(self.matches)} matches")
        if min(self.matches) < 0:
            raise ValueError(f"matches holds {min(self.matches)}, expected 0 or more")
