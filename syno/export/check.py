"""What the formats share: example inputs, and the verdict on an exported artefact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from syno.errors import FormatError
from syno.kernels.kernel import APART
from syno.operators.operator import Operator
from syno.torch.module import Op
from syno.torch.native import TORCH


def tolerance(value: Any) -> float:
    """By how much artefacts may differ from what they were made of, which may add in another order: of the
    largest value.

    Args:
        value: a result; half precision rounds after every layer.
    """
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return max(map(tolerance, value), default=APART["float32"])
    least = APART["float32"]
    rounds = isinstance(value, Tensor) and value.is_floating_point()
    return max(least, 8 * torch.finfo(value.dtype).eps) if rounds else least


def example_arrays(operator: Operator, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Standard normal float32 values for every input, the same on every machine."""
    rng = np.random.default_rng(seed)
    shapes = operator.shapes
    return {name: rng.standard_normal(shapes[name]).astype(np.float32) for name in operator.inputs}


def as_module(what: Operator | nn.Module, dtype: str = "float32") -> nn.Module:
    """An operator as a module with weights of its own and of this dtype; a module as it is."""
    if isinstance(what, nn.Module):
        return what
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    try:
        return Op(what, dtype=TORCH[dtype])
    finally:
        torch.random.set_rng_state(state)


#: Positional and named arguments of a call.
Call = tuple[tuple[Any, ...], dict[str, Any]]


def call_of(what: Operator | nn.Module, call: Call | None, dtype: str = "float32") -> Call:
    """The caller's example, or random data of an operator's shapes and this dtype."""
    if call is not None:
        return call
    assert isinstance(what, Operator)
    arrays = example_arrays(what)
    return tuple(torch.from_numpy(arrays[name]).to(TORCH[dtype]) for name in what.data), {}


def operators_in(model: nn.Module) -> Iterator[tuple[str, Op]]:
    """Names and modules of the operators in a model."""
    for name, module in model.named_modules():
        if isinstance(module, Op):
            yield name, module


def write_weights(model: nn.Module, path: Path, metadata: dict[str, str] | None = None) -> None:
    """A model's values as safetensors. FormatError when the file cannot be written."""
    from safetensors import SafetensorError
    from safetensors.torch import save_model

    try:
        save_model(model, str(path), metadata=metadata)
    except SafetensorError as error:
        raise FormatError(f"[export] {path.name} cannot be written: {error}") from error


def compare(name: str, got: Any, expected: Any, limit: float | None = None) -> float:
    """Largest difference; FormatError when it is beyond `limit` (by default `tolerance`) of the largest value."""
    differences = []
    if limit is None:
        limit = tolerance(expected)
    for a, b in zip(_arrays(got), _arrays(expected), strict=True):
        if a.shape != b.shape:
            raise FormatError(f"[export] the exported {name} returns {a.shape}, not {b.shape}")
        scale = float(np.abs(b).max(initial=0.0))
        difference = float(np.abs(a - b).max(initial=0.0))
        if not difference <= limit * max(scale, 1e-30):
            raise FormatError(
                f"[export] the exported {name} differs by {difference:.1e} where values reach "
                f"{scale:.1e}; it was not kept"
            )
        differences.append(difference)
    return max(differences, default=0.0)


def _arrays(value: Any) -> list[np.ndarray[Any, Any]]:
    if isinstance(value, Tensor):
        return [value.detach().to(torch.float64).numpy()]
    if isinstance(value, (tuple, list)):
        return [array for part in value for array in _arrays(part)]
    if isinstance(value, dict):
        return [array for part in value.values() for array in _arrays(part)]
    return [np.asarray(value, dtype=np.float64)]
