"""One-line refusals shared by the wrappers: shape, dtype, device, strides."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def require(
    name: str,
    tensor: Tensor,
    *,
    shape: Sequence[int | None],
    dtypes: Sequence,
    like: Tensor | None = None,
    dense: bool = False,
) -> None:
    """Refuse a tensor whose rank, sizes (None = any), dtype, or device (that of `like`) is not as
    an operation needs it.

    dense: also refuse one that does not lie in memory row by row.
    """
    if tensor.ndim != len(shape) or any(
        want is not None and have != want for have, want in zip(tensor.shape, shape, strict=True)
    ):
        wanted = ", ".join("*" if n is None else str(n) for n in shape)
        raise ValueError(f"{name} has shape {list(tensor.shape)}, expected [{wanted}]")
    if tensor.dtype not in dtypes:
        raise ValueError(
            f"{name} is {tensor.dtype}, expected {' or '.join(str(d) for d in dtypes)}"
        )
    if like is not None and tensor.device != like.device:
        raise ValueError(f"{name} lies on {tensor.device}, expected {like.device}")
    if dense and not tensor.is_contiguous():
        raise ValueError(
            f"{name} has strides {list(tensor.stride())}, expected a contiguous tensor"
        )
