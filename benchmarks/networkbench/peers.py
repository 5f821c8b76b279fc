"""Peers: a whole network made ready for inference by one system, each in the form its users would choose."""

from __future__ import annotations

import copy

import torch
from kernelbench.peers import PEERS as PREPARED
from kernelbench.peers import Call, Unavailable, graph_of
from torch import Tensor, nn

from syno.timing.bench import CompilerUnavailable, _compiled

NAMES = tuple(PREPARED)

#: The memory formats of images and of clips, by dimensions.
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def prepare(name: str, model: nn.Module, x: Tensor, threads: int) -> dict[str, Call]:
    """Calls by variant ("" for the plain one), made in inference mode.

    Raises:
        Unavailable: it is not installed, or cannot run the network.
    """
    peer = PREPARED[name]
    if peer.absent:
        raise Unavailable(peer.absent)
    if name == "eager":
        return _eager(model, x)
    if name == "compile":
        return _compile(model, x)
    if name == "xla":  # it reads graphs
        with torch.inference_mode(False), torch.no_grad():
            model = graph_of(model, [x])  # type: ignore[arg-type]
    return peer.prepare(model, [x], threads)


def _eager(model: nn.Module, x: Tensor) -> dict[str, Call]:
    calls: dict[str, Call] = {"": lambda: model(x)}
    memory = _LAST.get(x.dim())
    if memory is not None:
        last = copy.deepcopy(model).to(memory_format=memory)  # type: ignore[call-overload]
        y = x.contiguous(memory_format=memory)
        calls["channels last"] = lambda: last(y)
    return calls


def _compile(model: nn.Module, x: Tensor) -> dict[str, Call]:
    """Weights frozen, the kernels of matrix products chosen by timing them."""
    try:
        return {"": _compiled(model, [x], dynamic=False, mode="max-autotune-no-cudagraphs")}
    except CompilerUnavailable as error:
        raise Unavailable(str(error)) from error
