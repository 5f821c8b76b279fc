"""Kernels on PyTorch's own threads: two pools would get in each other's way, since both spin where they wait."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch

from syno import _core


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
