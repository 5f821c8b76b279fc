"""Measures a training step of one operator: its forward and both gradients, every tensor changing between calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from kernelbench.cases import Case
from kernelbench.forms import difference, forms_of, inputs_of
from kernelbench.peers import Form, graph_of, result_array
from kernelbench.results import Settings
from kernelbench.training import training_contestants
from torch import Tensor

from derivebench.run import DERIVED, Result, result_of, timed
from syno.errors import SynoError
from syno.graph.backend import graphs_compiled


def run_training(case: Case, settings: Settings, seconds: float) -> Result:
    """The step with derived kernels, `seconds` of derivation for each of its two graphs, beside our step without and the
    peers', eager with channels last among them.

    Raises:
        SynoError: there is no step of it, or it computes something else.
    """
    tensors = inputs_of(case)
    absent: dict[str, str] = {}
    contestants, _ = training_contestants(case, tensors, settings, absent, lambda number: None)
    cotangent = torch.randn(case.operator.shapes[case.operator.outputs[0]])
    leaves = [t.clone().requires_grad_() for t in tensors]
    function = graph_of(
        Form(next(iter(forms_of(case).values())), case.operator.inputs, {}), leaves
    ).forward
    options = {"derive": True, "seconds": seconds, "threads": settings.threads}
    compiled = torch.compile(function, backend="syno", options=options)
    begin = time.perf_counter()
    with graphs_compiled() as graphs:
        step(compiled, leaves, cotangent)()
    search_s = time.perf_counter() - begin
    contestants[DERIVED] = step(compiled, leaves, cotangent)
    if "eager" in settings.peers and all(t.dim() == 4 for t in tensors):
        contestants["eager, channels last"] = _channels_last(function, tensors, cotangent)
    # Those of `_training_contestants` are compared with each other, for a cotangent of their own.
    exact = step(function, [t.double().requires_grad_() for t in tensors], cotangent.double())()
    got = [result_array(g) for g in contestants[DERIVED]()]
    worst = max(difference(g, result_array(e)) for g, e in zip(got, exact, strict=True))
    if worst > 1e-3:
        raise SynoError(f"[derive] {case.name}: the derived gradients differ by {worst:.1e}")
    timings = timed(contestants, settings)
    stages = [stage for graph in graphs if not isinstance(graph, str) for stage in graph.stages]
    steps = [f"{stage.name}: {stage.derived}" for stage in stages if stage.derived]
    return result_of(
        case,
        timings,
        absent,
        search_s=search_s,
        steps=steps,
        exact=False,
        max_rel_err=worst,
        multiply_adds=(sum(stage.flops for stage in stages), 0),
    )


def step(
    function: Callable[..., Tensor], leaves: Sequence[Tensor], cotangent: Tensor
) -> Callable[[], Any]:
    """A call that gives the gradients of all leaves."""
    return lambda: torch.autograd.grad(function(*leaves), leaves, cotangent)


def _channels_last(
    function: Callable[..., Tensor], tensors: Sequence[Tensor], cotangent: Tensor
) -> Callable[[], Any]:
    last: Any = torch.channels_last
    leaves = [t.clone().contiguous(memory_format=last).requires_grad_() for t in tensors]
    return step(function, leaves, cotangent.contiguous(memory_format=last))
