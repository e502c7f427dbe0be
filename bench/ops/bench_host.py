"""The host path of a window, by `make bench`."""

from __future__ import annotations

import pytest

from bench.ops.registry import Case, cases
from bench.ops.timing import measure


@pytest.mark.parametrize("case", list(cases(mode="host")), ids=str)
def test_host(benchmark, case: Case):
    measure(benchmark, case)
