"""Native PyTorch calls recognised in a program: convolution, matrix product, einsum, pooling, and more.

Recognition is by the indices of each scope and, for softmax, layer normalisation and attention, by
the structural key of the whole program. Whatever is recognised is compared with the kernel before it
is timed, so that a wrong row here cannot pass for a peer.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelbench.convolutions import Convolution, convolution, transposed_convolution
from kernelbench.scopes import (
    Affine,
    Listing,
    NotRecognised,
    Read,
    Scope,
    listing,
    number,
    read_of,
)
from kernelbench.tensors import (
    FUNCTIONS,
    Blocks,
    Environment,
    Step,
    Window,
    arranged,
    dimension,
    merged,
    opened,
    padded,
    split_blocks,
    with_gathers,
)
from syno import _core


@dataclass(frozen=True)
class Native:
    """A program as native calls: a function of all inputs in order, and what it calls."""

    calls: tuple[str, ...]
    function: Callable[..., Tensor]

    @property
    def name(self) -> str:
        return "+".join(self.calls)


# Products


def matrix_product(scope: Scope) -> tuple[str, Step]:
    """Two operands whose every dimension is one iterator."""
    scope, a, b, scale, sizes = _two_operands(scope)

    def run(values: Environment) -> Tensor:
        x, x_names = opened(values[a.tensor], a, scope)
        w, w_names = opened(values[b.tensor], b, scope)
        shared = [n for n in scope.traversal if n in x_names and n in w_names]
        rows = [n for n in scope.traversal if n in x_names and n not in w_names]
        columns = [n for n in scope.traversal if n in w_names and n not in x_names]
        inner = [n for n in x_names if n in scope.sums]
        if set(inner) != {n for n in w_names if n in scope.sums} or set(inner) != set(scope.sums):
            raise NotRecognised("a sum over one operand")
        e = scope.extents
        flat = [math.prod(e[n] for n in part) for part in (shared, rows, columns, inner)]
        x = arranged(x, x_names, [*shared, *rows, *inner]).reshape(flat[0], flat[1], flat[3])
        w = arranged(w, w_names, [*shared, *inner, *columns]).reshape(flat[0], flat[3], flat[2])
        if not shared:
            x, w = x.squeeze(0), w.squeeze(0)
        y = torch.matmul(x, w)
        names = [*shared, *rows, *columns]
        y = y.reshape([e[n] for n in names])
        y = merged(y.permute([names.index(n) for n in scope.traversal]), scope, sizes)
        return y if scale == 1 else y * scale

    return "matmul", run


def _two_operands(scope: Scope) -> tuple[Scope, Read, Read, float, dict[str, int]]:
    if scope.reduction != "sum":
        raise NotRecognised("no sum")
    reads, scale = scope.product()
    if len(reads) != 2:
        raise NotRecognised(f"{len(reads)} factors")
    scope, (a, b), sizes = split_blocks(scope, reads)
    for read in (a, b):
        for index, size in zip(read.indices, read.shape, strict=True):
            if isinstance(dimension(index, size, scope), Window):
                raise NotRecognised("a window")
    return scope, a, b, scale, sizes


def unfold_einsum(scope: Scope) -> tuple[str, Step]:
    """Windows unfolded, then one `torch.einsum`: a stage as the PyTorch of the paper has it."""
    if scope.reduction != "sum":
        raise NotRecognised("no sum")
    reads, scale = scope.product()
    scope, reads, sizes = split_blocks(scope, reads)
    letters = {name: chr(ord("a") + i) for i, name in enumerate(scope.extents)}
    result = "".join(letters[name] for name in scope.traversal)

    def run(values: Environment) -> Tensor:
        views = [opened(values[read.tensor], read, scope) for read in reads]
        terms = ["".join(letters[name] for name in names) for _, names in views]
        missing = [n for n in scope.traversal if not any(n in names for _, names in views)]
        if missing:
            raise NotRecognised(f"{', '.join(missing)} index nothing")
        y = torch.einsum(f"{','.join(terms)}->{result}", *(view for view, _ in views))
        y = merged(y, scope, sizes)
        return y if scale == 1 else y * scale

    return "einsum", run


# Pooling and other reductions


def pooling(scope: Scope) -> tuple[str, Step]:
    """`max` or `mean` of windows of one tensor."""
    read = read_of(scope.body)
    if read is None or scope.reduction not in ("max", "mean") or len(read.indices) < 3:
        raise NotRecognised("no pooling")
    windows: list[Window] = []
    shape = scope.shapes[read.tensor]
    for axis, (index, extent) in enumerate(zip(read.indices, shape, strict=True)):
        found = dimension(index, extent, scope)
        if isinstance(found, Blocks):
            found = Window(found.block, found.size, found.inner, 1, 0)
        if isinstance(found, Window) and found.position and found.tap in scope.sums:
            windows.append(found)
        elif not (isinstance(found, str) and found in scope.traversal) or windows or axis > 1:
            raise NotRecognised("no pooling")
    if len(windows) != len(read.indices) - 2 or len(scope.sums) != len(windows):
        raise NotRecognised("no pooling")
    kernel = [scope.sums[w.tap] for w in windows if w.tap]
    pads = [-w.offset for w in windows]
    stride, dilation = [w.stride for w in windows], [w.dilation for w in windows]
    outer = read.fill != (-math.inf if scope.reduction == "max" else 0.0)
    maximum = scope.reduction == "max"
    if not maximum and max(dilation) > 1:
        raise NotRecognised("dilated average pooling has no native call")
    call = (
        (F.max_pool1d, F.max_pool2d, F.max_pool3d)
        if maximum
        else (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
    )[len(windows) - 1]

    def run(values: Environment) -> Tensor:
        x = values[read.tensor]
        inside = list(pads)
        for i, window in enumerate(windows):
            positions = scope.traversal[str(window.position)]
            reach = (positions - 1) * stride[i] + (kernel[i] - 1) * dilation[i] + 1
            size = x.shape[2 + i]
            made = (size + 2 * pads[i] - (kernel[i] - 1) * dilation[i] - 1) // stride[i] + 1
            awkward = pads[i] < 0 or made != positions or pads[i] > kernel[i] // 2
            if awkward or (outer and (pads[i] or reach > size)):
                x = padded(x, 2 + i, pads[i], reach - pads[i] - size, read.fill)
                inside[i] = 0
        if maximum:
            return call(x, kernel, stride, inside, dilation)
        return call(x, kernel, stride, inside)

    order = [i.terms[0][0] for i in read.indices[:2] if isinstance(i, Affine)]
    order += [str(w.position) for w in windows]
    if list(scope.traversal) != order:
        raise NotRecognised("pooling into another order")
    return f"{'max' if maximum else 'avg'}_pool{len(windows)}d", run


_OPERATORS: dict[type, Callable[[Tensor, Tensor], Tensor]] = {
    ast.Add: torch.add,
    ast.Sub: torch.sub,
    ast.Mult: torch.mul,
    ast.Div: torch.div,
    ast.Pow: torch.pow,
}


def broadcast(scope: Scope) -> tuple[str, Step]:
    """Element-wise functions of broadcast views, then a plain reduction where there is one."""
    order = list(scope.extents)
    copies = read_of(scope.body) is not None
    reads = {
        node: with_gathers(read, scope)
        for node in ast.walk(scope.body)
        if isinstance(node, ast.expr) and (read := read_of(node)) is not None
    }

    def value(node: ast.expr, values: Environment) -> Tensor | float:
        literal = number(node)
        if literal is not None:
            return literal
        read = reads.get(node)
        if read is not None:
            view, names = opened(values[read.tensor], read, scope)
            return arranged(view, names, order)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            left, right = value(node.left, values), value(node.right, values)
            if isinstance(left, float) and not isinstance(right, float):
                left = torch.full((), left, dtype=right.dtype)
            return _OPERATORS[type(node.op)](left, right)  # type: ignore[arg-type]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand, values)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            arguments = [value(argument, values) for argument in node.args]
            if node.func.id in FUNCTIONS and isinstance(arguments[0], Tensor):
                return FUNCTIONS[node.func.id](arguments[0])
            if node.func.id in ("max", "min") and len(arguments) == 2:
                return _extreme(node.func.id, arguments)
        raise NotRecognised(f"the expression `{ast.unparse(node)[:60]}`")

    def run(values: Environment) -> Tensor:
        result = value(scope.body, values)
        if isinstance(result, float):
            result = torch.full((1,) * len(order), result)
        result = result.expand([scope.extents[name] for name in order])
        axes = tuple(range(len(scope.traversal), len(order)))
        if scope.reduction in ("sum", "mean"):
            return getattr(torch, scope.reduction)(result, dim=axes)
        if scope.reduction in ("max", "min"):
            return getattr(torch, f"a{scope.reduction}")(result, dim=axes)
        if axes:
            raise NotRecognised(f"the reduction {scope.reduction}")
        # A view would move nothing; the operator's result is memory of its own.
        return result.clone(memory_format=torch.contiguous_format) if copies else result

    return "elementwise" if not scope.sums else scope.reduction, run


def _extreme(word: str, arguments: Sequence[Tensor | float]) -> Tensor | float:
    tensors = [a for a in arguments if isinstance(a, Tensor)]
    numbers = [a for a in arguments if not isinstance(a, Tensor)]
    if len(tensors) == 2:
        return torch.maximum(*tensors) if word == "max" else torch.minimum(*tensors)
    if not tensors:
        return max(numbers) if word == "max" else min(numbers)
    if word == "max":
        return torch.relu(tensors[0]) if numbers[0] == 0 else tensors[0].clamp_min(numbers[0])
    return tensors[0].clamp_max(numbers[0])


# Whole programs by their structural key


def _templates(shapes: Sequence[tuple[int, ...]]) -> Iterator[tuple[str, _core.Program, Step]]:
    """Programs that inputs of these shapes may belong to, with the call that computes them."""
    if len(shapes) == 1 and shapes[0]:
        shape = shapes[0]
        for dim in range(len(shape)):
            yield (
                "softmax",
                _core.softmax(shape=shape, dim=dim),
                lambda v, d=dim: F.softmax(v["0"], d),
            )
            its = [f"i{n}" for n in range(len(shape))]
            other = ",".join([*its[:dim], "z", *its[dim + 1 :]])
            text = f"y[{','.join(its)}] = exp(x[{','.join(its)}]) / sum[z] exp(x[{other}])"
            sizes = {**dict(zip(its, shape, strict=True)), "z": shape[dim]}
            yield (
                "softmax",
                _core.Program.parse(text, sizes=sizes),
                lambda v, d=dim: F.softmax(v["0"], d),
            )
    if len(shapes) in (1, 3):
        for last in range(1, len(shapes[0]) + 1):
            tail = shapes[0][-last:]
            affine = len(shapes) == 3
            if affine and tuple(shapes[1]) != tail:
                continue
            yield (
                "layer_norm",
                _core.layer_norm(shape=shapes[0], normalized_dims=last, affine=affine),
                lambda v, t=tail: F.layer_norm(v["0"], t, v.get("1"), v.get("2")),
            )
    if len(shapes) == 3 and len({len(shape) for shape in shapes}) == 1 and len(shapes[0]) in (2, 3):
        lead = ["b"] if len(shapes[0]) == 3 else []
        named = dict(zip("qkv", map(list, shapes), strict=True))
        for scale in (None, math.sqrt(shapes[0][-1])):
            if scale is None or scale == int(scale):
                text = attention_text(lead, "" if scale is None else f" / {int(scale)}")
                try:
                    program = _core.Program.parse(text, shapes=named)
                except _core.SynoError:
                    continue
                factor = 1.0 if scale is None else 1 / scale
                yield (
                    "scaled_dot_product_attention",
                    program,
                    lambda v, f=factor: F.scaled_dot_product_attention(
                        v["0"], v["1"], v["2"], scale=f
                    ),
                )
                yield (
                    "matmul+softmax+matmul",
                    program,
                    lambda v, f=factor: (
                        F.softmax(v["0"] @ v["1"].transpose(-1, -2) * f, -1) @ v["2"]
                    ),
                )


def attention_text(lead: Sequence[str], scale: str) -> str:
    """`softmax(q k^T scale) v`, the greatest score subtracted; `lead` are batch iterators."""
    b = "".join(f"{name}," for name in lead)
    return (
        f"s[{b}i,j] = sum[c] q[{b}i,c] * k[{b}j,c]{scale}; "
        f"m[{b}i] = max[j] s[{b}i,j]; "
        f"p[{b}i,j] = exp(s[{b}i,j] - m[{b}i]); "
        f"t[{b}i] = sum[j] p[{b}i,j]; "
        f"o[{b}i,d] = sum[j] p[{b}i,j] * v[{b}j,d]; "
        f"y[{b}i,d] = o[{b}i,d] / t[{b}i]"
    )


def _key(program: _core.Program) -> str:
    """Structural key with every input as data: what is constant is no matter here."""
    text = "\n".join(
        "input " + line[len("weight ") :] if line.startswith("weight ") else line
        for line in str(program.text()).splitlines()
    )
    return str(_core.Program.parse(text).structural_key())


def _by_key(program: _core.Program, found: Listing) -> dict[str, Native]:
    key = _key(program)
    forms: dict[str, Native] = {}
    for name, template, step in _templates(list(found.inputs.values())):
        if _key(template) == key:

            def run(*tensors: Tensor, step: Step = step) -> Tensor:
                return step({str(i): tensor for i, tensor in enumerate(tensors)})

            forms["native" if not forms else "parts"] = Native((name,), run)
    return forms


# Putting a program together


def _conv_rows(scope: Scope) -> tuple[str, Step]:
    found = convolution(scope)
    return found.call, found


_NEAREST = (transposed_convolution, matrix_product, _conv_rows, pooling, unfold_einsum, broadcast)
_CONVOLVED = (transposed_convolution, _conv_rows, matrix_product, pooling, unfold_einsum, broadcast)
_STAGED = (unfold_einsum, broadcast)


def _first(scope: Scope, rows: Sequence[Callable[[Scope], tuple[str, Step]]]) -> tuple[str, Step]:
    reasons = []
    for row in rows:
        try:
            return row(scope)
        except NotRecognised as error:
            reasons.append(str(error))
    raise NotRecognised("; ".join(dict.fromkeys(reasons)))


def _take_bias(scope: Scope, waiting: Mapping[str, Convolution]) -> Scope:
    """The scope without a bias that a convolution it reads can add itself."""

    def visit(node: ast.expr) -> ast.expr:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            terms = _terms(node)
            reads = [read_of(term) for term in terms]
            for read in reads:
                conv = waiting.get(read.tensor) if read else None
                if read is None or conv is None or conv.bias or not conv.output_channel:
                    continue
                own = list(_unsplit(conv.scope.traversal))
                channel = read.indices[own.index(conv.output_channel)]
                for i, other in enumerate(reads):
                    if other and other.tensor not in waiting and other.indices == (channel,):
                        conv.bias = other.tensor
                        kept = [term for j, term in enumerate(terms) if j != i]
                        total = kept[0]
                        for term in kept[1:]:
                            total = ast.BinOp(total, ast.Add(), term)
                        return total
        for name, child in ast.iter_fields(node):
            if isinstance(child, ast.expr) and not isinstance(node, ast.Subscript):
                setattr(node, name, visit(child))
            elif isinstance(child, list) and isinstance(node, ast.Call):
                setattr(node, name, [visit(c) if isinstance(c, ast.expr) else c for c in child])
        return node

    return replace(scope, body=visit(scope.body))


def _unsplit(traversal: Mapping[str, int]) -> Iterator[str]:
    for name in traversal:
        stem, _, part = name.rpartition(".")
        if part != "0" or not stem:
            yield stem if part == "1" and stem else name


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def _assembled(found: Listing, rows: Sequence[Callable[[Scope], tuple[str, Step]]]) -> Native:
    calls: list[str] = []
    steps: list[tuple[str, Step]] = []
    waiting: dict[str, Convolution] = {}
    for scope in found.scopes:
        if not scope.sums:
            scope = _take_bias(scope, waiting)
        name, step = _first(scope, rows)
        if isinstance(step, Convolution) and step.scale == 1 and found.uses(scope.output) == 1:
            waiting[scope.output] = step
        if name != "elementwise":
            calls.append(name)
        steps.append((scope.output, step))
    names = list(found.inputs)
    if len(found.outputs) != 1:
        raise NotRecognised("several outputs")
    output = found.outputs[0]

    def run(*tensors: Tensor) -> Tensor:
        values = dict(zip(names, tensors, strict=True))
        for name, step in steps:
            values[name] = step(values)
        return values[output]

    return Native(tuple(calls) or ("elementwise",), run)


def native_forms(program: _core.Program) -> dict[str, Native]:
    """Ways to write a concrete program in PyTorch's native calls, by name; empty where there is none.

    `native` has the nearest call for each scope (matrix product before 1x1 convolution), `conv` prefers
    convolutions where that differs, `parts` is one fused call by several, and `stages` is an unfold and an einsum for each scope of a program
    that is not one native call.
    """
    try:
        found = listing(program)
        whole = _by_key(program, found)
        if whole:
            return whole
        forms: dict[str, Native] = {}
        for name, rows in (("native", _NEAREST), ("conv", _CONVOLVED), ("stages", _STAGED)):
            try:
                # Biases are taken out of the bodies, so that each form reads the program afresh.
                form = _assembled(listing(program), rows)
                form.function(*(torch.empty(s, device="meta") for s in found.inputs.values()))
            except NotRecognised:
                continue
            if all(form.calls != other.calls for other in forms.values()):
                forms[name] = form
        return forms
    except NotRecognised:
        return {}
