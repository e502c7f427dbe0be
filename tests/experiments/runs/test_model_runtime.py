"""What a run on a model says of row counts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from experiments.runs.model_runtime import ModelRuntime
from mtp.buckets import Buckets


@pytest.mark.parametrize(
    ("buckets", "equal", "said"),
    [
        ((4, 8), range(4, 9), ""),
        ((), range(2, 9), ""),
        ((), range(4, 9), "bit-equal here for 4, 5, 6, 7, 8 rows, buckets=[4,8] would hold"),
        ((4, 8), (8,), "bit-equal here for 8 rows, buckets=[8] would hold"),
        ((1, 8), range(2, 9), "bit-equal here for 2, 3, 4, 5, 6, 7, 8 rows, buckets=[4,8] would"),
    ],
)
def test_F19_where_tokens_may_differ_the_buckets_that_hold_are_named(buckets, equal, said):
    runtime = object.__new__(ModelRuntime)
    settings = SimpleNamespace(buckets=Buckets(buckets), rows=8)
    vars(runtime).update(spec=SimpleNamespace(settings=settings), _equal_rows=tuple(equal))
    assert said in runtime.advice()
    assert bool(runtime.advice()) == bool(said)
