"""The layout keys on tapes, on few windows; and the recorder's cost, once."""

from __future__ import annotations

import pytest
import torch

from bench.host import layout_keys, recorder_cost
from mtp.layouts import KEYS

FEW = {"requests": 10, "tokens": 60}


@pytest.mark.parametrize("key", KEYS)
def test_a_cell_adds_up(key):
    cell = layout_keys.run(key, 4, 8, "as sure", **FEW)
    assert cell["hits"] + cell["misses"] == cell["windows"] > 50
    assert 1 <= cell["seen"] <= cell["possible"]
    assert cell["captures"] - cell["evictions"] <= 8
    assert cell["capture_s"] == pytest.approx(2 * layout_keys.CAPTURE_S * cell["captures"])
    assert cell["window_ms"]["replayed"] > 0


def test_windows_do_not_depend_on_the_key_and_coarser_keys_see_fewer():
    cells = [layout_keys.run(key, 8, 8, "as sure", **FEW) for key in KEYS]
    assert len({cell["windows"] for cell in cells}) == 1
    seen = [cell["seen"] for cell in cells]
    assert seen == sorted(seen, reverse=True)


def test_the_table_has_a_line_for_each_number_of_slots_and_key(monkeypatch):
    monkeypatch.setattr(layout_keys, "SLOTS", (1, 2))
    found = list(layout_keys.cells(requests=3, tokens=30))
    assert len(found) == 2 * 2 * len(KEYS) * 3
    lines = layout_keys.table(found, "always 3")
    assert [line.split("|")[1:3] for line in lines[2:]] == [
        [f" {slots} ", f" {key} "] for slots in (1, 2) for key in KEYS
    ]
    assert all(line.count("|") == lines[0].count("|") for line in lines)


def test_a_sure_drafter_holds_fewer_and_better_drafts():
    always, sure = (
        layout_keys.synthetic_tape(1, 2000, drafter) for drafter in layout_keys.DRAFTERS
    )
    assert always.matches == sure.matches
    offered = [len(chain) for chain in sure.confidence]
    assert set(offered) == {0, 1, 2, 3} > {len(chain) for chain in always.confidence}
    good = sum(min(count, right) for count, right in zip(offered, sure.matches, strict=True)) / sum(
        offered
    )
    assert good > sum(always.matches) / (3 * len(always.matches))


@pytest.mark.slow
def test_the_recorder_is_measured_on_equal_tokens(monkeypatch):
    torch.set_num_threads(1)
    cell = recorder_cost.measure(2, 256, 16, 2)
    assert cell["pairs_captured"] > 0
    assert cell["capture_ms"] > 0
    assert 0.2 < cell["ratio"] < 5
