"""syno: invents linear operators for a neural network and compiles them to native kernels.

Importing the package loads neither torch nor matplotlib; names are resolved when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from syno._checkout import hand_over
from syno._engine import install
from syno._environment import warn_of_unknown

# In a folder of sources without an engine, what is installed takes this module's place.
if hand_over() is None:
    install()
    warn_of_unknown()
del hand_over, install, warn_of_unknown

__version__ = "0.1.0"

# Public name -> module that holds it.
_EXPORTS = {
    "Operator": "syno.operators.operator",
    "Kernel": "syno.kernels.kernel",
    "compile": "syno.compiling",
    "load_onnx": "syno.graph.from_onnx",
    "config": "syno.config",
    "Program": "syno._core",
    "PGraph": "syno._core",
    "Spec": "syno._core",
    "Schedule": "syno._core",
    "LoopNest": "syno._core",
    "SynoError": "syno.errors",
    "Task": "syno.training.task",
    "Session": "syno.session",
    "Budget": "syno.session",
    "Space": "syno.searching.space",
    "sample": "syno.searching.drawn",
    "enumerate": "syno.searching.drawn",
    "derive": "syno.deriving",
    "sites": "syno.torch",
    "replace": "syno.torch",
    "search": "syno.searching.pipeline",
    "Result": "syno.searching.result",
    "bench": "syno.timing.bench",
    "export": "syno.export",
    "load": "syno.loading",
    "latency": "syno.tuning.latency",
    "predict": "syno.tuning.predict",
    "tune": "syno.tuning.search",
    "tune_network": "syno.tuning.network",
}

if TYPE_CHECKING:
    from syno._core import LoopNest as LoopNest
    from syno._core import PGraph as PGraph
    from syno._core import Program as Program
    from syno._core import Schedule as Schedule
    from syno._core import Spec as Spec

__all__ = ["__version__", *sorted(_EXPORTS)]


def __getattr__(name: str) -> Any:
    if name in (
        "config",
        "executors",
        "nn",
        "synthesis",
        "tracking",
    ):  # config is a module that can be called
        return importlib.import_module(f"syno.{name}")
    if name in _EXPORTS:
        found = getattr(importlib.import_module(_EXPORTS[name]), name)
        if _EXPORTS[name] == "syno._core":
            importlib.import_module("syno.support.arguments").in_sentences(found)
        return found
    raise AttributeError(f"module 'syno' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
