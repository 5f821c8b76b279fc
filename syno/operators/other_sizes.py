"""The same operator at other shapes, or with other sizes: its formula read again, or its sizes solved for variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syno.errors import ShapeError, SynoError, UnknownName, unknown_name
from syno.operators.formula import Formula, Source, checked_extent, checked_whole
from syno.operators.operator import Operator
from syno.operators.sizes import Monomial, mismatch, solve


def for_shapes(
    operator: Operator, shapes: Mapping[str, Sequence[int]] | Sequence[Sequence[int]]
) -> Operator:
    """As :meth:`Operator.for_shapes`."""
    wanted = _shapes_by_name(operator, shapes)
    if operator.concrete and all(operator.shapes[name] == s for name, s in wanted.items()):
        return operator
    if operator._source is not None:
        return _read_again(operator, operator._source, wanted)
    symbolic = operator._origin or operator
    if symbolic.concrete:
        raise ShapeError(
            f"[operator] {operator.expr} was given as a program of fixed sizes {operator.shapes}; "
            f"shapes {wanted} do not fit it"
        )
    return _solve_for(symbolic, wanted, operator._index)


def size_names(operator: Operator) -> list[str]:
    """As :attr:`Operator.size_names`."""
    if operator._source is None:
        origin = operator.symbolic
        return [] if origin.concrete else sorted(origin.valuations[0])
    formula = Formula.read(operator._source.expr)
    alone = {
        index
        for name in operator.inputs
        for indices in formula.reads.get(name, [])
        for index in indices
        if index.isidentifier()
    }
    return sorted(alone | {name for name, _ in operator._source.sizes})


def beside(operator: Operator, name: str) -> list[str]:
    """Other sizes of the same dimension of an input: ``k`` beside ``j`` in ``exp(x[i,j]) / sum[k] exp(x[i,k])``."""
    if operator._source is None:
        return []
    reads = Formula.read(operator._source.expr).reads
    found: set[str] = set()
    for tensor in operator.inputs:
        for dimension in zip(*reads.get(tensor, []), strict=False):
            if name in dimension:
                found |= {index for index in dimension if index.isidentifier()}
    return sorted((found & set(size_names(operator))) - {name})


def with_sizes(operator: Operator, sizes: dict[str, int]) -> Operator:
    """As :meth:`Operator.with_sizes`."""
    for name in sizes:
        if name not in size_names(operator):
            raise unknown_name("size", name, size_names(operator))
    sizes = {name: checked_extent(name, value) for name, value in sizes.items()}
    if operator._source is None:
        values = operator.symbolic.valuations[operator._index or 0]
        return _with_valuation(operator.symbolic, {**values, **sizes})
    source, formula = operator._source, Formula.read(operator._source.expr)
    given = dict(source.sizes)

    def read(shapes: Mapping[str, Sequence[int]], values: Mapping[str, int]) -> Operator:
        return Operator.parse(
            source.expr, shapes=shapes, weights=source.weights, data=source.data, **values
        )

    try:
        if read({}, given).shapes == operator.shapes:
            return read({}, {**given, **sizes})
    except SynoError:
        pass  # it was read with shapes, too
    shapes = {}
    for name in operator.inputs:
        indices = formula.reads[name][-1] if name in formula.reads else []
        shapes[name] = [
            sizes.get(index, extent)
            for index, extent in zip(indices, operator.shapes[name], strict=True)
        ]
    return read(shapes, {**given, **{n: v for n, v in sizes.items() if n in given}})


def _shapes_by_name(
    operator: Operator, shapes: Mapping[str, Sequence[int]] | Sequence[Sequence[int]]
) -> dict[str, tuple[int, ...]]:
    if not isinstance(shapes, Mapping):
        if len(shapes) != len(operator.inputs):
            raise ShapeError(
                f"[operator] {len(shapes)} shapes for {len(operator.inputs)} inputs: "
                + ", ".join(operator.inputs)
            )
        shapes = dict(zip(operator.inputs, shapes, strict=True))
    names = (*operator.inputs, *operator.outputs)
    for name in shapes:
        if name not in names:
            raise UnknownName(
                f"[operator] no tensor is named {name!r}; there are: {', '.join(names)}"
            )
    return {
        name: tuple(checked_whole(f"shapes[{name!r}]", n) for n in shape)
        for name, shape in shapes.items()
    }


def _read_again(operator: Operator, source: Source, shapes: dict[str, tuple[int, ...]]) -> Operator:
    formula = Formula.read(source.expr)
    inputs = {name: shape for name, shape in shapes.items() if name in operator.inputs}
    sizes = dict(source.sizes)
    for name in formula.implied_by(inputs):
        sizes.pop(name, None)
    for name in operator.outputs:
        if name in shapes:
            sizes.update(formula.extents_of(name, shapes[name], sizes))
    try:
        result = Operator.parse(
            source.expr, shapes=inputs, weights=source.weights, data=source.data, **sizes
        )
    except ShapeError as error:
        raise ShapeError(
            f"[operator] {source.expr} cannot have tensors of shapes {shapes}: {error}"
        ) from error
    for name, shape in shapes.items():
        if result.shapes[name] != shape:
            raise ShapeError(
                f"[operator] {source.expr} has {name} of shape {result.shapes[name]} there, "
                f"not {shape}"
            )
    return result


def _solve_for(
    operator: Operator, shapes: dict[str, tuple[int, ...]], index: int | None
) -> Operator:
    dims = [
        (f"{name}, dimension {i}", Monomial.parse(text), extent)
        for name, shape in shapes.items()
        for i, (text, extent) in enumerate(_checked_rank(operator, name, shape))
    ]
    small = set(operator._program.coefficients)
    # The operator's own valuation first, then the others: coefficients may differ in them.
    order = list(range(operator.valuation_count))
    if index is not None:
        order.sort(key=lambda i: i != index)
    for base in order:
        values = operator.valuations[base]
        found = solve(dims, {n: v for n, v in values.items() if n in small})
        if found is not None:
            return _with_valuation(operator, {**values, **found})
    values = operator.valuations[order[0]]
    raise mismatch(dims, {n: v for n, v in values.items() if n in small})


def _with_valuation(operator: Operator, values: dict[str, int]) -> Operator:
    if values in operator.valuations:
        return operator.at(operator.valuations.index(values))
    program = operator._program.with_valuations([values])
    return Operator(program.at(0), origin=Operator(program), index=0)


def _checked_rank(operator: Operator, name: str, shape: tuple[int, ...]) -> list[tuple[str, int]]:
    sizes = operator._program.symbolic_shape(name)
    if len(sizes) != len(shape):
        raise ShapeError(
            f"[operator] {name} has {len(sizes)} dimensions [{', '.join(sizes)}], "
            f"but the shape {shape} has {len(shape)}"
        )
    return list(zip(sizes, shape, strict=True))
