"""PyTorch's own samples of its operators, through the importer's rows: they agree, or PyTorch runs them; never wrong.

`OPINFO_SAMPLES=all` runs every sample in place of the first few of each operator.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.utils._pytree as pytree  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from syno.graph.aten_rows import rows  # noqa: E402
from syno.graph.from_torch import CannotImport, from_fx  # noqa: E402
from syno.graph.reference import run_reference  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

MOST = None if os.environ.get("OPINFO_SAMPLES") == "all" else 3
#: Samples of more elements than this add time and nothing else.
MOST_ELEMENTS = 20_000

PACKETS = sorted({name.split(".")[1] for name in rows()})


def operators() -> list[Any]:
    """The entries of PyTorch's table that call a function with a row, directly or through an alias."""
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules.setdefault("expecttest", stand_in)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db

    known = set(PACKETS)

    def has_row(op: Any) -> bool:
        names = {op.name, op.aten_name, op.name.rpartition(".")[2], *(a.name for a in op.aliases)}
        return bool(names & known) and torch.float32 in op.dtypes

    return [op for op in op_db if has_row(op)]


class Differs(AssertionError):
    """A row's result is not PyTorch's."""


def function_name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", function))


def outcome(function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]) -> str:
    """How one call comes out: `programs`, `host` where PyTorch runs part of it, or `refused`.

    Raises:
        Differs: it comes out wrong.
    """
    leaves, spec = pytree.tree_flatten((args, named))
    places = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def call(*tensors: Tensor) -> Any:
        filled = list(leaves)
        for n, tensor in zip(places, tensors, strict=True):
            filled[n] = tensor
        given, by_name = pytree.tree_unflatten(filled, spec)
        return tuple(
            leaf
            for leaf in pytree.tree_leaves(function(*given, **by_name))
            if isinstance(leaf, Tensor)
        )

    # Each in memory of its own, as the network will be given it.
    tensors = [leaves[n].detach().contiguous().clone() for n in places]
    with torch.no_grad():
        try:
            wanted = call(*(t.clone() for t in tensors))
        except RuntimeError:  # PyTorch refuses a view of memory beside the tensor
            if "as_strided" not in function_name(function):
                raise
            return "untraced"
        try:
            graph = make_fx(call, tracing_mode="fake", pre_dispatch=True)(*tensors)
        except Exception:  # what cannot be traced is not the importer's
            return "untraced"
        if any(is_random(node) for node in graph.graph.nodes):
            return "random"
        try:
            imported = from_fx(graph, tensors)
        except CannotImport:
            return "refused"
        inputs = imported.flatten(tensors, {})
        made = run_reference(imported.network, inputs)
        results = imported.unflatten([made[v.name] for v in imported.network.outputs])
    assert len(results) == len(wanted)
    for ours, theirs in zip(results, wanted, strict=True):
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            raise Differs(
                f"{ours.dtype} {list(ours.shape)}, not {theirs.dtype} {list(theirs.shape)}"
            )
        if not is_close(ours, theirs):
            raise Differs(f"{ours.flatten()[:8]} is not {theirs.flatten()[:8]}")
    host = any(node.host is not None for node in imported.network.nodes)
    return "host" if host else "programs"


def is_random(node: Any) -> bool:
    """Attention is tagged so, and draws nothing without dropout."""
    dropout = [*node.args, *[0.0] * 5][4] if "attention" in str(node.target) else 1.0
    dropout = node.kwargs.get("dropout_p", dropout)
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) and dropout != 0


def is_close(ours: Tensor, theirs: Tensor) -> bool:
    if not theirs.is_floating_point():
        return bool(torch.equal(ours, theirs))
    a, b = ours.double(), theirs.double()
    finite = b[b.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 1.0
    few = 2e-2 if theirs.dtype == torch.bfloat16 else 1e-4
    return bool(torch.allclose(a, b, rtol=few, atol=1e-6 + 1e-6 * scale, equal_nan=True))


def samples(op: Any) -> Iterator[Any]:
    torch.manual_seed(0)
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=False):
        tensors = [
            t
            for t in pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
            if isinstance(t, Tensor)
        ]
        if all(t.layout == torch.strided and t.numel() <= MOST_ELEMENTS for t in tensors):
            yield sample


@pytest.mark.parametrize("op", operators(), ids=lambda op: op.formatted_name)
def test_samples_of_an_operator_agree_or_are_run_by_pytorch(
    op: Any, record_property: Callable[[str, object], None]
) -> None:
    counts: dict[str, int] = {}
    every = list(islice(samples(op), None if MOST is None else 400))
    step = 1 if MOST is None else max(1, len(every) // MOST)  # of all kinds, not the first kind
    for sample in every[::step][:MOST]:
        came = outcome(op.op, (sample.input, *sample.args), sample.kwargs)
        counts[came] = counts.get(came, 0) + 1
    for came, count in counts.items():
        record_property(came, count)
