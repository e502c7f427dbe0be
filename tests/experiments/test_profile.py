"""The profiler on the shipped model: short, but all of it."""

from __future__ import annotations

from experiments.config import resolvers
from experiments.profile import cells_of, profile_of


def test_cells():
    assert cells_of(8, 1, 4, [0]) == [(1, 1, 0), (2, 1, 0), (3, 1, 0), (4, 1, 0)]
    assert (8, 2, 3) in cells_of(8, 4, 4, [0, 3])
    assert all(slots <= rows <= 4 * slots for rows, slots, _ in cells_of(16, 8, 4, [0]))


def test_profile_of_the_shipped_model():
    resolvers.register()
    model, about = profile_of(["slots=2", "rows=4", "workload.requests=2"], seconds=1.0, passes=2)
    assert model.base > 0
    assert min(model.row, model.slot, model.draft, model.prompt_token) >= 0
    assert len(about["cells"]) == 21
    assert 0 <= about["residual_relative"]["rms"] <= about["residual_relative"]["max"]
