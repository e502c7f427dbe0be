"""The acceptance tape: a request as a table. What is emitted does not depend on the policy, so
this is all there is to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtp.tape.columns import Columns
from mtp.tape.files import read_columns, write_columns

if TYPE_CHECKING:
    from mtp.executor import Limits
    from mtp.request import Request
    from mtp.tape.synthesis import Synthesis


@dataclass(frozen=True)
class Tape:
    """Row i belongs to output token i.

    matches[i]: how many leading drafts, made with token i as the anchor, equal the tokens after it;
    those past the end of the text are not known and not counted.
    confidence[i]: the drafter's own, per draft of that chain: as many as there were drafts. Empty:
    as many drafts as are asked for, without a confidence.
    truth[i]: what only an oracle knows, per draft: the probability that it is right if all before
    it are. Empty: not known.
    """

    tokens: tuple[int, ...]  # [i]: its id
    matches: tuple[int, ...]
    confidence: tuple[tuple[float, ...], ...] = ()
    truth: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.tokens or len(self.matches) != len(self.tokens):
            raise ValueError(
                f"a tape needs one row per token, got {len(self.tokens)} tokens and "
                f"{len(self.matches)} matches"
            )
        for name in ("confidence", "truth"):
            if (rows := getattr(self, name)) and len(rows) != len(self.tokens):
                raise ValueError(
                    f"a tape needs one row per token, got {len(self.tokens)} tokens and "
                    f"{len(rows)} rows of {name}"
                )
        if min(self.matches) < 0:
            raise ValueError(f"matches holds {min(self.matches)}, expected 0 or more")

    @classmethod
    def recorded(
        cls,
        tokens: tuple[int, ...],
        drafts: tuple[tuple[int, ...], ...],
        confidence: tuple[tuple[float, ...], ...],
    ) -> Tape:
        """From what a drafter proposed at every token: drafts[i] are the ids it chained with
        token i as the anchor."""
        return cls(
            tokens,
            tuple(leading(chain, tokens[i + 1 :]) for i, chain in enumerate(drafts)),
            confidence,
        )

    @classmethod
    def synthetic(
        cls, profile: str, *, length: int = 256, seed: int | tuple[int, ...] = 0, **settings: Any
    ) -> Tape:
        """A tape of `length` tokens drawn after a published profile or a regime; settings: see
        `mtp.tape.synthesis.Synthesis`."""
        from mtp.tape.synthesis import Synthesis

        return cls.drawn(Synthesis(profile, **settings), length, seed)

    @classmethod
    def drawn(cls, synthesis: Synthesis, length: int, seed: int | tuple[int, ...]) -> Tape:
        """A tape of `length` tokens; the same seed gives the same one."""
        return cls(*synthesis.columns(length, seed))

    def held(self, index: int, depth: int) -> int:
        """Drafts there are at token `index` when `depth` are asked for."""
        return min(depth, len(self.confidence[index])) if self.confidence else depth

    def write(self, path: str | Path, request: str = "0") -> None:
        """A tape.parquet of this one request; see `mtp.tape.files`."""
        write_tapes(path, {request: self})

    @classmethod
    def read(cls, path: str | Path, request: str | None = None) -> Tape:
        """One request of a tape.parquet; None: the only one in it. Raises ValueError where it is
        not there."""
        tapes = read_tapes(path)
        if request is None and len(tapes) == 1:
            return next(iter(tapes.values()))
        if request not in tapes:
            raise ValueError(
                f"request is {request!r}, expected one of the tapes in {path}: {', '.join(tapes)}"
            )
        return tapes[request]


def write_tapes(path: str | Path, tapes: Mapping[str, Tape]) -> None:
    """A tape.parquet of one or more requests; see `mtp.tape.files`."""
    write_columns(
        path,
        {
            name: Columns(tape.tokens, tape.matches, tape.confidence, tape.truth)
            for name, tape in tapes.items()
        },
    )


def read_tapes(path: str | Path) -> dict[str, Tape]:
    """By request, in the order of the file. Raises ValueError, in one line, for what is no
    tape.parquet."""
    return {name: Tape(*columns) for name, columns in read_columns(path).items()}


def leading(drafts: tuple[int, ...], tokens: tuple[int, ...]) -> int:
    """How many leading drafts equal the tokens."""
    for place, (draft, token) in enumerate(zip(drafts, tokens, strict=False)):
        if draft != token:
            return place
    return min(len(drafts), len(tokens))


def text_of(tape: Tape, request: Request, limits: Limits) -> tuple[tuple[int, ...], str]:
    """What plain decoding of the tape gives, token by token: tokens, and `stop` or `length`.
    Raises ValueError where it is too short."""
    stops = frozenset() if request.ignore_stop else limits.stop_ids | request.stop_ids
    most = min(request.max_new_tokens, limits.context - len(request.prompt))
    for place, token in enumerate(tape.tokens[:most], 1):
        if token in stops and place > request.min_new_tokens:
            return tape.tokens[:place], "stop"
    if len(tape.tokens) < most:
        raise ValueError(
            f"request {request.id}: its tape ends after {len(tape.tokens)} tokens, expected one "
            f"that reaches its end ({most})"
        )
    return tape.tokens[:most], "length"
