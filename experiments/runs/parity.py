"""Whether a run's tokens are those of plain decoding, and what may be said of it where they are
not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mtp.request import Finished

Label = Literal["exact", "numerically equal", "invalid"]


@dataclass(frozen=True)
class Plain:
    tokens: list[int]
    finish: str


@dataclass(frozen=True)
class Difference:
    """Where a request first differs from plain decoding."""

    request: str
    index: int
    # a token id; None: past its end; how it finished, where all tokens are equal
    plain: int | str | None
    run: int | str | None  # the same of the run


Gap = Callable[[Difference], float]


@dataclass(frozen=True)
class Parity:
    """How a run's tokens compare with those of plain decoding."""

    checked: int
    label: Label | None  # None: nothing was checked
    # of the first request that differs; None: all are equal
    first_difference: dict[str, Any] | None = None
    differing: int = 0  # requests
    # the same of plain decoding in a batch; None: it was not run
    plain_differing: int | None = None
    gap: float | None = None  # the largest, in logits

    @property
    def exact(self) -> bool:
        return self.label == "exact"

    def stats(self) -> dict[str, Any]:
        """The `parity` of metrics.json."""
        return {**vars(self), "exact": self.exact}


NOT_CHECKED = Parity(0, None)


def compare(
    reference: dict[str, Plain],
    finished: Sequence[Finished],
    *,
    plain: Sequence[Finished] | None = None,
    gap: Gap | None = None,
    tolerance: float = 0.0,
) -> Parity:
    """Every request of the reference, tokens and finish. Cancelled and failed ones are held against
    its beginning.

    plain: plain decoding of the same requests in a batch; gap(difference): by how much the target
    preferred the plain token to the run's, in logits. Tokens that differ are `numerically equal`
    where every first difference has a gap within the tolerance, and no more requests differ than do
    between plain decoding alone and in a batch; else the run is `invalid`.
    """
    found = differences(reference, finished)
    if not found:
        return Parity(len(finished), "exact")
    common = None if plain is None else len(differences(reference, plain))
    gaps = (
        [gap(one) for one in found]
        if gap and all(isinstance(one.plain, int) and isinstance(one.run, int) for one in found)
        else []
    )
    near = bool(gaps) and max(gaps) <= tolerance and common is not None and len(found) <= common
    label: Label = "numerically equal" if near else "invalid"
    return Parity(
        len(finished), label, dict(vars(found[0])), len(found), common, max(gaps, default=None)
    )


def differences(reference: dict[str, Plain], finished: Sequence[Finished]) -> list[Difference]:
    """One for each request that differs, by their names."""
    ended = {done.id: done for done in finished}
    found = []
    for name, plain in sorted(reference.items()):
        done = ended.get(name)
        got = list(done.tokens) if done else []
        cut = done is not None and done.finish in ("cancelled", "error")
        expected = plain.tokens[: len(got)] if cut else plain.tokens
        if got != expected:
            place = next(
                (
                    i
                    for i, pair in enumerate(zip(expected, got, strict=False))
                    if pair[0] != pair[1]
                ),
                min(len(expected), len(got)),
            )
            mine = got[place] if place < len(got) else None
            found.append(
                Difference(name, place, expected[place] if place < len(expected) else None, mine)
            )
        elif done is None or (not cut and done.finish != plain.finish):
            found.append(Difference(name, len(got), plain.finish, done.finish if done else None))
    return found
