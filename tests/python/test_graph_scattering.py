"""Elements written to, and sampled at, places that data say: by the engine against PyTorch, compiled whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import syno  # noqa: E402
from syno.errors import ShapeError  # noqa: E402


class _Of(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *tensors: Tensor) -> Tensor:
        return self._function(*tensors)


def assert_compiled(function: Callable[..., Tensor], *tensors: Tensor, few: float = 1e-5) -> None:
    """Compiled whole, without a call of PyTorch, it gives what PyTorch gives."""
    fast = syno.compile(_Of(function), tensors)
    assert not fast.fallbacks, str(fast)
    torch.testing.assert_close(fast(*tensors), function(*tensors), rtol=few, atol=few)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def whole(seed: int, most: int, *shape: int) -> Tensor:
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin"])
def test_elements_are_combined_where_indices_say(reduce: str) -> None:
    x, at, src = drawn(1, 5, 4), whole(2, 5, 7, 3), drawn(3, 7, 4)
    assert_compiled(
        lambda x, at, src: x.scatter_reduce(0, at, src, reduce, include_self=True), x, at, src
    )


def test_elements_are_written_where_indices_say() -> None:
    x, src = drawn(1, 3, 6), drawn(2, 3, 2)
    at = torch.tensor([[0, 5], [2, 1], [4, 3]])
    assert_compiled(lambda x, at, src: x.scatter(1, at, src), x, at, src)
    assert_compiled(lambda x, at: x.scatter(1, at, 2.5), x, at)
    assert_compiled(lambda x, at, src: x.scatter_add(1, at, src), x, at.clone().fill_(3), src)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("picked", [(0,), (1,), (0, 1), (0, 2), (1, 2)])
def test_values_are_put_at_indices_of_any_dimensions(
    picked: tuple[int, ...], accumulate: bool
) -> None:
    x = drawn(1, 4, 5, 6)
    grid = [torch.randperm(4, generator=torch.Generator().manual_seed(9))[:3] for _ in picked]
    at = [None, None, None]
    for d, index in zip(picked, grid, strict=True):
        at[d] = index + (1 if d else 0)  # type: ignore[call-overload]
    while at[-1] is None:
        at.pop()
    values = drawn(3, *x[tuple(slice(None) if i is None else i for i in at)].shape)

    def put(x: Tensor, values: Tensor, *given: Tensor) -> Tensor:
        left = list(given)
        indices = [None if i is None else left.pop(0) for i in at]
        return torch.ops.aten.index_put(x, indices, values, accumulate)

    assert_compiled(put, x, values, *grid_of(at))


def grid_of(at: list[Any]) -> list[Tensor]:
    return [index for index in at if index is not None]


def test_a_value_is_put_where_a_computed_mask_holds() -> None:
    x = drawn(1, 4, 5)

    def masked(x: Tensor) -> Tensor:
        y = x * 2
        y[x > 0] = -1.0
        return y

    assert_compiled(masked, x)


def test_every_so_many_elements_are_replaced() -> None:
    x, src = drawn(1, 4, 11, 3), drawn(2, 4, 4, 3)
    assert_compiled(lambda x, s: torch.slice_scatter(x, s, 1, 1, 11, 3), x, src)
    assert_compiled(lambda x, s: torch.slice_scatter(x, s, 1, 2, 6, 1), x, src)


@pytest.mark.parametrize("padding", [-1, 2])
def test_gradients_of_a_table_add_up(padding: int) -> None:
    gradient, at = drawn(1, 3, 7, 4), whole(2, 5, 3, 7)
    assert_compiled(
        lambda g, at: torch.ops.aten.embedding_dense_backward(g, at, 5, padding, False),
        gradient,
        at,
    )


def test_an_index_out_of_range_is_an_error_at_run_time() -> None:
    x, at, src = drawn(1, 5, 4), whole(2, 5, 3, 4), drawn(3, 3, 4)
    fast = syno.compile(_Of(lambda x, at, src: x.scatter_add(0, at, src)), (x, at, src))
    with pytest.raises(ShapeError, match="outside"):
        fast(x, at + 5, src)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_tensors_are_sampled_between_their_elements(mode: str, padding: str, align: bool) -> None:
    x, grid = drawn(1, 2, 3, 5, 7), drawn(2, 2, 4, 6, 2) * 1.2
    assert_compiled(lambda x, g: F.grid_sample(x, g, mode, padding, align), x, grid, few=2e-4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_volumes_are_sampled(mode: str) -> None:
    x, grid = drawn(1, 1, 2, 3, 4, 5), drawn(2, 1, 2, 3, 4, 3)
    assert_compiled(lambda x, g: F.grid_sample(x, g, mode, "border", False), x, grid, few=2e-4)


def test_a_dimension_of_one_element_reflects_to_it() -> None:
    x, grid = drawn(1, 1, 2, 1, 4), drawn(2, 1, 3, 3, 2) * 3
    assert_compiled(lambda x, g: F.grid_sample(x, g, "bilinear", "reflection", True), x, grid)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_sampling_is_one_step(mode: str) -> None:
    x, grid = drawn(1, 2, 3, 20, 30), drawn(2, 2, 40, 25, 2)
    fast = syno.compile(_Of(lambda x, g: F.grid_sample(x, g, mode, "zeros", False)), (x, grid))
    assert [stage.what for stage in fast.network.stages] == ["sample"], str(fast)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_are_sampled_wherever_they_lie(dtype: torch.dtype) -> None:
    x = drawn(1, 2, 3, 20, 30).to(dtype).contiguous(memory_format=torch.channels_last)
    grid = drawn(2, 2, 2, 40, 25).to(dtype).permute(0, 2, 3, 1)
    for padding in ("zeros", "border", "reflection"):
        assert_compiled(
            lambda x, g, p=padding: F.grid_sample(x, g, "bilinear", p, True), x, grid, few=2e-4
        )


def test_what_is_outside_does_not_count() -> None:
    """Beside an infinite element, too, and at places that are no numbers."""
    x, grid = torch.full((1, 1, 2, 2), torch.inf), torch.full((1, 1, 3, 2), 7.0)
    grid[0, 0, 1] = torch.nan
    fast = syno.compile(
        _Of(lambda x, g: F.grid_sample(x, g, "nearest", "zeros", False)),
        (drawn(1, 1, 1, 2, 2), grid),
    )
    torch.testing.assert_close(fast(x, grid), torch.zeros(1, 1, 1, 3))
