"""How the arrays of a call lie in memory, and what may be read where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from syno.errors import KernelError

Array = np.ndarray[Any, Any]

#: Memory that the check of code for other strides may take for an argument. Arguments that lie further apart are
#: copied.
CHECKED_BYTES = 256 << 20


def without_gradient(array: Any) -> Any:
    """What shares its memory as it is: torch does so only of CPU tensors outside a graph."""
    if not hasattr(array, "requires_grad"):
        return array
    if array.device.type != "cpu":
        raise KernelError(
            f"[kernel] a tensor is on the device {array.device}; kernels compute on the CPU: "
            "pass .cpu(), or call the operator as a torch module"
        )
    if array.requires_grad and _records_gradients():
        raise KernelError(
            f"[kernel] a tensor of shape {list(array.shape)} requires a gradient, and a kernel computes none: call "
            "operator.to_torch(), which has gradients, or pass tensor.detach()"
        )
    if array.is_neg():  # a view whose memory holds the negated values
        array = array.resolve_neg()
    return array.detach() if array.requires_grad else array


def _records_gradients() -> bool:
    import torch

    return torch.is_grad_enabled()


def row_major(array: Any) -> bool:
    if isinstance(array, np.ndarray):
        return bool(array.flags.c_contiguous)
    if hasattr(array, "is_contiguous"):
        return bool(array.is_contiguous())
    return False


def view_of(array: Any) -> Any:
    """The array's memory as NumPy sees it."""
    if isinstance(array, np.ndarray):
        return array
    if str(getattr(array, "dtype", "")) == "torch.bfloat16":
        import torch

        return array.view(torch.int16).numpy().view(np.dtype(ml_dtypes.bfloat16))
    return np.from_dlpack(array) if hasattr(array, "__dlpack__") else np.asarray(array)


def spreads_too_far(view: Array) -> bool:
    steps = zip(view.shape, view.strides, strict=True)
    span = sum((extent - 1) * abs(stride) for extent, stride in steps if extent > 0)
    return bool(span > max(CHECKED_BYTES, 4 * view.nbytes))


def shows_twice(view: Array) -> bool:
    """Whether two indices may reach one element."""
    steps = [(abs(s), n) for s, n in zip(view.strides, view.shape, strict=True) if n > 1]
    reach = 0
    for stride, extent in sorted(steps):
        if stride <= reach:
            return True
        reach += stride * (extent - 1)
    return False


def layout_of(arrays: Sequence[Any], out: Any) -> Any:
    """Byte strides of all arguments; None where one has none: then a call says why."""
    outputs = out if isinstance(out, (tuple, list)) else (out,) * (out is not None)
    try:
        views = [view_of(array) for array in (*arrays, *outputs)]
    except (TypeError, ValueError, RuntimeError, BufferError):
        return None
    if not all(isinstance(view, np.ndarray) for view in views):
        return None
    return (len(outputs), *(view.strides for view in views))
