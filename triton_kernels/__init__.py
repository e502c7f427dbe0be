"""Window kernels: tensors in, tensors out. Every operation has a plain-torch twin with the
ending `_torch`."""

from triton_kernels.accept import Accepted, accept_prefix, accept_prefix_torch
from triton_kernels.advance import advance_window, advance_window_torch
from triton_kernels.argmax import Picks, row_argmax, row_argmax_torch
from triton_kernels.pack import Packed, pack_window, pack_window_torch
from triton_kernels.state import Advanced, SlotLimits, SlotState

__all__ = [
    "Accepted",
    "Advanced",
    "Packed",
    "Picks",
    "SlotLimits",
    "SlotState",
    "accept_prefix",
    "accept_prefix_torch",
    "advance_window",
    "advance_window_torch",
    "pack_window",
    "pack_window_torch",
    "row_argmax",
    "row_argmax_torch",
]
