"""The graph part of the GPU check, with the CPU recorder in the place of the device's graphs."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from bench.gpu import graphs as gpu_graphs
from bench.gpu.graph_cases import CASES, engine_run
from bench.gpu.sum_model import SumTarget
from mtp.graphs.cpu import CpuGraph
from mtp.layouts import KEYS
from tests.support import ROOT

CPU = torch.device("cpu")


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_wrong_here(name):
    assert CASES[name](CPU) == []


def test_texts_depend_on_every_token_and_drafts_are_mostly_right():
    texts, _, engine = engine_run(CPU, None)
    assert [len(texts[str(n)]) for n in range(6)] == [40 + 3 * n for n in range(6)]
    assert len({text[:5] for text in texts.values()}) == 6
    for number, text in texts.items():  # one row at a time, without the engine
        target = SumTarget(1, CPU)
        prompt = list(range(10 + int(number), 20 + 3 * int(number)))
        for length in (0, 1, 7, len(text) - 1):
            logits, _ = target.rows(torch.tensor([sum(prompt) + sum(text[:length])]))
            assert int(logits.argmax()) == text[length]
    drafted = sum(round_.drafted for round_ in engine.rounds)
    assert 0.6 < sum(round_.accepted for round_ in engine.rounds) / drafted < 1


@pytest.mark.parametrize("name", ["keys", "evict", "host read"])
def test_a_replay_that_leaves_something_out_is_seen(name, monkeypatch):
    replay = CpuGraph.replay

    def short(self):
        kept = self.calls
        self.calls = [call for call in kept if call[0]._schema.name != "aten::copy_"]
        replay(self)
        self.calls = kept

    monkeypatch.setattr(CpuGraph, "replay", short)
    try:
        found = CASES[name](CPU)
    except RuntimeError as stuck:
        found = [str(stuck)]
    assert found != []


def test_memory_that_is_not_given_back_is_seen(monkeypatch):
    monkeypatch.setattr(CpuGraph, "reset", lambda self: self.calls.clear())
    assert "bytes" in CASES["memory"](CPU)[0]


@pytest.mark.slow
def test_cases_run_in_processes_of_their_own(monkeypatch):
    assert list(gpu_graphs.failures("cpu", ("evict", "host read"))) == [
        ("evict", []),
        ("host read", []),
    ]
    (found,) = gpu_graphs.failures("cpu", ("no such case",))
    assert found == ("no such case", [found[1][0]])
    assert "exit code 2, case is no such case" in found[1][0]
    monkeypatch.setattr(gpu_graphs, "CASE_S", 0.01)
    assert list(gpu_graphs.failures("cpu", ("evict",))) == [
        ("evict", ["graphs, evict: ran past 0.01 s"])
    ]
    monkeypatch.setattr(gpu_graphs, "ALL_S", -1)
    assert "not run" in next(gpu_graphs.failures("cpu", ("evict",)))[1][0]


@pytest.mark.slow
def test_costs_by_key():
    table = gpu_graphs.measure(CPU, tokens=48)
    assert [row["key"] for row in table] == ["off", *KEYS]
    assert "ms_per_pair" not in table[0]
    for row in table[1:]:
        assert row["pairs"] > 0 == row["failures"] == row["driver_megabytes_per_pair"]
        assert (
            min(row[name] for name in ("window_us", "host_us", "ms_per_pair", "megabytes_per_pair"))
            > 0
        )


def test_the_check_needs_neither_hydra_nor_polars_nor_a_tokenizer():
    lines = [
        "import sys, torch",
        "for name in ('hydra', 'omegaconf', 'polars', 'tokenizers', 'transformers', 'rich'): "
        "sys.modules[name] = None",
        "from bench.gpu import check",
        "from bench.gpu.graph_cases import engine_run",
        "torch.set_num_threads(1)",
        "print(len(engine_run(torch.device('cpu'), 'rows', tokens=4, tiny=True)[0]))",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, "6"), done.stderr
