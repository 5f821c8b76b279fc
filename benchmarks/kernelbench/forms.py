"""A case as tensors and as PyTorch writes it, and whether two results are one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kernelbench.cases import Case
from kernelbench.native import native_forms
from kernelbench.written import written_module
from syno.operators.operator import Operator
from syno.torch.native import TORCH

#: Largest difference of a peer's result from the kernel's, over the largest result. In bfloat16 peers round after
#: every stage.
TOLERANCE = {"float32": 1e-3, "float64": 1e-10, "bfloat16": 3e-2}


def inputs_of(case: Case, seed: int = 0) -> list[Tensor]:
    """Random inputs in order, strided as the case says."""
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for name in case.operator.inputs:
        shape = case.operator.shapes[name]
        strides = case.strides.get(name)
        dtype = TORCH[case.dtype]
        if strides is None:
            tensors.append(torch.randn(shape, generator=generator, dtype=dtype))
        else:
            span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
            bigger = torch.randn(span, generator=generator, dtype=dtype)
            tensors.append(bigger.as_strided(shape, strides))
    return tensors


def forms_of(case: Case) -> dict[str, Callable[..., Tensor]]:
    """The operator in PyTorch, by name: recognised native calls first, the emitted form where needed."""
    operator = case.operator
    native = native_forms(operator.program)
    forms: dict[str, Callable[..., Tensor]] = {}
    for name, form in native.items():
        if case.synthesised or name != "stages":
            forms[f"{name} {form.name}" if name != "stages" else "stages"] = form.function
    if case.synthesised or not forms:
        forms["emitted"] = _emitted(operator)
        whole = operator.one_scope
        if case.synthesised and whole is not None and whole.text() != operator.program.text():
            forms["einsum"] = _emitted(Operator.from_program(whole))
    return forms


def _emitted(operator: Operator) -> Callable[..., Tensor]:
    module = written_module(operator)
    names = [name for name, _ in module.named_parameters()]
    weights, data, inputs = operator.weights, operator.data, operator.inputs

    def run(*tensors: Tensor) -> Tensor:
        given = dict(zip(inputs, tensors, strict=True))
        parameters = dict(zip(names, (given[name] for name in weights), strict=True))
        result = torch.func.functional_call(module, parameters, tuple(given[name] for name in data))
        assert isinstance(result, Tensor)
        return result

    return run


def difference(got: Any, expected: Any) -> float:
    """The largest one, as a part of the largest value expected; infinite for other shapes and for no numbers."""
    if got.shape != expected.shape:
        return math.inf
    scale = float(np.abs(expected).max(initial=0.0))
    worst = float(np.abs(got - expected).max(initial=0.0))
    return worst / max(scale, 1e-30) if math.isfinite(worst) else math.inf
