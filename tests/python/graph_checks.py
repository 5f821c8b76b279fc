"""Runs a function of graphs on tensors, for tests that compare with PyTorch and NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from syno.graph.building import Builder, Value
from syno.graph.reference import run_reference


def computed(function: Callable[..., Any], *tensors: torch.Tensor, more: Sequence[Any] = ()) -> Any:
    """What `function(build, *values, *more)` gives for these tensors: a tensor, or a list of them."""
    build = Builder("check")
    given = [
        build.input(f"x{number}", tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for number, tensor in enumerate(tensors)
    ]
    made = function(build, *given, *more)
    values: list[Value] = made if isinstance(made, list) else [made]
    network = build.network(values)
    held = run_reference(
        network, {value.name: t for value, t in zip(given, tensors, strict=True)}, keep=True
    )
    results = []
    for value in network.outputs:
        result = held[value.name]
        assert tuple(result.shape) == value.shape, (result.shape, value)
        assert str(result.dtype) == f"torch.{value.dtype}", (result.dtype, value)
        results.append(result)
    return results if isinstance(made, list) else results[0]


def same(result: torch.Tensor, expected: torch.Tensor, tolerance: float = 0.0) -> None:
    """Equal up to `tolerance` times the largest element; not-a-number and infinities in the same places."""
    torch.testing.assert_close(
        result,
        expected,
        rtol=tolerance,
        atol=tolerance * max(1.0, float(expected.abs().nan_to_num(0, 0, 0).max()))
        if tolerance
        else 0.0,
        equal_nan=True,
    )


def shape_of(rng: np.random.Generator, rank: int, most: int = 5) -> tuple[int, ...]:
    return tuple(int(extent) for extent in rng.integers(1, most + 1, rank))


def tensor(
    rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)
