"""From logits to the next window's rows, by `make bench`. On a GPU also with the large
vocabularies, and by graph replay."""

from __future__ import annotations

import os

import pytest
import torch

from bench.ops.registry import Case, cases
from bench.ops.timing import measure

WIDE = torch.cuda.is_available() or "MTPLAB_BENCH_WIDE" in os.environ


@pytest.mark.parametrize("case", list(cases(wide=WIDE, mode="seam")), ids=str)
def test_seam(benchmark, case: Case):
    measure(benchmark, case)
