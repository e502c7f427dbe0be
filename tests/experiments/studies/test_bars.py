"""Bars by hand."""

from experiments.studies.bars import bars_of, judge
from experiments.studies.cell import Cell


def arm(seconds: float, late: float = 0.0) -> dict:
    return {"tokens": [100, 100], "seconds": [seconds / 2, seconds / 2], "late_capture": late}


def judged(
    name: str,
    seconds: float,
    *,
    length: int = 1,
    family: str = "design",
    regime: str = "code",
    ratio: float = 0.1,
    late: float = 0.0,
):
    arms = {
        "static_0": arm(20),
        "static_1": arm(10),
        "rotate_grow": arm(12),
        "adaptive": arm(seconds, late),
        "oracle_p": arm(9.5),
    }
    return judge(
        Cell(name, family, regime, 2, ratio=ratio, length=length), arms, "adaptive", resamples=100
    )


def test_floor():
    assert judged("a", 10.04).floor_reached
    assert not judged("a", 10.06).floor_reached
    assert judged("a", 10.06, family="useless").floor_reached  # a bar of 1%
    assert not judged("a", 10.06, family="draft_dear").floor_reached
    assert not judged("a", 10.2, family="row_dear").floor_reached


def test_gain_is_asked_where_work_varies_and_rows_cost():
    assert judged("a", 9.6, regime="mixed").gain_reached  # 10 / 9.6 = 1.0417
    assert judged("a", 9.62, regime="bursty").gain_reached is False
    assert judged("a", 9.6, regime="mixed", ratio=0.03).gain_reached is None
    assert judged("a", 9.6, regime="code").gain_reached is None


def test_the_oracle_is_no_measure_where_it_knows_what_no_confidence_says():
    assert abs(judged("a", 10).regret - 0.05) < 1e-9
    assert judged("a", 10, family="useless").regret is None


def test_bars_name_the_worst_and_holm_the_significant():
    bars, losses = bars_of(
        [judged("good", 9.5, late=0.02), judged("bad", 10.5, length=8, regime="mixed", late=0.02)]
    )
    assert [(bar.reached, bar.of) for bar in bars] == [(1, 2), (0, 1), (1, 2), (0, 1)]
    assert all("bad" in bar.worst for bar in bars)
    assert losses == ["bad"]
