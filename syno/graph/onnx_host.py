"""ONNX operators that no program computes, by PyTorch's own functions: whole numbers of 64 bits, bits, orders."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from syno.errors import ShapeError, shown
from syno.graph.building import NotCovered, Value
from syno.graph.functions.copying import dimension
from syno.graph.host import NAMES, HostCall, add_call, slots
from syno.graph.onnx_op import Op, row

_hosted = partial(row, host=True)


def _called(op: Op, function: Any, *args: Any, **named: Any) -> list[Value]:
    """The tensors a function gives, whose shapes and types it says of tensors without memory.

    Raises:
        NotCovered: it does not take these, or gives numbers of a type that graphs have not.
    """

    def empty(leaf: Any) -> Any:
        if not isinstance(leaf, Value):
            return leaf
        kind = "bool" if leaf.boolean else leaf.dtype
        return torch.empty(leaf.shape, dtype=getattr(torch, kind), device="meta")

    try:
        made = function(*map(empty, args), **{key: empty(value) for key, value in named.items()})
    except (RuntimeError, TypeError, IndexError) as error:
        reason = str(error).split("\n", 1)[0]
        raise NotCovered(f"[onnx] {function} of these tensors: {reason}") from None
    metas = list(made) if isinstance(made, (tuple, list)) else [made]
    if any(meta.dtype not in NAMES for meta in metas):
        raise NotCovered(f"[onnx] {op.kind} gives numbers of a type that graphs have not")
    outputs = [(tuple(meta.shape), NAMES[meta.dtype]) for meta in metas]
    note = f"{op.kind} runs in PyTorch: no program computes it on these numbers"
    call = HostCall(function, *slots((args, named)))
    return list(add_call(op.build, call, outputs, note, name=op.kind.lower()))


_WHOLE = {"int64", "int32", "int16", "int8", "uint8"}


def _whole(op: Op, count: int) -> list[Value]:
    """The inputs, which are whole numbers of one type.

    Raises:
        NotCovered: they are not.
    """
    values = [op.x(i) for i in range(count)]
    kinds = {"bool" if value.boolean else value.dtype for value in values}
    if len(kinds) > 1 or not kinds <= _WHOLE:
        raise NotCovered(f"[onnx] {op.kind} of numbers of types {', '.join(sorted(kinds))}")
    return values


_aten = torch.ops.aten
_ONE = {"Neg": _aten.neg.default, "Abs": _aten.abs.default, "Sign": _aten.sign.default, "BitwiseNot": _aten.bitwise_not.default}  # fmt: skip
_TWO = {
    "Add": _aten.add.Tensor, "Sub": _aten.sub.Tensor, "Mul": _aten.mul.Tensor, "BitwiseAnd": _aten.bitwise_and.Tensor,
    "BitwiseOr": _aten.bitwise_or.Tensor, "BitwiseXor": _aten.bitwise_xor.Tensor,
}  # fmt: skip
_MANY = {"Max": _aten.maximum.default, "Min": _aten.minimum.default}


@_hosted(*_ONE)
def _one(op: Op) -> Sequence[Value]:
    return _called(op, _ONE[op.kind], *_whole(op, 1))


@_hosted(*_TWO)
def _two(op: Op) -> Sequence[Value]:
    return _called(op, _TWO[op.kind], *_whole(op, 2))


@_hosted(*_MANY)
def _many(op: Op) -> Sequence[Value]:
    first, *rest = _whole(op, len(op.inputs))
    for each in rest:
        (first,) = _called(op, _MANY[op.kind], first, each)
    return [first]


def _without_zeros(op: Op) -> list[Value]:
    """Dividend and divisor, zeros as ones: what a whole number by zero is, nobody says, and processors stop there."""
    a, b = _whole(op, 2)
    known = op.known(1)
    if known is None or not known.all():
        (zero,) = _called(op, _aten.eq.Scalar, b, 0)
        (b,) = _called(op, _aten.add.Tensor, b, zero)
    return [a, b]


@_hosted("Div")
def _divided(op: Op) -> Sequence[Value]:
    """Towards zero. Processors stop at the least number by -1, too: the quotient by 1 is negated there."""
    a, b = _without_zeros(op)
    known = op.known(1)
    if known is not None and (known != -1).all():
        return _called(op, _aten.div.Tensor_mode, a, b, rounding_mode="trunc")
    (minus,) = _called(op, _aten.eq.Scalar, b, -1)
    (b,) = _called(op, _aten.add.Tensor, b, minus, alpha=2)
    (quotient,) = _called(op, _aten.div.Tensor_mode, a, b, rounding_mode="trunc")
    (turned,) = _called(op, _aten.neg.default, quotient)
    return _called(op, _aten.where.self, minus, turned, quotient)


@_hosted("Mod")
def _remainder(op: Op) -> Sequence[Value]:
    """With the sign of the divisor, or with `fmod` of the dividend."""
    function = _aten.fmod.Tensor if op.get("fmod", 0) else _aten.remainder.Tensor
    return _called(op, function, *_without_zeros(op))


@_hosted("BitShift")
def _shifted(op: Op) -> Sequence[Value]:
    way = op.get("direction")
    if way not in ("LEFT", "RIGHT"):
        raise ShapeError(f"[onnx] direction of BitShift is {shown(way)}; it is LEFT or RIGHT")
    left = way == "LEFT"
    function = _aten.bitwise_left_shift.Tensor if left else _aten.bitwise_right_shift.Tensor
    return _called(op, function, *_whole(op, 2))


@_hosted("Where")
def _where(op: Op) -> Sequence[Value]:
    condition, values = op.x(0), [op.x(1), op.x(2)]
    if len({value.dtype for value in values}) > 1 or any(value.boolean for value in values):
        raise NotCovered("[onnx] Where of numbers of two types")
    return _called(op, _aten.where.self, condition, *values)


@_hosted("Trilu")
def _triangle(op: Op) -> Sequence[Value]:
    k = int(op.number(1)) if op.has(1) else 0
    function = _aten.triu.default if op.get("upper", 1) else _aten.tril.default
    return _called(op, function, *_whole(op, 1), k)


@_hosted("CumSum")
def _running(op: Op) -> Sequence[Value]:
    (x,) = _whole(op, 1)
    axis = dimension(int(op.number(1)), x.rank, "axis")
    backwards = bool(op.get("reverse", 0))
    if backwards:
        (x,) = _called(op, _aten.flip.default, x, [axis])
    (sums,) = _called(op, _aten.cumsum.default, x, axis, dtype=getattr(torch, x.dtype))
    if op.get("exclusive", 0):
        (sums,) = _called(op, _aten.sub.Tensor, sums, x)
    return _called(op, _aten.flip.default, sums, [axis]) if backwards else [sums]


@_hosted("Pow")
def _power(op: Op) -> Sequence[Value]:
    """By whole numbers exact; else in double precision, cut off to whole numbers."""
    (base,), exponent = _whole(op, 1), op.x(1)
    if exponent.boolean or exponent.dtype not in (*_WHOLE, "float32", "float64"):
        raise NotCovered(f"[onnx] powers with exponents of type {exponent.dtype}")
    both = [base, exponent]
    if exponent.dtype not in _WHOLE:
        both = [op.build.cast(value, "float64") for value in both]
    (made,) = _called(op, _aten.pow.Tensor_Tensor, *both)
    # By the function that made them: what no whole number holds becomes the same number in any run.
    return _called(op, _aten._to_copy.default, made, dtype=getattr(torch, base.dtype))


@_hosted("TopK")
def _largest(op: Op) -> Sequence[Value]:
    """Of equal elements the first comes first."""
    x = op.x()
    axis = dimension(op.get("axis", -1), x.rank, "axis")
    k = int(op.number(1))
    if not 0 <= k <= x.shape[axis]:
        raise ShapeError(f"[onnx] TopK of {k} elements of {x.shape[axis]}")
    largest = bool(op.get("largest", 1))
    op.get("sorted", 1)  # in order they are in any case
    both = _called(op, _aten.sort.stable, x, stable=True, dim=axis, descending=largest)
    return [_called(op, _aten.slice.Tensor, each, axis, 0, k)[0] for each in both]


@_hosted("Det")
def _determinant(op: Op) -> Sequence[Value]:
    x = op.x()
    if x.dtype not in ("float32", "float64"):
        raise NotCovered(f"[onnx] determinants of numbers of type {x.dtype}")
    return _called(op, _aten.linalg_det.default, x)
