"""Functions with rows that PyTorch takes apart before a decomposition table is asked: its implementations in Python are off
meanwhile, and the functions stay whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

#: `aten.matmul` and the like have the same parts in C++; up-sampling has functions of its own there, and derivatives.
_TAKEN_APART = ("upsample_", "_upsample_")
_KEYS = (
    torch._C.DispatchKey.CompositeImplicitAutograd,
    torch._C.DispatchKey.Autograd,
)

_lock = threading.Lock()
_open = 0
_kept: list[tuple[Any, Any, Callable[..., Any]]] = []


@contextmanager
def functions_whole() -> Iterator[None]:
    """Meanwhile, on all threads, AOTAutograd records functions with rows as they are called."""
    global _open
    with _lock:
        _open += 1
        if _open == 1:
            _kept.extend(_without_parts())
    try:
        yield
    finally:
        with _lock:
            _open -= 1
            if not _open:
                for function, key, how in _kept:
                    function.py_kernels[key] = how
                    function._dispatch_cache.clear()
                _kept.clear()


def _without_parts() -> Iterator[tuple[Any, Any, Callable[..., Any]]]:
    from syno.graph.aten_rows import rows

    for name in rows():
        _, packet, overload = name.split(".")
        if packet.startswith(_TAKEN_APART):
            function = getattr(getattr(torch.ops.aten, packet), overload)
            for key in _KEYS:
                if key in function.py_kernels:
                    yield function, key, function.py_kernels.pop(key)
            function._dispatch_cache.clear()
