"""F10: a policy of one's own is found by `mtplab` as by `python -m experiments.run`, and what it
lacks is named."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from experiments.run import main
from tests.support.sweeps import SMALL

POLICY = """
from mtp.policies import Decision
from mtp.windows import rotate_grow


class Streak:
    depth = 3
    sizes = (1, 2, 4)

    def decide(self, slots, *, rows, start):
        return Decision(rotate_grow(slots, rows=rows, start=start), self.depth)


class NoSizes:
    depth = 3
    decide = Streak.decide
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "policy_of_f10.py").write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    outside = [one for one in sys.path if one not in ("", str(tmp_path))]
    monkeypatch.setattr(sys, "path", outside)  # a script's is its own folder
    monkeypatch.delitem(sys.modules, "policy_of_f10", raising=False)

    def run(policy: str) -> int:
        monkeypatch.setenv("MTPLAB_POLICY", f"policy_of_f10.{policy}")
        monkeypatch.setattr(sys, "argv", ["mtplab", "policy=own", *SMALL, "hydra.run.dir=here"])
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code

    return run


def test_F10_the_launch_folder_is_importable(run, tmp_path: Path):
    assert run("Streak") == 0
    assert json.loads((tmp_path / "here" / "metrics.json").read_text())["drafts_accepted"] > 0


def test_F10_a_policy_without_sizes_is_refused_by_that(run, capfd):
    assert run("NoSizes") == 2
    assert capfd.readouterr().err.splitlines() == [
        "error: policy is policy_of_f10.NoSizes, which has no sizes, expected a class with sizes, "
        "depth and decide (docs/write-a-policy.md)"
    ]
