"""Native PyTorch calls recognised in a program: convolution, matrix product, einsum, pooling, and more.

Recognition is by the indices of each scope and, for softmax, layer normalisation and attention, by
the structural key of the whole program. Whatever is recognised is compared with the kernel before it
is timed, so that a wrong row here cannot pass for a peer.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelbench.scopes import (
    Affine,
    Listing,
    NotRecognised,
    Read,
    Scope,
    Transposed,
    iterators_of,
    listing,
    number,
    read_of,
)
from kernelbench.tensors import (
    FUNCTIONS,
    Blocks,
    Dimension,
    Window,
    arranged,
    dimension,
    gathered,
    merged,
    opened,
    padded,
    split_blocks,
    with_gathers,
)
from syno import _core

Environment = dict[str, Tensor]
Step = Callable[[Environment], Tensor]


@dataclass(frozen=True)
class Native:
    """A program as native calls: a function of all inputs in order, and what it calls."""

    calls: tuple[str, ...]
    function: Callable[..., Tensor]

    @property
    def name(self) -> str:
        return "+".join(self.calls)


# Convolutions


@dataclass
class Convolution:
    """One `F.convNd` with the views around it; a bias along the output channels may be added."""

    scope: Scope
    x: Read
    k: Read
    sizes: Mapping[str, int]
    scale: float
    spatial: list[Window] = field(default_factory=list)
    free: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)
    out: list[str] = field(default_factory=list)
    dimensions: list[Dimension] = field(default_factory=list)
    """Of the data, in order."""
    bias: str | None = None

    @property
    def kept_taps(self) -> list[str]:
        """Taps that the output keeps: channels of their own, one weight in `taps` of them not zero."""
        return [w.tap for w in self.spatial if w.tap in self.scope.traversal and w.tap]

    def __call__(self, values: Environment) -> Tensor:
        extents = self.scope.extents
        x, k = self._input(values[self.x.tensor]), self._weight(values[self.k.tensor])
        padding, stride, dilation = [], [], []
        for i, window in enumerate(self.spatial):
            positions = extents[window.position] if window.position else 1
            taps = extents[window.tap] if window.tap else 1
            size, pad = x.shape[2 + i], -window.offset
            made = (size + 2 * pad - (taps - 1) * window.dilation - 1) // window.stride + 1
            if pad < 0 or made != positions:
                reach = (positions - 1) * window.stride + (taps - 1) * window.dilation + 1
                x, pad = padded(x, 2 + i, pad, reach - pad - size, 0.0), 0
            padding.append(pad)
            stride.append(window.stride)
            dilation.append(window.dilation)
        convolve = (F.conv1d, F.conv2d, F.conv3d)[len(self.spatial) - 1]
        groups = math.prod(extents[name] for name in self.groups)
        bias = values[self.bias] if self.bias else None
        y = convolve(x, k, bias, stride, padding, dilation, groups)
        names = [*self.free, *self.groups, *self.out, *self.kept_taps]
        names += [w.position for w in self.spatial if w.position]
        y = y.reshape([extents[name] for name in names])
        y = y.permute([names.index(name) for name in self.scope.traversal])
        y = merged(y, self.scope, self.sizes)
        return y if self.scale == 1 else y * self.scale

    def _input(self, x: Tensor) -> Tensor:
        x = gathered(x, self.x)
        extents = self.scope.extents
        names: list[object] = []
        axis = 0
        for found in self.dimensions:
            if isinstance(found, Blocks):
                x = x.unflatten(axis, (extents[found.block], found.size))
                names += [found.block, found.inner]
                axis += 1
            else:
                names.append(found)
            axis += 1
        # A plain dimension stands for the window of one tap that was made of it.
        place = {name: i for i, name in enumerate(names)}
        order = [place[name] for name in (*self.free, *self.groups, *self.channels)]
        order += [place[w] if w in place else place[w.position] for w in self.spatial]
        x = x.permute(order)
        count = len(self.spatial)
        shape = [
            math.prod(extents[name] for name in self.free),
            math.prod(extents[name] for name in (*self.groups, *self.channels)),
            *x.shape[x.dim() - count :],
        ]
        return x.reshape(shape)

    def _weight(self, k: Tensor) -> Tensor:
        extents = self.scope.extents
        k, names = opened(k, self.k, self.scope)
        taps = [w.tap for w in self.spatial]
        order = [*self.groups, *self.out, *self.channels, *(tap for tap in taps if tap)]
        k = arranged(k, names, order).expand([extents[name] for name in order])
        for i, tap in enumerate(self.kept_taps):  # the output's own copy of it, before the channels
            kept, place = len(self.groups) + len(self.out) + i, order.index(tap)
            k = torch.diag_embed(k.movedim(place, -1)).movedim((-2, -1), (kept, place + 1))
            order.insert(kept, f"kept {tap}")
        rows = (*self.groups, *self.out, *self.kept_taps)
        return k.reshape(
            math.prod(extents[name] for name in rows),
            math.prod(extents[name] for name in self.channels),
            *(extents[tap] if tap else 1 for tap in taps),
        )

    @property
    def output_channel(self) -> str | None:
        """The traversal iterator that a bias would have."""
        whole = {name.split(".")[0] for name in (*self.groups, *self.out)}
        return whole.pop() if len(whole) == 1 and not self.kept_taps else None

    @property
    def call(self) -> str:
        return f"conv{len(self.spatial)}d"


def convolution(scope: Scope) -> Convolution:
    """A sum over a product of data and weight, with windows on the data."""
    if scope.reduction != "sum":
        raise NotRecognised("no sum")
    reads, scale = scope.product()
    if len(reads) != 2:
        raise NotRecognised(f"{len(reads)} factors")
    reason = NotRecognised("nothing to convolve")
    for x, k in (reads, reads[::-1]):
        try:
            return _convolution(scope, x, k, scale)
        except NotRecognised as error:
            reason = error
    raise reason


def _convolution(scope: Scope, x: Read, k: Read, scale: float) -> Convolution:
    scope, (x, k), sizes = split_blocks(scope, (x, k))
    if x.fill or any(not isinstance(i, Affine) for i in (*x.indices, *k.indices)):
        raise NotRecognised("no convolution")
    names = [name for index in x.indices for name in iterators_of(index)]
    if len(set(names)) < len(names):
        raise NotRecognised(f"an iterator twice in the read of {x.tensor}")
    weight: set[str] = set()
    for index, size in zip(k.indices, k.shape, strict=True):
        found = dimension(index, size, scope)
        if isinstance(found, Window):
            raise NotRecognised("a window on the weight")
        names = {found} if isinstance(found, str) else {found.block, found.inner}
        if names & weight:
            raise NotRecognised("a diagonal of the weight")
        weight |= names
    result = Convolution(scope, x, k, sizes, scale)
    plain: list[str] = []
    for index, size in zip(x.indices, x.shape, strict=True):
        found = dimension(index, size, scope)
        if isinstance(found, Blocks) and found.inner in scope.sums and found.block not in weight:
            found = Window(found.block, found.size, found.inner, 1, 0)  # patches side by side
        result.dimensions.append(found)
        if isinstance(found, Window):
            if (found.tap and found.tap not in weight) or found.position in weight:
                raise NotRecognised("taps without weights")
            if found.position is None:
                raise NotRecognised("taps without positions")
            result.spatial.append(found)
            plain.append("")  # its place among the free dimensions
            continue
        for name in (found,) if isinstance(found, str) else (found.block, found.inner):
            if name not in weight and name in scope.traversal:
                plain.append(name)
            elif name in weight and name in scope.traversal:
                result.groups.append(name)
            elif name in weight:
                result.channels.append(name)
            else:
                raise NotRecognised(f"{name} is summed without a weight")
    # Dimensions that only pass through: the first is the batch, further ones are spatial with one tap.
    room = 3 - len(result.spatial)
    passing = [name for name in plain if name]
    keep = max(len(passing) - room, 1)
    if not result.spatial and len(passing) < 2:
        raise NotRecognised("no spatial dimension")
    result.free = passing[:keep]
    windows = iter(result.spatial)
    result.spatial = [
        Window(name, 1, None, 1, 0) if name else next(windows)
        for name in plain
        if name not in result.free
    ]
    read = [*result.free, *result.groups, *result.channels]
    read += [w.position for w in result.spatial if w.position]
    read += [w.tap for w in result.spatial if w.tap]
    known = set(read)
    if len(known) < len(read):
        raise NotRecognised("a diagonal of the data")
    result.out = [name for name in scope.traversal if name not in known]
    summed = {*result.channels, *(w.tap for w in result.spatial if w.tap)}
    if not set(scope.sums) <= summed or not set(result.out) <= weight:
        raise NotRecognised("an iterator that no convolution has")
    return result


def transposed_convolution(scope: Scope) -> tuple[str, Step]:
    """A gather of inputs where the stride divides: `x[n,c,(h+p-r)/s where s divides]`."""
    if scope.reduction != "sum":
        raise NotRecognised("no sum")
    reads, scale = scope.product()
    reads.sort(key=lambda read: not any(isinstance(i, Transposed) for i in read.indices))
    if len(reads) != 2 or not any(isinstance(i, Transposed) for i in reads[0].indices):
        raise NotRecognised("no transposed convolution")
    x, k = reads
    stride, padding, dilation, taps, free, channels, positions = [], [], [], [], [], [], []
    for index in x.indices:
        if not isinstance(index, Transposed):
            if not isinstance(index, Affine) or index.plain is None:
                raise NotRecognised("a window beside a transposed index")
            (free if index.plain in scope.traversal else channels).append(index.plain)
            continue
        terms = dict(index.inner.terms)
        tap = next((str(t) for t in terms if t in scope.sums), None)
        place = next((str(t) for t in terms if t in scope.traversal), None)
        if len(terms) != 2 or tap is None or place is None or terms[place] != 1 or terms[tap] > -1:
            raise NotRecognised("no transposed convolution")
        stride.append(index.stride)
        padding.append(index.inner.constant)
        dilation.append(-terms[tap])
        taps.append(tap)
        positions.append(place)
    weights = [index.plain for index in k.indices if isinstance(index, Affine)]
    out = [name for name in weights if name in scope.traversal]
    order = [*free, *out, *positions]
    good = len(free) == 1 and len(channels) == 1 and len(out) == 1 and len(taps) <= 3
    if not good or list(scope.traversal) != order or min(padding) < 0:
        raise NotRecognised("no transposed convolution")
    rows = [channels[0], out[0], *taps]
    if sorted(map(str, weights)) != sorted(rows):
        raise NotRecognised("no transposed convolution")
    extents = scope.extents
    call = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(taps) - 1]
    axes = [axis for axis, index in enumerate(x.indices) if isinstance(index, Transposed)]
    places = [weights.index(name) for name in rows]
    # Output extents that no input pixel reaches by itself.
    lacking = [
        extents[name] - (dilation[i] * (extents[taps[i]] - 1) + 1) + 2 * padding[i]
        for i, name in enumerate(positions)
    ]
    data_name, weight_name = x.tensor, k.tensor

    def run(values: Environment) -> Tensor:
        data = values[data_name]
        extra = [n - (data.shape[a] - 1) * s for n, a, s in zip(lacking, axes, stride, strict=True)]
        weight = values[weight_name].permute(places)
        y = call(data, weight, None, stride, padding, extra, 1, dilation)
        return y if scale == 1 else y * scale

    return f"conv_transpose{len(taps)}d", run


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
