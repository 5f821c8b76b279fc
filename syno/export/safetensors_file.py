"""safetensors: all parameters and buffers, with the operators as JSON in the header.

`load()` puts the operators into the user's own model again and fills in the values.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from syno.errors import FormatError
from syno.export.check import Call, as_module, call_of, compare, operators_in, write_weights
from syno.operators.operator import Operator
from syno.support.files import not_a_file
from syno.torch.layers import Layer
from syno.torch.module import Op
from syno.torch.replace import keep_calling_layers

FILE = "model.safetensors"
_FORMAT, _VERSION = "syno-model", 1


def write(
    what: Operator | nn.Module, directory: Path, call: Call | None, dtype: str
) -> tuple[str, float]:
    """Writes `model.safetensors`, loads it into a copy with other values, and runs both."""
    model = as_module(what, dtype)
    save(model, directory / FILE)
    blank = copy.deepcopy(model)
    with torch.no_grad():
        for tensor in blank.state_dict().values():
            tensor.zero_()
    loaded = load(directory / FILE, blank)
    example = call_of(what, call, dtype)
    with torch.no_grad():
        expected, got = _run(model, example), _run(loaded, example)
    return "loaded into a blank copy and run", compare("safetensors file", got, expected, 0.0)


def _run(model: nn.Module, call: Call) -> Any:
    was = model.training
    args, named = call
    try:
        return model.eval()(*args, **named)
    finally:
        model.train(was)


def save(model: nn.Module, path: Path) -> None:
    """Writes a model's values and its operators to one file."""
    operators = {
        name: {"operator": module.operator.to_json(), "layer": _layer_dict(module.layer)}
        for name, module in operators_in(model)
    }
    header = {"format": _FORMAT, "version": _VERSION, "operators": operators}
    write_weights(model, path, {"syno": json.dumps(header)})


def load(path: str | Path, model: nn.Module) -> nn.Module:
    """A copy of `model` with the file's operators in their places and all its values.

    Args:
        path: a file that `save` wrote.
        model: the network before its layers were replaced, or after.
    Raises:
        FormatError: the file is no such file, newer, damaged, or of another network.
    """
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_model

    if kind := not_a_file(Path(path)):
        raise FormatError(f"[{path}] cannot be read as safetensors: it is {kind}")
    try:
        with safe_open(str(path), framework="pt") as file:
            header = _header((file.metadata() or {}).get("syno"), path)
    except (SafetensorError, OSError) as error:
        raise FormatError(f"[{path}] cannot be read as safetensors: {error}") from error
    result = copy.deepcopy(model)
    for name, entry in header["operators"].items():
        try:
            result = _put(result, name, entry)
        except (KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"[{path}] operator {name!r} has no place here: {error}") from error
    keep_calling_layers(result)
    try:
        load_model(result, str(path))
    except (RuntimeError, SafetensorError) as error:
        raise FormatError(f"[{path}] is of another network: {error}") from error
    return result


def _header(text: str | None, path: str | Path) -> dict[str, Any]:
    try:
        header = json.loads(text or "null")
    except ValueError as error:
        raise FormatError(f"[{path}] has a damaged header: {error}") from error
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        raise FormatError(f"[{path}] holds no syno model")
    if header.get("version") != _VERSION:
        raise FormatError(
            f"[{path}] has version {header.get('version')}; this syno reads {_VERSION}"
        )
    return header


def _put(model: nn.Module, name: str, entry: dict[str, Any]) -> nn.Module:
    present = model.get_submodule(name)
    operator = Operator.from_json(entry["operator"])
    bias = getattr(present, "bias", None) is not None
    like = next(present.parameters(), torch.empty(0))
    layer = _layer_from(entry["layer"])
    new = Op(operator, layer=layer, bias=bias if layer else None, dtype=like.dtype)
    new.to(like.device).train(present.training)
    if not name:
        return new
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, new)
    return model


def _layer_dict(layer: Layer | None) -> dict[str, Any] | None:
    import dataclasses

    return None if layer is None else dataclasses.asdict(layer)


def _layer_from(values: dict[str, Any] | None) -> Layer | None:
    if values is None:
        return None

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return Layer(**{key: tuples(value) for key, value in values.items()})
