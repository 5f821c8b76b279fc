"""ONNX operators that PyTorch's functions compute: each against NumPy, on whole numbers that single precision lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from syno import onnx_backend
from syno.errors import ShapeError, UnsupportedOp
from syno.graph.onnx_host import HOSTED

LARGE = 2**40


def run(
    op: str,
    inputs: list[Any],
    *,
    known: int = 9,
    kinds: tuple[str, ...] = (),
    rank: int | None = None,
    **attributes: Any,
) -> Any:
    """The results of one node, compiled.

    Args:
        known: inputs from this number on are constants of the model.
        kinds: the results' element types; usually the last input's.
        rank: of the results; usually the highest of the inputs.
    """
    element = helper.np_dtype_to_tensor_dtype
    names = [f"i{k}" for k in range(len(inputs))]
    wanted = {f"y{k}": np.dtype(kind) for k, kind in enumerate(kinds or [inputs[-1].dtype])}
    rank = max(x.ndim for x in inputs) if rank is None else rank
    graph = helper.make_graph(
        [helper.make_node(op, names, list(wanted), **attributes)],
        "g",
        [
            helper.make_tensor_value_info(name, element(x.dtype), x.shape)
            for name, x in zip(names[:known], inputs[:known], strict=True)
        ],
        [
            helper.make_tensor_value_info(y, element(kind), [f"{y}{d}" for d in range(rank)])
            for y, kind in wanted.items()
        ],
        [
            numpy_helper.from_array(x, name)
            for name, x in zip(names[known:], inputs[known:], strict=True)
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return onnx_backend.prepare(model, compiled=True).run(inputs[:known])


def numbers(kind: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    ends = np.iinfo(kind)
    low, high = max(ends.min, -LARGE), min(ends.max, LARGE)
    return np.random.default_rng(seed).integers(low, high, shape, dtype=kind, endpoint=True)


def toward_zero(a: Any, b: Any) -> Any:
    return (a.astype(object) - np.fmod(a, b).astype(object)) // b.astype(object)


TWO: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Add": (np.add, {}),
    "Sub": (np.subtract, {}),
    "Mul": (np.multiply, {}),
    "Max": (np.maximum, {}),
    "Min": (np.minimum, {}),
    "BitwiseAnd": (np.bitwise_and, {}),
    "BitwiseOr": (np.bitwise_or, {}),
    "BitwiseXor": (np.bitwise_xor, {}),
}
ONE: dict[str, Callable[..., Any]] = {
    "Neg": np.negative,
    "Abs": np.abs,
    "Sign": np.sign,
    "BitwiseNot": np.invert,
}
#: Tested below, each on its own.
OTHERS = {"Pow", "Div", "Mod", "BitShift", "Where", "Trilu", "CumSum", "TopK", "Det"}


def test_every_function_is_tested() -> None:
    assert set(HOSTED) == {*TWO, *ONE, *OTHERS}


@pytest.mark.parametrize("kind", ["int64", "int32"])
@pytest.mark.parametrize("op", TWO)
def test_two_whole_numbers(op: str, kind: str) -> None:
    a, b = numbers(kind, (3, 1, 5), 1), numbers(kind, (4, 5), 2)
    function, attributes = TWO[op]
    (result,) = run(op, [b, a], rank=3, **attributes)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result, function(b, a))
    assert result.dtype == a.dtype


@pytest.mark.parametrize("kind", ["int64", "int32"])
@pytest.mark.parametrize("op", ONE)
def test_one_whole_number(op: str, kind: str) -> None:
    x = numbers(kind, (3, 7))
    (result,) = run(op, [x])
    np.testing.assert_array_equal(result, ONE[op](x))


def test_quotients_are_rounded_to_zero_and_remainders_have_a_sign() -> None:
    a, b = numbers("int64", (50,), 1), numbers("int64", (50,), 2) // 10**9
    b[b == 0] = 3
    (quotient,) = run("Div", [a, b])
    np.testing.assert_array_equal(quotient, toward_zero(a, b).astype(np.int64))
    (remainder,) = run("Mod", [a, b])
    np.testing.assert_array_equal(remainder, np.mod(a, b))
    (remainder,) = run("Mod", [a, b], fmod=1)
    np.testing.assert_array_equal(remainder, np.fmod(a, b))
    b[7] = 0  # nobody says what it is, and it ends nothing
    (quotient,) = run("Div", [a, b])
    np.testing.assert_array_equal(
        np.delete(quotient, 7), np.delete(toward_zero(a, b | (b == 0)), 7).astype(np.int64)
    )


@pytest.mark.parametrize("way", ["LEFT", "RIGHT"])
def test_bits_are_shifted(way: str) -> None:
    x, by = numbers("uint8", (40,)), (numbers("uint8", (40,), 3) % 8).astype(np.uint8)
    (result,) = run("BitShift", [x, by], direction=way)
    np.testing.assert_array_equal(result, x << by if way == "LEFT" else x >> by)
    with pytest.raises(ShapeError, match="UP"):
        run("BitShift", [x, by], direction="UP")


def test_one_of_two_whole_numbers_is_chosen() -> None:
    a, b = numbers("int64", (3, 4), 1), numbers("int64", (3, 4), 2)
    condition = a > b
    (result,) = run("Where", [condition, a, b])
    np.testing.assert_array_equal(result, np.where(condition, a, b))


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [-6, -1, 0, 2, 9])
def test_triangles_of_whole_numbers(upper: int, k: int) -> None:
    x = numbers("int64", (2, 4, 5))
    (result,) = run("Trilu", [x, np.asarray(k)], known=1, upper=upper, kinds=("int64",))
    np.testing.assert_array_equal(result, (np.triu if upper else np.tril)(x, k))


@pytest.mark.parametrize("backwards", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_running_sums_of_whole_numbers(backwards: int, exclusive: int) -> None:
    x = numbers("int32", (3, 6)) // 100
    how: dict[str, Any] = {"reverse": backwards, "exclusive": exclusive, "kinds": ("int32",)}
    (result,) = run("CumSum", [x, np.asarray(-1)], known=1, **how)
    turned = x[:, ::-1] if backwards else x
    sums = np.cumsum(turned, -1, dtype=np.int32) - (turned if exclusive else 0)
    np.testing.assert_array_equal(result, sums[:, ::-1] if backwards else sums)


@pytest.mark.parametrize("exponents", ["int64", "int32", "float32"])
def test_powers_of_whole_numbers(exponents: str) -> None:
    x, by = numbers("int64", (5, 7)) // 2**33, np.arange(7).astype(exponents) % 4
    (result,) = run("Pow", [x, by], kinds=("int64",))
    np.testing.assert_array_equal(result, x ** by.astype(np.int64))
    (result,) = run(
        "Pow", [np.asarray([9, 2, -8]), np.asarray([0.5, -1, 3], np.float32)], kinds=("int64",)
    )
    np.testing.assert_array_equal(result, [3, 0, -512])


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_the_first_of_equal_elements_comes_first(largest: int, axis: int, kind: str) -> None:
    x = np.random.default_rng(4).integers(0, 5, (6, 8)).astype(kind)
    how: dict[str, Any] = {"axis": axis, "largest": largest, "kinds": (kind, "int64")}
    values, places = run("TopK", [x, np.asarray([4])], known=1, **how)
    order = np.argsort(-x if largest else x, axis, kind="stable")
    order = np.take(order, range(4), axis)
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))
    with pytest.raises(ShapeError, match="TopK of 90 elements"):
        run("TopK", [x, np.asarray([90])], known=1, **how)


def test_determinants() -> None:
    x = np.random.default_rng(5).standard_normal((3, 4, 4)).astype(np.float32)
    (result,) = run("Det", [x], rank=1)
    np.testing.assert_allclose(result, np.linalg.det(x.astype(float)), 1e-4, 1e-5)


def test_what_no_function_takes_is_refused() -> None:
    x = numbers("int64", (4,))
    with pytest.raises(UnsupportedOp, match="Where"):
        run("Where", [x > 0, x, x.astype(np.int32)])
