"""Rows of ONNX operators that reduce dimensions, or run along one."""

from __future__ import annotations

from syno.graph.building import Builder, NotCovered, Value
from syno.graph.functions import elementwise, norms, reductions
from syno.graph.functions.copying import check_elements, dimension
from syno.graph.functions.formulas import float_of, is_truth, pointwise
from syno.graph.onnx_op import Op, Tensor, row


@row(
    "ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip
def _reduce(op: Op) -> Tensor:
    dims, build, x = op.dims(1), op.build, op.x()
    keep = bool(op.get("keepdims", 1))
    if not dims:
        dims = [] if op.get("noop_with_empty_axes", 0) else None
    kind = op.kind.removeprefix("Reduce")
    if kind in ("L1", "L2", "SumSquare"):
        body = elementwise.unary("abs" if kind == "L1" else "square")(build, x)
        total = _reduced(build, "Sum", body, dims, keep)
        return elementwise.unary("sqrt")(build, total) if kind == "L2" else total
    if kind == "LogSum":
        return elementwise.unary("log")(build, _reduced(build, "Sum", x, dims, keep))
    return _reduced(build, kind, x, dims, keep)


def _reduced(build: Builder, kind: str, x: Value, dims: list[int] | None, keep: bool) -> Value:
    if is_truth(x):
        truth = {"Max": reductions.any, "Min": reductions.all}
        if kind not in truth:
            raise NotCovered("[onnx] sums of truth values")
        return truth[kind](build, x, dims, keep)
    if dims == []:
        if kind == "LogSumExp":
            return elementwise.unary("log")(build, elementwise.unary("exp")(build, x))
        return x
    functions = {
        "Sum": reductions.sum,
        "Mean": reductions.mean,
        "Prod": reductions.prod,
        "Max": reductions.amax,
        "Min": reductions.amin,
        "LogSumExp": reductions.logsumexp,
    }
    return functions[kind](build, x, dims, keep)


@row("ArgMax", "ArgMin")
def _place(op: Op) -> Tensor:
    x = op.x()
    axis = dimension(op.get("axis", 0), x.rank, "axis")
    keep, last = bool(op.get("keepdims", 1)), bool(op.get("select_last_index", 0))
    if op.kind == "ArgMin":
        x = elementwise.unary("neg")(op.build, x)
    if not last:
        return reductions.argmax(op.build, x, axis, keep)
    return op.build.cast(place_of_greatest(op.build, x, axis, last=True, keepdim=keep), "int64")


def place_of_greatest(build: Builder, x: Value, axis: int, *, last: bool, keepdim: bool) -> Value:
    """The first or last place of the greatest element along a dimension (of what is no number where there is such)."""
    float_of(build, [x])
    check_elements(x.shape)
    names = [f"i{d}" for d in range(x.rank)]
    kept = [name for d, name in enumerate(names) if d != axis]
    sizes = {name: x.shape[d] for d, name in enumerate(names) if d != axis}
    at = ", ".join("k" if d == axis else name for d, name in enumerate(names))
    row_at = ", ".join(kept)
    greatest = f"(x[{at}] == m[{row_at}] or x[{at}] != x[{at}])"
    extent = x.shape[axis]
    body = (
        f"max[k: {extent}] select({greatest}, index(k), -1)"
        if last
        else f"min[k: {extent}] select({greatest}, index(k), {extent})"
    )
    left = ", ".join(f"{name}: {sizes[name]}" for name in kept)
    result = left
    if keepdim:
        result = ", ".join(
            f"{name}: {1 if d == axis else x.shape[d]}" for d, name in enumerate(names)
        )
    return build.formula(f"m[{left}] = max[k: {extent}] x[{at}]; y[{result}] = {body}", {"x": x})


@row("CumSum")
def _cumsum(op: Op) -> Tensor:
    axis = int(op.number(1))
    return reductions.cumsum(
        op.build,
        op.x(),
        dimension(axis, op.rank(), "axis"),
        exclusive=bool(op.get("exclusive", 0)),
        reverse=bool(op.get("reverse", 0)),
    )


@row("CumProd")
def _cumprod(op: Op) -> Tensor:
    return reductions.cumprod(
        op.build,
        op.x(),
        dimension(int(op.number(1)), op.rank(), "axis"),
        exclusive=bool(op.get("exclusive", 0)),
        reverse=bool(op.get("reverse", 0)),
    )


@row("Softmax", "LogSoftmax")
def _softmax(op: Op) -> Tensor:
    axis = dimension(op.get("axis", -1), op.rank(), "axis")
    function = norms.softmax if op.kind == "Softmax" else norms.log_softmax
    return function(op.build, op.x(), axis)


@row("LpNormalization")
def _lp_normalization(op: Op) -> Tensor:
    p, x = op.get("p", 2), op.x()
    if p not in (1, 2):
        raise NotCovered(f"[onnx] normalisation by the {p}-norm")
    axis = dimension(op.get("axis", -1), x.rank, "axis")
    norm = reductions.vector_norm(op.build, x, p, axis, True)
    return pointwise(op.build, "select({n} == 0, 0, {x} / {n})", name="normalize", x=x, n=norm)
