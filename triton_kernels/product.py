"""Rows times a weight, on a CPU by a packed form of the weight.

`Matrix` is what models hold.

oneDNN lays a weight out once as its products read it, which is what torch's own compiler does with
frozen weights. The packed tensor has no storage that torch could copy or trace: the operation takes
a number in its place.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.nn.functional import linear

from triton_kernels.checks import require
from triton_kernels.launch import operation

ROWS = 16  # that the packed form is laid out for; products of other row counts take it too


class PackedWeight:
    """A weight [out, in] in packed form; `number` names it while it is alive."""

    def __init__(self, weight: Tensor) -> None:
        self.shape, self.dtype, self.device = weight.shape, weight.dtype, weight.device
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        self.number = next(_numbers)
        _packed[self.number] = self

    def unpacked(self) -> Tensor:
        """The weight as it was, bit for bit: a new tensor."""
        return self._packed.to_dense()

    def product(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")

    def __deepcopy__(self, _: object) -> PackedWeight:
        """Weights are never changed: copies of a model share them."""
        return self


_numbers = count()
_packed: WeakValueDictionary[int, PackedWeight] = WeakValueDictionary()


@cache
def packs(dtype: torch.dtype) -> bool:
    """Whether this CPU and this torch have packed products of that dtype."""
    try:
        weight = PackedWeight(torch.zeros(ROWS, ROWS, dtype=dtype))
        weight.product(torch.zeros(2, ROWS, dtype=dtype))
    except (RuntimeError, AttributeError):
        return False
    return True


def _on_cpu(x: Tensor, number: int) -> Tensor:
    weight = _packed[number]
    require("x", x, shape=[None, weight.shape[1]], dtypes=[weight.dtype])
    return weight.product(x.contiguous())


def _on_cuda(x: Tensor, number: int) -> Tensor:
    raise ValueError(f"x lies on {x.device}, expected a CPU: a packed weight is a CPU's")


_operation = operation("product(Tensor x, int number) -> Tensor", cpu=_on_cpu, cuda=_on_cuda)


def product(x: Tensor, weight: PackedWeight) -> Tensor:
    """x [rows, in] times the weight [out, in] -> [rows, out], of the weight's dtype. One launch to
    a capture. Raises ValueError, one line, for another shape, dtype or device."""
    return _operation(x, weight.number)


class Matrix:
    """A weight [out, in]; called with rows [rows, in] it gives [rows, out].

    Where the CPU has packed products it keeps the packed form alone: whoever else needs the weight
    itself (a tied embedding) holds it.
    """

    def __init__(self, weight: Tensor) -> None:
        self.shape, self.dtype, self.device = weight.shape, weight.dtype, weight.device
        self._packed: PackedWeight | None = None
        self._weight: Tensor | None = weight
        if weight.device.type == "cpu" and packs(weight.dtype):
            self._packed, self._weight = PackedWeight(weight), None

    def __call__(self, x: Tensor) -> Tensor:
        if self._packed is not None:
            return product(x, self._packed)
        assert self._weight is not None
        return linear(x, self._weight)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def weight(self) -> Tensor:
        """As it was given: a new tensor where only the packed form is kept."""
        if self._weight is not None:
            return self._weight
        assert self._packed is not None
        return self._packed.unpacked()
