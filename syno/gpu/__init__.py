"""GPUs: operators as Triton kernels, and which device a training runs on.

>>> gpu_named("h200").multiprocessors
132
"""

from __future__ import annotations

from syno.gpu.devices import no_cuda, usable_device
from syno.gpu.models import gpu_named, gpu_names

__all__ = ["gpu_named", "gpu_names", "no_cuda", "usable_device"]
