"""Kernels on PyTorch's own threads: two pools would get in each other's way, since both spin where they wait."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

import torch

from syno import _core


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch's operators on one thread within: thousands of small ones wait for a second one longer than it saves, and
    sums are the same on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def share_threads() -> bool:
    """Has kernels run on the threads that PyTorch's operators run on, for the rest of the process.

    Returns:
        Whether PyTorch computes on a libgomp of its own; else kernels keep their pool.
    """
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            library = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            parallel, number = library.GOMP_parallel, library.omp_get_thread_num
        except (OSError, AttributeError):
            continue
        addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in (parallel, number)]
        if all(addresses):
            _core.run_on_openmp(*(address or 0 for address in addresses))
            return True
    return False
