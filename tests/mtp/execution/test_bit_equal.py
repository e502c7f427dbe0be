"""What is promised of row counts: F04 and F25, products of one row in bf16."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from mtp.buckets import Buckets
from mtp.engine import Engine
from mtp.execution import bit_equal
from mtp.execution.bit_equal import bit_equal_row_counts, cancelling, fewest_rows
from mtp.execution.model import ModelExecutor
from mtp.policies import StaticK
from mtp.request import Request
from mtp.targets import load_target
from tests.support.checkpoints import write_qwen3_5
from triton_kernels import Packed
from triton_kernels.product import Matrix

CPU, BF16 = torch.device("cpu"), torch.bfloat16


def in_parts(x: Tensor, weight: Tensor, one: int = 2, more: int = 16) -> Tensor:
    """A product whose sums are made of so many parts, for one row and for more. Row by row: what
    torch itself does with more of them does not matter here."""
    count = one if len(x) == 1 else more
    parts = zip(x.float().chunk(count, 1), weight.float().chunk(count, 1), strict=True)
    products = [torch.stack([row @ w.T for row in part]) for part, w in parts]
    return sum(products[1:], products[0]).to(x.dtype)


class Parted(Matrix):
    """Whose products are made `in_parts`."""

    def __init__(self, weight: Tensor, one: int = 2) -> None:
        super().__init__(weight)
        self.one = one

    def __call__(self, x: Tensor) -> Tensor:
        return in_parts(x, self.weight, self.one)


def test_F25_an_order_of_sums_that_random_inputs_hide_is_found(monkeypatch):
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(48, 1536, generator=generator).to(BF16)
    x = torch.randn(2, 1536, generator=generator).to(BF16)
    hidden = (in_parts(x, weight)[0] != in_parts(x[:1], weight)[0]).float().mean()
    cancels, opposed = cancelling(weight, 2, generator)
    shown = (in_parts(cancels, opposed)[0] != in_parts(cancels[:1], opposed)[0]).float().mean()
    assert hidden < 0.1
    assert shown > 0.5
    monkeypatch.setattr(bit_equal, "Matrix", Parted)
    assert bit_equal_row_counts([Parted(weight)], rows=6) == (2, 3, 4, 5, 6)


def test_F25_the_sums_cancel():
    weight = torch.randn(5, 33)
    x, opposed = cancelling(weight, 4, torch.Generator().manual_seed(0))
    assert x.shape == (4, 33)
    assert (x.double() @ opposed.double().T).abs().max() < 1e-5
    assert torch.equal(opposed[:, :16], weight[:, :16])


@pytest.mark.parametrize(("differs", "rows"), [(True, 2), (False, 1)])
def test_F04_an_exact_window_has_no_one_row_product_where_that_differs(
    tmp_path, monkeypatch, differs, rows
):
    monkeypatch.setattr(bit_equal, "Matrix", partial(Parted, one=2 if differs else 16))
    target = load_target(
        write_qwen3_5(tmp_path / "m"), slots=2, context=64, dtype=torch.float32, device=CPU
    )
    assert fewest_rows(target) == rows
    seen, verify = [], target.verify

    def counted(window: Packed) -> tuple[Tensor, Tensor]:
        seen.append(len(window.ids))
        return verify(window)

    monkeypatch.setattr(target, "verify", counted)
    executor = ModelExecutor(
        target, None, slots=2, largest_group=1, depth=0, buckets=Buckets(()), device=CPU
    )
    engine = Engine(executor, slots=2, policy=StaticK(0))
    engine.submit(Request("a", (1, 2, 3), 5, ignore_stop=True))
    assert len(engine.run()[0].tokens) == 5
    assert seen == [rows] * 4
