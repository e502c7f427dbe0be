"""Rows times a weight. `Matrix` is what models hold.

On a CPU a weight is laid out once, as its products read it: by oneDNN, which is what torch's own
compiler does with frozen weights, or in panels for a kernel of ours, where oneDNN lacks the dtype
(bf16 on a CPU without AVX-512) or its fixed cost of some 30 us a product is more than the product.
Either way a row of two or more has the same bits at every row count. oneDNN's tensor has no storage
that torch could copy or trace: the operation takes a number in its place.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Protocol
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.nn.functional import linear

from triton_kernels.checks import require
from triton_kernels.launch import cpu_kernels, operation

ROWS = 16  # that oneDNN's form is laid out for; products of other row counts take it too
LARGE = 1 << 19  # numbers of a weight from which on oneDNN's fixed cost does not matter


class Form(Protocol):
    """A weight [out, in] laid out for products."""

    def product(self, x: Tensor) -> Tensor:
        """x: [rows, in], row by row in memory -> [rows, out]."""
        ...

    def unpacked(self) -> Tensor:
        """The weight as it was, bit for bit: a new tensor."""
        ...


class OneDnn:
    """See `Form`."""

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS)
        self._product = torch.ops.mkldnn._linear_pointwise.default

    def product(self, x: Tensor) -> Tensor:
        return self._product(x, self._packed, None, "none", [], "")

    def unpacked(self) -> Tensor:
        return self._packed.to_dense()


class Panels:
    """See `Form`."""

    def __init__(self, weight: Tensor) -> None:
        kernels = cpu_kernels("product")
        assert kernels is not None
        self._kernels, self._outputs = kernels, len(weight)
        self._panels = kernels.panels_of(weight)

    def product(self, x: Tensor) -> Tensor:
        return self._kernels.product_cpu(x, self._panels, self._outputs)

    def unpacked(self) -> Tensor:
        return self._panels.transpose(1, 2).flatten(0, 1)[: self._outputs].contiguous()


@cache
def packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN here has packed products of that dtype."""
    try:
        OneDnn(torch.zeros(ROWS, ROWS, dtype=dtype)).product(torch.zeros(2, ROWS, dtype=dtype))
    except (RuntimeError, AttributeError):
        return False
    return True


def form_of(weight: Tensor) -> type[OneDnn] | type[Panels] | None:
    """None: products are plain ones."""
    if weight.device.type != "cpu":
        return None
    kernels = cpu_kernels("product")
    ours = kernels is not None and weight.dtype in kernels.WORDS
    if packs(weight.dtype) and (weight.numel() >= LARGE or not ours):
        return OneDnn
    return Panels if ours else None


class PackedWeight:
    """A weight in a form; `number` names it while it is alive."""

    def __init__(self, weight: Tensor, form: type[OneDnn] | type[Panels]) -> None:
        self.shape, self.dtype, self.form = weight.shape, weight.dtype, form(weight)
        self.number = next(_numbers)
        _packed[self.number] = self

    def __deepcopy__(self, _: object) -> PackedWeight:
        """Weights are never changed: copies of a model share them."""
        return self


_numbers = count()
_packed: WeakValueDictionary[int, PackedWeight] = WeakValueDictionary()


def _on_cpu(x: Tensor, number: int) -> Tensor:
    weight = _packed[number]
    if x.ndim != 2 or x.shape[1] != weight.shape[1] or x.dtype != weight.dtype:
        require("x", x, shape=[None, weight.shape[1]], dtypes=[weight.dtype])
    return weight.form.product(x if x.is_contiguous() else x.contiguous())


def _on_cuda(x: Tensor, number: int) -> Tensor:
    raise ValueError(f"x lies on {x.device}, expected a CPU: a packed weight is a CPU's")


_operation = operation("product(Tensor x, int number) -> Tensor", cpu=_on_cpu, cuda=_on_cuda)


def product(x: Tensor, weight: PackedWeight) -> Tensor:
    """x [rows, in] times the weight [out, in] -> [rows, out], of the weight's dtype. One launch to
    a capture. Raises ValueError, one line, for another shape, dtype or device."""
    return _operation(x, weight.number)


class Matrix:
    """A weight [out, in]; called with rows [.., in] it gives [.., out].

    Where it has a form for products it keeps that alone: whoever else needs the weight itself (a
    tied embedding) holds it. Products through which gradients flow are plain ones.
    """

    def __init__(self, weight: Tensor) -> None:
        self.shape, self.dtype, self.device = weight.shape, weight.dtype, weight.device
        form = form_of(weight)
        self._packed = PackedWeight(weight, form) if form else None
        self._weight = None if form else weight

    def __call__(self, x: Tensor) -> Tensor:
        if self._packed is None or (x.requires_grad and torch.is_grad_enabled()):
            return linear(x, self.weight)
        if x.ndim == 2:
            return product(x, self._packed)
        return product(x.flatten(0, -2), self._packed).unflatten(0, x.shape[:-1])

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def weight(self) -> Tensor:
        """As it was given: a new tensor where only a form for products is kept."""
        if self._weight is not None:
            return self._weight
        assert self._packed is not None
        return self._packed.form.unpacked()
