"""Every registered case once, and that a wrong output is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest
import torch

from bench.ops import quick
from bench.ops.registry import Case, Work, WrongOutput, cases

CPU = torch.device("cpu")
NAMES = {(case.operation, case.implementation) for case in cases()}


def test_every_case_is_right():
    counts, found = quick.wrong(CPU)
    assert found == []
    assert set(counts) >= {"picks", "pack", "accept", "seam", "plan", "stage", "look_up", "engine"}
    assert set(counts) >= {
        "attention",
        "delta_verify",
        "delta_commit",
        "conv_verify",
        "conv_commit",
    }


def test_cases_of_one_shape_stand_together_and_none_is_there_twice():
    listed = [str(case) for case in cases()]
    assert len(listed) == len(set(listed))
    shapes = [(case.operation, str(case.shape)) for case in cases()]
    assert len(list(groupby(shapes))) == len(set(shapes))
    wide = {case.shape["vocab"] for case in cases(wide=True) if "vocab" in case.shape}
    assert wide == {32_000, 151_936, 262_144}
    lengths = [
        {case.shape["length"] for case in cases(wide=of) if "length" in case.shape}
        for of in (False, True)
    ]
    assert [(min(of), max(of)) for of in lengths] == [(128, 4_096), (128, 262_144)]


def spoilt(value):
    """The same with one number another; None where there is none."""
    if isinstance(value, torch.Tensor):
        other = value.clone()
        other.view(-1)[-1] += other.abs().max()
        return other
    if isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            if (other := spoilt(item)) is not None:
                return type(value)([*value[:i], other, *value[i + 1 :]])
        return None
    if isinstance(value, dict):
        return {name: spoilt(item) for name, item in value.items()}
    return value + 1 if isinstance(value, int) else f"not {value}"


@pytest.mark.parametrize(("operation", "name"), sorted(NAMES))
def test_a_wrong_output_is_refused(operation, name):
    case = next(
        case for case in cases() if (case.operation, case.implementation) == (operation, name)
    )

    def make(shape, device):
        work = case.make(shape, device)
        return replace(work, read=lambda out: spoilt(work.read(out)))

    case.checked(CPU)
    with pytest.raises(WrongOutput, match=f"{operation}/{name}/slots"):
        replace(case, make=make).checked(CPU)


def test_the_line_names_the_place():
    case = Case(
        "sum",
        "own",
        {"rows": 2},
        "host",
        lambda shape, device: Work(lambda: [torch.tensor([1, 2]), 3], [[1, 5], 3]),
    )
    with pytest.raises(WrongOutput) as fault:
        case.checked(CPU)
    assert str(fault.value) == "sum/own/rows2: output[0][1] is 2, expected 5"


@pytest.mark.parametrize(
    ("got", "said"),
    [
        ([1.0, -4.05], ""),
        ([1.0, -4.2], "output[0] is -4.2 at 1, expected -4 within 0.02 of the largest"),
        ([float("nan"), -4.0], "output[0] is nan at 0, expected 1"),
        ([1.0, -4.0, 0.0], "shapes are [[3]], expected [[2]]"),
    ],
)
def test_how_far_off_sums_may_be_is_said_by_the_case(got, said):
    def make(shape, device):
        return Work(
            lambda: torch.tensor(got),
            [torch.tensor([1.0, -4.0])],
            read=lambda out: [out],
            close=0.02,
        )

    case = Case("sum", "own", {}, "seam", make)
    if not said:
        case.checked(CPU)
        return
    with pytest.raises(WrongOutput) as fault:
        case.checked(CPU)
    assert said in str(fault.value)


def test_quick_fails_on_a_wrong_output(monkeypatch, capsys):
    wrong = Case("sum", "own", {"rows": 2}, "host", lambda shape, device: Work(lambda: 3, 4))
    monkeypatch.setattr(quick, "cases", lambda: [wrong])
    assert quick.main() == 1
    assert capsys.readouterr().out.startswith(
        "sum/own/rows2: output is 3, expected 4\n1 cases on cpu, 1 wrong"
    )
