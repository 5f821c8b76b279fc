"""Steps of forward and backward, of the kernel and of the peers that train."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from kernelbench.cases import Case
from kernelbench.forms import TOLERANCE, difference, forms_of
from kernelbench.limit import time_limit
from kernelbench.peers import WHOLE, Form, first_line, graph_of, result_array
from kernelbench.results import Settings


def training_contestants(
    case: Case,
    tensors: Sequence[Tensor],
    settings: Settings,
    absent: dict[str, str],
    at_work: Callable[[int], None],
) -> tuple[dict[str, Callable[[], Any]], float]:
    """Steps of forward and backward: gradients of data and weights, every weight changing."""
    from syno.torch.ops import as_function

    operator = case.operator
    leaves = [t.clone().requires_grad_() for t in tensors]
    function = as_function(operator)
    cotangent = torch.randn(operator.shapes[operator.outputs[0]], dtype=tensors[0].dtype)

    def step(forward: Callable[..., Tensor]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(forward(*leaves), leaves, cotangent)

    torch._dynamo.reset()
    contestants = {"syno": step(function)}
    expected = [result_array(g) for g in contestants["syno"]()]
    error = 0.0
    for number, name in enumerate(settings.peers):
        if name in absent:
            continue
        if name not in ("eager", "compile"):
            absent[name] = "trains nothing"
            continue
        at_work(number)
        for label, form in forms_of(case).items():
            try:
                with time_limit(settings.prepare_s):
                    forward = graph_of(Form(form, operator.inputs, {}), leaves).forward
                    if name == "compile":
                        forward = torch.compile(forward, **WHOLE)
                    call = step(forward)
                    got = [result_array(g) for g in call()]
            except Exception as problem:  # whatever inductor throws is the reason
                absent[f"{name} {label}"] = first_line(problem)
                continue
            worst = max(difference(g, e) for g, e in zip(got, expected, strict=True))
            if worst > TOLERANCE[case.dtype]:
                absent[f"{name} {label}"] = f"its gradients differ by {worst:.1e}"
            else:
                error = max(error, worst)
                contestants[f"{name} {label}"] = call
        at_work(-1)
    return contestants, error
