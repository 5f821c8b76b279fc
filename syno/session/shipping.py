"""Live objects for workers: a user's module and loaders, as they are in a script or a notebook.

They travel once, over the pipe from the coordinator to the process it has just started, as
:mod:`multiprocessing` does it; nothing of this is ever read from or written to a file. cloudpickle is
used because classes of a notebook or script have no module that a worker could import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syno.errors import TaskError


def pack(objects: Mapping[str, Any]) -> bytes:
    """The objects as bytes for :func:`unpack` in a child process.

    Raises:
        TaskError: cloudpickle is not installed, or an object cannot leave this process (named).
    """
    try:
        import cloudpickle  # type: ignore[import-untyped]
    except ImportError:
        raise TaskError(
            "sending models and loaders to worker processes needs cloudpickle",
            fix="pip install cloudpickle, or give the task as 'module:function'",
            code="T011",
        ) from None
    for name, value in objects.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            raise TaskError(
                f"{name} (a {type(value).__name__}) cannot be sent to a worker process: {error}",
                fix="give the task as 'module:function', which each worker calls for itself",
                code="T011",
            ) from error
    packed: bytes = cloudpickle.dumps(dict(objects))
    return packed


def unpack(packed: bytes) -> dict[str, Any]:
    """What :func:`pack` packed. Only ever called with what came over the coordinator's pipe."""
    import pickle

    objects: dict[str, Any] = pickle.loads(packed)
    return objects
