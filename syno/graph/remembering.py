"""Checks of whole networks, remembered beside their kernels: the same network of the same machine code on the same numbers is
held against float64 once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree

from syno import _core
from syno.graph.building import Array, Network
from syno.graph.checking import Check
from syno.graph.compiled import CompiledNetwork
from syno.graph.host import HostCall, Result, Slot
from syno.kernels.verdicts import Outcome, Verdict

#: Constant arguments whose text says all of them.
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)  # fmt: skip


class RememberedCheck:
    """A place in the cache for the check of a compiled network.

    Args:
        directory: of the cache.
        inputs: on which it is checked.
    """

    def __init__(
        self, directory: Path, compiled: CompiledNetwork, network: Network, inputs: Sequence[Array]
    ) -> None:
        about = _about(compiled, network, inputs)
        codes = [code for stage in compiled.stages if stage.kernel for code in stage.kernel.codes]
        self._verdict = Verdict(directory, about, codes) if about and codes else None

    def read(self) -> Check | None:
        """Of an earlier compilation that passed."""
        found = self._verdict.read() if self._verdict else None
        if found is None:
            return None
        try:
            output, eager = json.loads(found.detail)
            return Check(True, found.max_rel_err, found.limit, float(eager), str(output))
        except (ValueError, TypeError):
            return None  # of another version

    def write(self, check: Check) -> None:
        """Remembers a check that passed."""
        if self._verdict and check.passed:
            detail = json.dumps([check.output, check.eager_rel_err])
            self._verdict.write(Outcome(True, check.max_rel_err, check.limit, 0, detail))


def _about(
    compiled: CompiledNetwork, network: Network, inputs: Sequence[Array]
) -> tuple[str, ...] | None:
    """All that a check depends on besides machine code; None where a function of the host has no text that says what it is."""
    hosts: list[str] = []
    for node in network.nodes:
        if node.host is not None:
            text = _text(node.host)
            if text is None:
                return None
            hosts.append(text)
    arrays = [*inputs, *(network.weights[name] for name in sorted(network.weights))]
    return (
        "network",
        torch.__version__,
        str(network.graph().text()),
        str(compiled.graph.text()),
        *hosts,
        *map(_of_array, arrays),
        repr([stage.derived_error for stage in compiled.stages]),
        str(compiled.threads),
    )


def _of_array(array: Array) -> str:
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return f"{array.dtype} {array.shape} {_core.hash_bytes(flat.tobytes())}"


def _text(call: Any) -> str | None:
    if not isinstance(call, HostCall) or not isinstance(call.function, torch._ops.OpOverload):
        return None
    leaves, structure = pytree.tree_flatten((call.args, call.named))
    parts: list[str] = [str(call.function), str(structure), repr(call.strides)]
    for leaf in leaves:
        text = _leaf(leaf)
        if text is None:
            return None
        parts.append(text)
    return repr(parts)


def _leaf(leaf: Any) -> str | None:
    if isinstance(leaf, Slot):
        return f"slot {leaf.value.name}"
    if isinstance(leaf, Result):
        inner = _text(leaf.call)
        return None if inner is None else f"result {leaf.index} of {inner}"
    if isinstance(leaf, torch.Tensor):
        if leaf.dtype == torch.bfloat16 or leaf.device.type != "cpu":
            return None
        return _of_array(leaf.detach().numpy())
    return repr(leaf) if isinstance(leaf, _PLAIN) else None


__all__ = ["RememberedCheck"]
