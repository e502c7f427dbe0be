"""Against which arm an arm is measured."""

from __future__ import annotations

import pytest

from experiments.config.checks import BadInput
from experiments.report.arms import arms_of
from experiments.report.baseline import baselines, parse_baseline
from experiments.report.headline import headline
from experiments.report.runs import find_runs
from tests.support.run_folders import write_run


def arms(folder, *described):
    """described: (policy, k, config, evidence)"""
    for n, (policy, k, config, evidence) in enumerate(described):
        write_run(
            folder / str(n), policy=policy, k=k, config=config, metrics={"evidence": evidence}
        )
    return arms_of(find_runs(folder))


def against(arms, wanted=None):
    return {label: base.label for label, base in baselines(arms, wanted).items()}


def test_plain_decoding_of_the_same_context_is_the_default(tmp_path):
    found = arms(
        tmp_path,
        ("rotate_grow", None, {"slots": 2}, "cpu"),
        ("rotate_grow", None, {"slots": 4}, "cpu"),
        ("static_k", 0, {"slots": 4}, "cpu"),
        ("static_k", 0, {"slots": 2}, "cpu"),
        ("static_k", 1, {"slots": 8}, "cpu"),
    )
    assert against(found) == {
        "rotate_grow slots=2": "static_k k=0 slots=2",
        "rotate_grow slots=4": "static_k k=0 slots=4",
        "static_k k=0 slots=2": "static_k k=0 slots=2",
        "static_k k=0 slots=4": "static_k k=0 slots=4",
        "static_k k=1 slots=8": "static_k k=0 slots=4",
    }


def test_a_baseline_of_ones_own(tmp_path):
    found = arms(
        tmp_path,
        ("static_k", 0, {}, "cpu"),
        ("static_k", 1, {}, "cpu"),
        ("rotate_grow", None, {}, "cpu"),
    )
    assert set(against(found, parse_baseline("policy=static_k,policy.k=1")).values()) == {
        "static_k k=1"
    }
    assert set(against(found, parse_baseline("policy=rotate_grow")).values()) == {"rotate_grow"}
    with pytest.raises(
        BadInput,
        match="fits no arm, expected values of one of: static_k k=0; static_k k=1; rotate_grow",
    ):
        baselines(found, parse_baseline("policy=adaptive"))


def test_without_plain_decoding_the_first_policy_or_the_first_arm(tmp_path):
    policies = arms(
        tmp_path / "policies",
        ("static_k", 1, {"slots": 2}, "cpu"),
        ("rotate_grow", None, {"slots": 2}, "cpu"),
    )
    assert set(against(policies).values()) == {"static_k k=1"}
    budgets = arms(
        tmp_path / "budgets",
        *[("rotate_grow", None, {"grant.budget": n}, "cpu") for n in (1, 2, 4)],
    )
    assert set(against(budgets).values()) == {"rotate_grow budget=1"}


def test_another_evidence_or_wrong_tokens_are_no_baseline(tmp_path):
    both = arms(
        tmp_path / "both", ("static_k", 0, {}, "cpu"), ("rotate_grow", None, {}, "synthetic")
    )
    assert against(both) == {
        label: label for label in ("static_k k=0 cpu", "rotate_grow synthetic")
    }
    write_run(
        tmp_path / "wrong" / "0", policy="static_k", k=0, parity={"checked": 1, "exact": False}
    )
    write_run(tmp_path / "wrong" / "1")
    wrong = arms_of(find_runs(tmp_path / "wrong"))
    assert against(wrong) == {}
    assert [row.ratio for row in headline(wrong, baselines(wrong, None))] == [None, None]


@pytest.mark.parametrize("given", ["policy", "=1", "policy=", "policy=a,,b=c"])
def test_a_baseline_that_cannot_be_read(given):
    with pytest.raises(BadInput, match="expected key=value pairs"):
        parse_baseline(given)


def test_ranks_are_among_arms_with_the_same_baseline_and_right_tokens(tmp_path):
    write_run(tmp_path / "0", policy="static_k", k=0, window_s=0.1)
    write_run(tmp_path / "1", policy="static_k", k=1, window_s=0.05)
    write_run(tmp_path / "2", policy="static_k", k=3, window_s=0.2)
    write_run(tmp_path / "3", window_s=0.01, parity={"checked": 2, "exact": False})
    found = arms_of(find_runs(tmp_path))
    rows = headline(found, baselines(found, None))
    assert [(row.arm.label, row.rank) for row in rows] == [
        ("static_k k=0", 2),
        ("static_k k=1", 1),
        ("static_k k=3", 3),
        ("rotate_grow", None),
    ]
    assert [round(row.ratio.value, 3) for row in rows if row.ratio] == [1.0, 2.0, 0.5, 10.0]
