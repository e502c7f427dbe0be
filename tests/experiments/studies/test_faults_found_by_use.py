"""Studies that once judged other cells than they say (F cases)."""

from __future__ import annotations

import io
from collections import defaultdict
from dataclasses import dataclass

import pytest
import torch
from hydra import compose, initialize_config_dir
from rich.console import Console
from torch.utils._python_dispatch import TorchDispatchMode

from experiments.config import resolvers
from experiments.config.checks import BadInput
from experiments.run import CONFIGS
from experiments.runs.spec import run_spec
from experiments.studies.cell import HEAD, Cell
from experiments.studies.policies import PolicyStudy
from experiments.studies.real import RecordedDesign
from experiments.studies.study import run_study
from experiments.studies.trial import in_turn, policy_of, tapes_of
from mtp.costs import LinearCost
from mtp.drafters.prompt_lookup import PromptLookup
from mtp.policies import Adaptive, Decision
from mtp.windows import static_k
from tests.support.policy_trial import engine_on


@dataclass(frozen=True)
class Bare:
    """An own policy that takes neither sizes nor a cost."""

    depth: int = 1
    sizes = (1, 2)

    def decide(self, slots, *, rows, start):
        return Decision(static_k(slots, k=1, rows=rows, start=start), self.depth)


@dataclass(frozen=True)
class Believing(Adaptive):
    """An own policy that plans with a cost."""


NAMED = f"{__name__}.Believing"


def spec_of(*overrides):
    resolvers.register()
    with initialize_config_dir(CONFIGS, version_base="1.3"):
        return run_spec(compose("run", overrides=["workload=synthetic", "policy=own", *overrides]))


def test_F11_an_own_policy_in_a_study_plans_with_the_cost_of_the_cell(monkeypatch):
    monkeypatch.setenv("MTPLAB_POLICY", NAMED)
    cell = Cell("one", "row_dear", "code", 2, ratio=0.2, belief=1.4, stairs=True, draft=0.1)
    own, shipped = (policy_of(name, cell, {}).cost for name in ("own", "adaptive"))
    for window in ((1, 1, 0), (4, 2, 1), (5, 2, 3), (8, 2, 0)):
        assert own.window(*window) == shipped.window(*window) != LinearCost().window(*window)


def test_F11_and_in_a_run_with_that_of_the_run(monkeypatch):
    monkeypatch.setenv("MTPLAB_POLICY", NAMED)
    policy = spec_of("cost.row=0.02", "buckets=[4,8]", "sizes=[1,2]").policy
    assert policy.sizes == (1, 2)
    assert policy.cost.window(3, 1, 0) == LinearCost(row=0.02).window(4, 1, 0)
    given = spec_of("cost.row=0.02", "+policy.cost._target_=mtp.costs.LinearCost").policy
    assert given.cost == LinearCost()


def test_F11_a_class_is_given_what_it_takes_alone(monkeypatch):
    monkeypatch.setenv("MTPLAB_POLICY", f"{__name__}.Bare")
    assert spec_of("+policy.depth=2").policy == Bare(2)
    assert policy_of("own", Cell("", "design", "code", 2), {}) == Bare()


def test_F02_groups_beyond_the_sizes_of_the_run_are_refused(monkeypatch):
    monkeypatch.setenv("MTPLAB_POLICY", f"{__name__}.Bare")
    with pytest.raises(BadInput, match=r"sizes is \[1\], but the policy gives groups of 2 rows"):
        spec_of("sizes=[1]")


def test_F11_another_class_is_another_trial(monkeypatch):
    def trial():
        class One:
            def cells(self):
                return [Cell("one", "design", "code", 1)]

        arms = ("static_0", "static_1", "static_3", "adaptive", "own")
        ((_, argument),) = PolicyStudy(One(), arms=arms).jobs().values()
        return repr(argument)

    monkeypatch.setenv("MTPLAB_POLICY", NAMED)
    first = trial()
    assert trial() == first
    monkeypatch.setenv("MTPLAB_POLICY", f"{__name__}.Bare")
    assert trial() != first


@pytest.mark.parametrize("name", [None, "nowhere.Streak"])
def test_F11_an_own_policy_that_is_not_there_is_refused_before_a_study_runs(name, monkeypatch):
    monkeypatch.delenv("MTPLAB_POLICY", raising=False)
    if name:
        monkeypatch.setenv("MTPLAB_POLICY", name)
    arms = ("static_0", "static_1", "static_3", "adaptive", "own")
    with pytest.raises(BadInput, match=name or "MTPLAB_POLICY"):
        PolicyStudy(RecordedDesign(), arms=arms)


@pytest.mark.parametrize("slots", [2, 4])
def test_F13_mixed_recordings_share_windows(slots):
    (cell,) = [
        cell
        for cell in RecordedDesign(("tiny_qwen_high",), ("mixed",)).cells()
        if (cell.slots, cell.ratio) == (slots, 0.1)
    ]
    tapes = tapes_of(cell, 0, 0)
    engine = engine_on(policy_of("static_0", cell, tapes), tapes, LinearCost(), slots=slots)
    engine.run()
    kinds = defaultdict(set)
    for entry in engine.rounds:
        kinds[entry.window].add(entry.request.partition("-")[0])
    both = sum(kind == {"code", "prose"} for kind in kinds.values())
    assert both > 0.7 * len(kinds), f"{both} of {len(kinds)}"


def test_F13_lists_of_any_length_are_spread_evenly():
    assert in_turn(["abc", "xyz"]) == ["a", "x", "b", "y", "c", "z"]
    assert in_turn(["abcdef", "xy"]) == ["a", "b", "x", "c", "d", "e", "y", "f"]
    assert in_turn(["ab"]) == ["a", "b"]


def test_F14_a_look_up_is_charged_its_own_price():
    drafts = defaultdict(set)
    for cell in RecordedDesign().cells():
        drafts[cell.regime.startswith("prompt_lookup")].add(
            cell.cost()["draft"] / cell.cost()["base"]
        )
    assert drafts == {True: {0.0}, False: {HEAD}}


class Calls(TorchDispatchMode):
    """Counts operations."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_F14_a_look_up_is_one_pass_for_any_number_of_drafts():
    """What its price stands on: the operations of seven drafts are those of one."""
    drafter = PromptLookup(slots=4, context=64, device=torch.device("cpu"))
    drafter.prefill(0, torch.arange(40, dtype=torch.int32) % 7, torch.empty(0), 0)
    counts = []
    for depth in (1, 7):
        with Calls() as calls:
            assert drafter._look_up(depth).counts.tolist() == [depth, 0, 0, 0]
        counts.append(calls.count)
    assert counts[0] == counts[1] > 0


class Counting:
    """A study of one cell."""

    workers = 0

    def jobs(self):
        return {"one": (dict, {"found": 1})}

    def conclude(self, found, folder, console):
        return dict(found["one"])


def test_N06_cells_that_other_code_found_are_found_again(tmp_path, monkeypatch):
    def kept():
        return run_study(Counting(), tmp_path, "id", Console(file=io.StringIO()))["cells_kept"]

    assert [kept(), kept()] == [0, 1]
    monkeypatch.setattr("experiments.studies.study.code_digest", lambda *places: "other")
    assert [kept(), kept()] == [0, 1]
