"""Figures of a run, from its round records and finished requests alone. Pure Python; a rate without
a denominator is None.

Prefill is no round: its commit is in no acceptance figure, its token is not in the decode rate. A
round's first draft predicts the first token that the round commits (row 1 is kept iff pick 0 equals
it), so the token's index in the output is the number of tokens committed before the round.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from mtp.records import Round
from mtp.request import Finished


def summarise(
    rounds: Sequence[Round],
    finished: Sequence[Finished],
    *,
    decode_s: float,
    prefill_s: float,
    warmup_s: float = 0.0,
    rows_padded: int = 0,
) -> dict[str, Any]:
    """The fields of metrics.json that follow from the records of one run. decode_s, prefill_s:
    seconds of windows, of prefills.

    rows_verified and drafts_verified are costs and count every round. The acceptance figures leave
    out rounds that committed nothing. tokens_committed (== rows_kept) is what the windows emitted;
    the end-to-end rate has the prefills' tokens as well.
    """
    rounds = sorted(rounds, key=lambda entry: (entry.window, entry.slot))
    committing = [entry for entry in rounds if entry.committed]
    committed = sum(entry.committed for entry in rounds)
    accepted = sum(entry.accepted for entry in rounds)
    return {
        "tokens_per_s": rate(committed, decode_s),
        "end_to_end_tokens_per_s": rate(
            sum(len(request.tokens) for request in finished), prefill_s + decode_s
        ),
        "prefill_s": prefill_s,
        "decode_s": decode_s,
        "warmup_s": warmup_s,
        "tokens_committed": committed,
        "windows": len({entry.window for entry in rounds}),
        "rows_verified": sum(entry.rows for entry in rounds),
        "rows_padded": rows_padded,
        "rows_kept": committed,
        "drafts_verified": sum(entry.drafted for entry in rounds),
        "drafts_accepted": accepted,
        "acceptance_rate": rate(accepted, sum(entry.drafted for entry in committing)),
        "mean_acceptance_length": mean_acceptance_length(rounds),
        "acceptance_novel": acceptance_novel(rounds, finished),
        "repetition": repetition(finished),
        "acceptance_by_position": acceptance_by_position(rounds),
        "latency": latency(finished),
        "requests": request_stats(rounds, finished),
    }


def rate(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def mean_acceptance_length(rounds: Iterable[Round]) -> float | None:
    """1 + accepted / rounds, over rounds that committed: the tokens of a mean round."""
    committing = [entry for entry in rounds if entry.committed]
    return 1 + sum(entry.accepted for entry in committing) / len(committing) if committing else None


def acceptance_by_position(rounds: Iterable[Round]) -> list[dict[str, Any]]:
    """Per place among a round's drafts, from 0. offered: drafts there; accepted: those kept;
    cumulative: accepted / offered; conditional: accepted / those judged, so that a request's
    end, which leaves drafts unjudged, does not read as a miss."""
    committing = [entry for entry in rounds if entry.committed]
    figures = []
    for position in range(max((entry.drafted for entry in committing), default=0)):
        offered = sum(entry.drafted > position for entry in committing)
        accepted = sum(entry.accepted > position for entry in committing)
        judged = sum(entry.judged(position) for entry in committing)
        rates = {"conditional": rate(accepted, judged), "cumulative": rate(accepted, offered)}
        figures.append({"position": position, "offered": offered, "accepted": accepted, **rates})
    return figures


def acceptance_novel(rounds: Iterable[Round], finished: Iterable[Finished]) -> float | None:
    """Share of judged first drafts that were accepted, over those that predict a novel token:
    one whose 4-gram (it and the three tokens before it) occurs nowhere earlier in its own text,
    prompt included. A token with fewer before it is novel. `rounds`: in the order of their
    windows. Copied text makes any drafter look good; this figure leaves it out."""
    novel = {
        request.id: new_grams(request.prompt + request.tokens, 4)[len(request.prompt) :]
        for request in finished
    }
    # in the output, of a round's first token: the prefill committed one before
    index: dict[str, int] = defaultdict(lambda: 1)
    verdicts = []
    for entry in rounds:
        if (
            entry.request in novel
            and entry.judged(0)
            and novel[entry.request][index[entry.request]]
        ):
            verdicts.append(entry.accepted > 0)
        index[entry.request] += entry.committed
    return rate(sum(verdicts), len(verdicts))


def repetition(finished: Iterable[Finished], length: int = 16) -> float | None:
    """Share of output tokens that come after their output's first repeated 16-gram, over all
    requests: text that loops."""
    total = after = 0
    for request in finished:
        total += len(request.tokens)
        end = first_repeat(request.tokens, length)
        after += 0 if end is None else len(request.tokens) - 1 - end
    return rate(after, total)


def first_repeat(tokens: Sequence[int], length: int = 16) -> int | None:
    """The index of the token that ends the first gram which occurred before: where a text begins to
    loop. None: it never does."""
    new = new_grams(tokens, length)
    return new.index(False) if False in new else None


def new_grams(text: Sequence[int], length: int) -> list[bool]:
    """Per token, whether the gram that ends at it is the first of its kind. Grams cut short by
    the text's start are new."""
    seen: set[tuple[int, ...]] = set()
    new = []
    for end in range(1, len(text) + 1):
        gram = tuple(text[max(0, end - length) : end])
        new.append(gram not in seen)
        seen.add(gram)
    return new


def latency(finished: Sequence[Finished]) -> dict[str, dict[str, float | None]]:
    """ttft: arrival to first token; tpot: of one request, decode time over tokens after the
    first; itl: between two deliveries (the tokens of one window arrive together, as one). p50
    and p99 over requests; itl over all deliveries of the run."""
    deliveries = [sorted(set(request.emitted_s)) for request in finished]
    samples = {
        "ttft_ms": [wait for request in finished if (wait := ttft_s(request)) is not None],
        "tpot_ms": [
            1 / speed for request in finished if (speed := decode_rate(request)) is not None
        ],
        "itl_ms": [later - earlier for times in deliveries for earlier, later in pairwise(times)],
    }
    return {
        name: {
            f"p{p}": None if (value := percentile(values, p)) is None else 1000 * value
            for p in (50, 99)
        }
        for name, values in samples.items()
    }


def request_stats(rounds: Iterable[Round], finished: Iterable[Finished]) -> list[dict[str, Any]]:
    own: dict[str, list[Round]] = defaultdict(list)
    for entry in rounds:
        own[entry.request].append(entry)
    return [
        {
            "id": request.id,
            "priority": request.priority,
            "prompt_tokens": len(request.prompt),
            "tokens": len(request.tokens),
            "finish": request.finish,
            "ttft_s": ttft_s(request),
            "tokens_per_s": decode_rate(request),
            "mean_acceptance_length": mean_acceptance_length(own[request.id]),
        }
        for request in finished
    ]


def ttft_s(request: Finished) -> float | None:
    return max(0.0, request.emitted_s[0] - request.arrival_s) if request.emitted_s else None


def decode_rate(request: Finished) -> float | None:
    """Tokens per second after the first token."""
    return (
        rate(len(request.emitted_s) - 1, request.emitted_s[-1] - request.emitted_s[0])
        if request.emitted_s
        else None
    )


def percentile(values: Iterable[float], p: float) -> float | None:
    """Linear between the two nearest values."""
    ordered = sorted(values)
    if not ordered:
        return None
    place = (len(ordered) - 1) * p / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
