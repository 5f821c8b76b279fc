"""Which operators of a model an example reaches, at which shapes, and with which values."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from syno.export.check import Call, operators_in
from syno.operators.operator import Operator
from syno.torch.layers import Fit
from syno.torch.module import Op
from syno.torch.native import shapes_of


@dataclass(frozen=True)
class Reached:
    """An operator of a model at the shapes of one call."""

    name: str
    """Of the module in the model; empty where it is the model."""
    module: Op
    operator: Operator
    tensors: dict[str, Tensor]
    """All inputs of the operator, weights among them."""
    fit: Fit | None
    """How the layer's input is brought to the operator's, where it stands for a layer."""

    @property
    def site(self) -> str:
        """What it is called in files."""
        return self.name or "operator"

    @property
    def dtype(self) -> torch.dtype:
        """Of the call's data."""
        return next((self.tensors[n] for n in self.module.operator.data), torch.empty(0)).dtype


def reached(model: nn.Module, call: Call) -> list[Reached]:
    """Every operator that the call reaches, in the order of calls, at every shape of its input."""
    seen: dict[tuple[str, tuple[torch.Size, ...]], tuple[Op, tuple[Tensor, ...]]] = {}
    hooks = []
    for name, module in operators_in(model):

        def record(op: Op, inputs: tuple[Tensor, ...], name: str = name) -> None:
            key = (name, tuple(t.shape for t in inputs))
            seen.setdefault(key, (op, tuple(t.detach().clone() for t in inputs)))

        hooks.append(module.register_forward_pre_hook(record))
    was = model.training
    model.eval()
    try:
        with torch.no_grad():
            model(*call[0], **call[1])
    finally:
        model.train(was)
        for hook in hooks:
            hook.remove()
    return [_reached(name, op, inputs) for (name, _), (op, inputs) in seen.items()]


def _reached(name: str, op: Op, inputs: tuple[Tensor, ...]) -> Reached:
    fit = None
    if op.layer is not None:
        fit = op._fit(inputs[0])
        inputs = (fit.enter(inputs[0]),)
    named = dict(zip(op.operator.data, inputs, strict=True))
    named |= {weight: getattr(op, own).detach() for weight, own in op._names.items()}
    operator = op.function.operator_for(shapes_of([named[each] for each in op.operator.inputs]))
    return Reached(name, op, operator, {each: named[each] for each in operator.inputs}, fit)


def around(fit: Fit | None, module: Op) -> list[str]:
    """What the layer does before and after the operator."""
    lines = []
    if fit is not None and (padding := fit.padding()):
        lines.append(f"before: the layer's input is changed: {padding}, with zeros")
    if module.bias is not None:
        lines.append("after: the layer adds its bias, one value an output channel")
    if fit is not None and (cropping := fit.cropping()):
        lines.append(f"after: the layer returns a part of the output: {cropping}")
    return lines
