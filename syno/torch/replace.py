"""Putting operators in the place of layers: a new model, the user's is left alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import nn

from syno.errors import ShapeError, UnknownName
from syno.operators.operator import Operator
from syno.support.arguments import checked
from syno.support.inputs import unwrapped
from syno.torch.layers import Fit, Layer, describe
from syno.torch.module import Op
from syno.torch.sites import Site


@checked()
def replace(
    model: nn.Module, operators: Mapping[str | Site, Operator | Op], *, native: bool = True
) -> nn.Module:
    """A copy of `model` with operators instead of some layers.

    Args:
        model: is not changed; parameters of other layers are copied. Of what `torch.compile` returned, the
            module it was given.
        operators: what to put where. Keys are sites, or names as in `named_modules()`; one operator
            may serve many sites and gets the sizes of each.
        native: False trains and runs on the emitted PyTorch functions instead of kernels.
    Returns:
        The new model, in the mode of the old one. New weights are random, of a scale that keeps the
        variance the layer's weights gave; biases are kept.
    Raises:
        UnknownName: the model has no module of this name.
        ShapeError: the module is no replaceable layer, or the operator does not fit its shapes.
    """
    result = copy.deepcopy(unwrapped(model))
    for key, operator in operators.items():
        names = (key.name, *key.also) if isinstance(key, Site) else (key,)
        module = _module(result, names[0])
        found = describe(module)
        if found is None or found.layer is None or found.reason:
            why = found.reason if found else "it is neither a convolution nor linear"
            raise ShapeError(
                f"[replace] {names[0]} ({type(module).__name__}) cannot be replaced: {why}"
            )
        if isinstance(key, Site) and key.layer is not None and key.layer != found.layer:
            raise ShapeError(
                f"[replace] {names[0]} is another layer than the site was found on: {found.layer}, not "
                f"{key.layer}. Give the model of the site, or find the sites of this one"
            )
        if isinstance(operator, Op):
            new = copy.deepcopy(operator)
        else:
            new = _fitted(operator, names[0], key, found.layer, module, native)
        new.train(module.training)
        for name in names:
            parent, _, child = name.rpartition(".")
            if name:
                setattr(result.get_submodule(parent), child, new)
            else:
                result = new
    keep_calling_layers(result)
    return result


def keep_calling_layers(model: nn.Module) -> None:
    """Transformer encoders in evaluation mode hand the weights of their layers to one fused function, which
    knows nothing of operators; these go on calling their layers.

    Args:
        model: changed in place: those encoders and encoder layers in it that hold an `Op`.
    """

    def holds(module: nn.Module) -> bool:
        return any(isinstance(each, Op) for each in module.modules())

    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer) and holds(module):
            module.activation_relu_or_gelu = 0
        elif isinstance(module, nn.TransformerEncoder) and holds(module):
            module.enable_nested_tensor = module.use_nested_tensor = False


def _module(model: nn.Module, name: str) -> nn.Module:
    try:
        return model.get_submodule(name)
    except AttributeError as error:
        layers = [n for n, m in model.named_modules() if describe(m) is not None]
        raise UnknownName(
            f"[replace] the model has no module {name!r}; its layers are: {', '.join(layers)}"
        ) from error


def _fitted(
    operator: Operator,
    name: str,
    key: str | Site,
    layer: Layer,
    module: nn.Module,
    native: bool,
) -> Op:
    if isinstance(key, Site):
        concrete = at_fit(operator, key.fits[0])
    else:
        concrete = _by_channels(operator, name, layer)
    weight = module.get_parameter("weight")
    # Variance the layer gave its outputs; the operator starts with the same, so that whatever scheme
    # initialised the model goes on holding.
    variance = float(weight.detach().float().pow(2).mean()) * layer.fan_in
    new = Op(
        concrete,
        layer=layer,
        variance=variance,
        native=native,
        dtype=weight.dtype,
        device=weight.device,
    )
    bias = module._parameters.get("bias")
    if new.bias is not None and bias is not None:
        with torch.no_grad():
            new.bias.copy_(bias)
    for parameter in new.parameters():
        parameter.requires_grad_(weight.requires_grad)
    return new


def at_fit(operator: Operator, fit: Fit) -> Operator:
    """The operator at the sizes of one call of a layer.

    Args:
        operator: one data input, one output.
        fit: how the call's tensors are seen by an operator, one of `Site.fits`.
    Raises:
        ShapeError: the operator has another signature.
    """
    _one_data_input(operator)
    return operator.for_shapes({operator.data[0]: fit.input, operator.outputs[0]: fit.output})


def _one_data_input(operator: Operator) -> None:
    if len(operator.data) != 1 or len(operator.outputs) != 1:
        raise ShapeError(
            f"[replace] {operator.expr} has {len(operator.data)} data inputs and "
            f"{len(operator.outputs)} outputs; a layer has one of each"
        )


def _by_channels(operator: Operator, name: str, layer: Layer) -> Operator:
    """The valuation with the layer's channels, when their weights agree in shape."""
    _one_data_input(operator)
    axis = -1 if layer.kind == "linear" else 1
    fitting: dict[tuple[tuple[int, ...], ...], Operator] = {}
    for i in range(operator.valuation_count):
        concrete = operator.at(i)
        shapes = concrete.shapes
        x, y = shapes[concrete.data[0]], shapes[concrete.outputs[0]]
        if (x[axis], y[axis]) == (layer.in_channels, layer.out_channels):
            fitting.setdefault(tuple(shapes[w] for w in concrete.weights), concrete)
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    problem = "no valuation has" if not fitting else "several valuations have"
    raise ShapeError(
        f"[replace] {name}: {problem} {layer.in_channels} channels in and {layer.out_channels} out. "
        "Use the site from syno.sites(model, example) as the key, which knows all sizes"
    )
