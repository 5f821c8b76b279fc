"""ONNX operators that PyTorch's functions compute: each against NumPy, on whole numbers that single precision lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx_node import run

from syno.errors import ShapeError, UnsupportedOp
from syno.graph.onnx_rows import HOST_ROWS

LARGE = 2**40


def numbers(kind: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    ends = np.iinfo(kind)
    low, high = max(ends.min, -LARGE), min(ends.max, LARGE)
    return np.random.default_rng(seed).integers(low, high, shape, dtype=kind, endpoint=True)


def toward_zero(a: Any, b: Any) -> Any:
    return (a.astype(object) - np.fmod(a, b).astype(object)) // b.astype(object)


TWO: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Max": np.maximum,
    "Min": np.minimum,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
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
    assert {kind for _, kind in HOST_ROWS} == {*TWO, *ONE, *OTHERS}


@pytest.mark.parametrize("kind", ["int64", "int32"])
@pytest.mark.parametrize("op", TWO)
def test_two_whole_numbers(op: str, kind: str) -> None:
    a, b = numbers(kind, (3, 1, 5), 1), numbers(kind, (4, 5), 2)
    (result,) = run(op, [b, a], kind)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result, TWO[op](b, a))


@pytest.mark.parametrize("kind", ["int64", "int32"])
@pytest.mark.parametrize("op", ONE)
def test_one_whole_number(op: str, kind: str) -> None:
    x = numbers(kind, (3, 7))
    (result,) = run(op, [x], kind)
    np.testing.assert_array_equal(result, ONE[op](x))


def test_quotients_are_rounded_to_zero_and_remainders_have_a_sign() -> None:
    a, b = numbers("int64", (50,), 1), numbers("int64", (50,), 2) // 10**9
    b[b == 0] = 3
    (quotient,) = run("Div", [a, b], "int64")
    np.testing.assert_array_equal(quotient, toward_zero(a, b).astype(np.int64))
    (remainder,) = run("Mod", [a, b], "int64")
    np.testing.assert_array_equal(remainder, np.mod(a, b))
    (remainder,) = run("Mod", [a, b], "int64", fmod=1)
    np.testing.assert_array_equal(remainder, np.fmod(a, b))
    b[7] = 0  # nobody says what it is, and it ends nothing
    (quotient,) = run("Div", [a, b], "int64")
    np.testing.assert_array_equal(
        np.delete(quotient, 7), np.delete(toward_zero(a, b | (b == 0)), 7).astype(np.int64)
    )


@pytest.mark.parametrize("kind", ["int64", "int32"])
def test_no_quotient_ends_the_process(kind: str) -> None:
    """Processors stop at a whole number by 0, and at the least one by -1."""
    least = np.iinfo(kind).min
    a, b = np.asarray([least, least, 7, -9, 9], kind), np.asarray([-1, 0, -1, 0, -2], kind)
    for known in (None, 1):
        (quotient,) = run("Div", [a, b], kind, known=known)
        np.testing.assert_array_equal(quotient[[0, 2, 4]], [least, -7, -4])
        for how in ({}, {"fmod": 1}):
            (remainder,) = run("Mod", [a, b], kind, known=known, **how)
            np.testing.assert_array_equal(remainder[[0, 2]], [0, 0])


@pytest.mark.parametrize("way", ["LEFT", "RIGHT"])
def test_bits_are_shifted(way: str) -> None:
    x, by = numbers("uint8", (40,)), (numbers("uint8", (40,), 3) % 8).astype(np.uint8)
    (result,) = run("BitShift", [x, by], "uint8", direction=way)
    np.testing.assert_array_equal(result, x << by if way == "LEFT" else x >> by)
    with pytest.raises(ShapeError, match="UP"):
        run("BitShift", [x, by], "uint8", direction="UP")


def test_one_of_two_whole_numbers_is_chosen() -> None:
    a, b = numbers("int64", (3, 4), 1), numbers("int64", (3, 4), 2)
    condition = a > b
    (result,) = run("Where", [condition, a, b], "int64")
    np.testing.assert_array_equal(result, np.where(condition, a, b))


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [-6, -1, 0, 2, 9])
def test_triangles_of_whole_numbers(upper: int, k: int) -> None:
    x = numbers("int64", (2, 4, 5))
    (result,) = run("Trilu", [x, np.asarray(k)], "int64", known=1, upper=upper)
    np.testing.assert_array_equal(result, (np.triu if upper else np.tril)(x, k))


@pytest.mark.parametrize("backwards", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
def test_running_sums_of_whole_numbers(backwards: int, exclusive: int) -> None:
    x = numbers("int32", (3, 6)) // 100
    how = {"reverse": backwards, "exclusive": exclusive}
    (result,) = run("CumSum", [x, np.asarray(-1)], "int32", known=1, **how)
    turned = x[:, ::-1] if backwards else x
    sums = np.cumsum(turned, -1, dtype=np.int32) - (turned if exclusive else 0)
    np.testing.assert_array_equal(result, sums[:, ::-1] if backwards else sums)


@pytest.mark.parametrize("exponents", ["int64", "int32", "float32"])
def test_powers_of_whole_numbers(exponents: str) -> None:
    x, by = numbers("int64", (5, 7)) // 2**33, np.arange(7).astype(exponents) % 4
    (result,) = run("Pow", [x, by], "int64")
    np.testing.assert_array_equal(result, x ** by.astype(np.int64))
    x, by = np.asarray([9, 2, -8]), np.asarray([0.5, -1, 3], np.float32)
    (result,) = run("Pow", [x, by], "int64")
    np.testing.assert_array_equal(result, [3, 0, -512])
    x, by = np.asarray([3, -3, 1, -1, 5]), np.asarray([39, 39, -2, -3, -1]).astype("int32")
    (result,) = run("Pow", [x, by], "int64")  # double precision does not hold the first two
    np.testing.assert_array_equal(result, [3**39, -(3**39), 1, -1, 0])


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_the_first_of_equal_elements_comes_first(largest: int, axis: int, kind: str) -> None:
    x = np.random.default_rng(4).integers(0, 5, (6, 8)).astype(kind)
    how = {"axis": axis, "largest": largest}
    values, places = run("TopK", [x, np.asarray([4])], (kind, "int64"), known=1, **how)
    order = np.argsort(-x if largest else x, axis, kind="stable")
    order = np.take(order, range(4), axis)
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))
    with pytest.raises(ShapeError, match="TopK of 90 elements"):
        run("TopK", [x, np.asarray([90])], (kind, "int64"), known=1, **how)


def test_determinants() -> None:
    x = np.random.default_rng(5).standard_normal((3, 4, 4)).astype(np.float32)
    (result,) = run("Det", [x], "float32", rank=1)
    np.testing.assert_allclose(result, np.linalg.det(x.astype(float)), 1e-4, 1e-5)


def test_what_no_function_takes_is_refused() -> None:
    x = numbers("int64", (4,))
    with pytest.raises(UnsupportedOp, match="Where"):
        run("Where", [x > 0, x, x.astype(np.int32)], "int64")
