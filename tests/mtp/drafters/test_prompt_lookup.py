"""Prompt look-up against a brute-force search."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mtp.drafters.prompt_lookup import PromptLookup
from triton_kernels import pack_window

CPU = torch.device("cpu")


def brute_force(text: list[int], ngram: int, depth: int) -> list[int]:
    """Longest suffix first, most recent occurrence first; what followed it."""
    for n in range(min(ngram, len(text) - 1), 0, -1):
        suffix = text[-n:]
        for end in range(len(text) - 2, n - 2, -1):
            if text[end - n + 1 : end + 1] == suffix:
                return text[end + 1 : end + 1 + depth]
    return []


def table(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=4),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=4),
    st.integers(1, 4),
    st.integers(1, 7),
)
def test_drafts_equal_a_brute_force_search_whatever_the_company(prompts, windows, ngram, depth):
    slots = len(prompts)
    drafter = PromptLookup(slots=slots, context=64, ngram=ngram, device=CPU)
    texts = [list(prompt) for prompt in prompts]
    for slot, prompt in enumerate(prompts):
        drafter.prefill(slot, table(*prompt), torch.empty(len(prompt) - 1, 8), 0)
    for turn, picks in enumerate(windows):
        moving = [slot for slot in range(slots) if (slot + turn) % 3 or slots == 1]
        if not moving:
            continue
        rows = table(*[len(picks) if slot in moving else 0 for slot in range(slots)])
        anchors, positions = (
            table(*[text[-1] for text in texts]),
            table(*[len(text) - 1 for text in texts]),
        )
        window = pack_window(
            anchors, torch.zeros(slots, 3, dtype=torch.int32), positions, rows, bucket=16
        )
        kept = [1 + (slot + turn) % len(picks) if slot in moving else 0 for slot in range(slots)]
        all_picks = table(*picks * len(moving), *[9] * (16 - len(picks) * len(moving)))
        drafts, _, counts = drafter.advance(
            window, table(*kept), all_picks, torch.empty(16, 8), depth
        )
        for slot in moving:
            texts[slot] += picks[: kept[slot]]
            expected = brute_force(texts[slot], ngram, depth)
            assert drafts[slot, : counts[slot]].tolist() == expected


def test_P07_nothing_of_an_earlier_request_is_found():
    drafter = PromptLookup(slots=1, context=16, device=CPU)
    drafter.prefill(0, table(1, 2, 3, 1, 2, 3), torch.empty(5, 8), 0)
    drafter.clear(0)
    drafter.prefill(0, table(5, 1), torch.empty(1, 8), 0)
    window = pack_window(
        table(1), torch.zeros(1, 3, dtype=torch.int32), table(1), table(1), bucket=1
    )
    assert drafter.advance(window, table(1), table(2), torch.empty(1, 8), 3).counts.tolist() == [0]
