"""Networks whose shapes change while they are used: what building for a shape costs, and what it gives.

Every contestant runs the same function with the same weights. For each shape it pays for getting ready
(construction, compilation) and then for a number of inferences; the sum is what a user waits for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

import syno
from syno import _core
from syno.errors import unknown_name
from syno.kernels.construct import construct
from syno.kernels.prepack import prepacked
from syno.models.mobilenet import STAGES
from syno.tuning.search import tune

#: How kernels are made; "packed" is "graph" with copies of the weights made once, as in a network that is kept.
WAYS = ("tree", "graph", "packed", "search")


class Ops(Protocol):
    """What a network is written in: one call an operator."""

    def __call__(self, expr: str, sizes: dict[str, int], *arrays: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class _Made:
    """A kernel on addresses: those of the arguments of a call by their place, the others negated."""

    code: Callable[[Sequence[int], int], None]
    places: tuple[int, ...]
    shape: tuple[int, ...]
    held: Any


class Kernels:
    """Native kernels, constructed when a shape is first seen."""

    def __init__(self, way: str, trials: int, weights: Sequence[Tensor]) -> None:
        self.way, self.trials = way, trials
        self.weights = {id(weight) for weight in weights}
        self.kernels: dict[Any, _Made] = {}

    def __call__(self, expr: str, sizes: dict[str, int], *arrays: Tensor) -> Tensor:
        fixed = [id(a) for a in arrays if id(a) in self.weights] if self.way == "packed" else []
        key = (expr, *sizes.items(), *fixed)
        known = self.kernels.get(key)
        if known is None:
            known = self.kernels[key] = self._make(expr, sizes, arrays)
        out = torch.empty(known.shape)
        given = [array.data_ptr() for array in (*arrays, out)]
        known.code([given[at] if at >= 0 else -at for at in known.places], 1)
        return out

    def _make(self, expr: str, sizes: dict[str, int], arrays: Sequence[Tensor]) -> _Made:
        more: dict[str, Any] = dict(sizes)
        if "x[n," in expr:  # a strided window need not reach the last pixel
            more["shapes"] = {"x": tuple(arrays[0].shape)}
        operator = syno.Operator.parse(expr, **more)
        for name, array in zip(operator.inputs, arrays, strict=True):
            if math.prod(operator.shapes[name]) != array.numel():
                raise SystemExit(f"{expr}: {name} is {operator.shapes[name]}, not {array.shape}")
        shape = tuple(operator.shapes[operator.outputs[0]])
        if self.way == "packed":
            constants = {
                name: array
                for name, array in zip(operator.inputs, arrays, strict=True)
                if id(array) in self.weights
            }
            if constants:
                packed = prepacked(operator, list(constants)).pack(
                    **{n: a.reshape(operator.shapes[n]) for n, a in constants.items()}
                )
                names = [*operator.inputs, *operator.outputs]
                return _Made(
                    packed.unchecked,
                    tuple(names.index(n) if at is None else -at for n, at in packed.arguments()),
                    shape,
                    packed,
                )
        if self.way == "search":
            schedule = tune(operator, trials=max(2, self.trials), keep=False, cold=True).schedule
        else:
            schedule = construct(
                operator,
                policy="tree" if self.way == "tree" else "graph",
                counted=self.way != "tree",
                cold=True,  # between two calls a network's other weights pass through the caches
            ).schedule
        kernel = _core.compile_nest(_core.apply_schedule(operator.program, schedule))
        return _Made(kernel.call_pointers, tuple(range(len(arrays) + 1)), shape, kernel)


LINEAR = "y[m,n] = sum[k] x[m,k] * w[k,n] + b[n]"
LINEAR_GELU = "y[m,n] = gelu(sum[k] x[m,k] * w[k,n] + b[n])"
SCORES = "y[h,i,j] = sum[d] q[i,h,d] * k[j,h,d]"
SOFTMAX = (
    "y[h,i,j] = exp(ratio(1,8) * x[h,i,j] - max[l] ratio(1,8) * x[h,i,l])"
    " / sum[l] exp(ratio(1,8) * x[h,i,l] - max[k] ratio(1,8) * x[h,i,k])"
)
MIX = "y[i,h,d] = sum[j] p[h,i,j] * v[j,h,d]"
NORM = (
    "z[m,n] = x[m,n] + r[m,n]; u[m] = mean[k] z[m,k];"
    " v[m] = mean[k] (z[m,k] - u[m]) * (z[m,k] - u[m]);"
    " y[m,n] = (z[m,n] - u[m]) * rsqrt(v[m] + ratio(1,100000)) * g[n] + b[n]"
)


class Bert:
    """Four layers of width 512 with eight heads of 64 (BERT-small); the input is embedded already."""

    layers, width, heads, inner = 4, 512, 8, 2048

    def __init__(self) -> None:
        torch.manual_seed(0)

        def weight(*shape: int) -> Tensor:
            return torch.randn(*shape) * shape[0] ** -0.5

        d, f = self.width, self.inner
        norm = [torch.ones(d), torch.zeros(d)]
        attention = [(d, d), (d,)] * 4
        mlp = [(d, f), (f,), (f, d), (d,)]
        self.weights = [
            [*(weight(*s) for s in attention), *norm, *(weight(*s) for s in mlp), *norm]
            for _ in range(self.layers)
        ]

    def parameters(self) -> list[Tensor]:
        return [weight for layer in self.weights for weight in layer]

    def shapes(self, lengths: Sequence[int]) -> dict[str, Tensor]:
        return {f"length {s}": torch.randn(s, self.width) for s in lengths}

    def eager(self, x: Tensor) -> Tensor:
        s, h = x.shape[0], self.heads
        for wq, bq, wk, bk, wv, bv, wo, bo, g1, b1, w1, c1, w2, c2, g2, b2 in self.weights:
            q, k, v = (
                torch.addmm(b, x, w).view(s, h, -1).transpose(0, 1)
                for w, b in ((wq, bq), (wk, bk), (wv, bv))
            )
            a = F.scaled_dot_product_attention(q[None], k[None], v[None])[0]
            a = a.transpose(0, 1).reshape(s, self.width)
            x = F.layer_norm(x + torch.addmm(bo, a, wo), (self.width,), g1, b1)
            y = torch.addmm(c2, F.gelu(torch.addmm(c1, x, w1)), w2)
            x = F.layer_norm(x + y, (self.width,), g2, b2)
        return x

    def native(self, ops: Ops, x: Tensor) -> Tensor:
        s, d, f, h = x.shape[0], self.width, self.inner, self.heads
        e = d // h
        square = {"m": s, "n": d, "k": d}
        heads = {"h": h, "i": s, "j": s, "d": e}
        norm = {"m": s, "n": d, "k": d}
        for wq, bq, wk, bk, wv, bv, wo, bo, g1, b1, w1, c1, w2, c2, g2, b2 in self.weights:
            q, k, v = (ops(LINEAR, square, x, w, b) for w, b in ((wq, bq), (wk, bk), (wv, bv)))
            p = ops(SCORES, heads, q, k)
            p = ops(SOFTMAX, {"h": h, "i": s, "j": s, "l": s, "k": s}, p)
            a = ops(MIX, heads, p, v)
            x = ops(NORM, norm, x, ops(LINEAR, square, a, wo, bo), g1, b1)
            y = ops(LINEAR_GELU, {"m": s, "n": f, "k": d}, x, w1, c1)
            y = ops(LINEAR, {"m": s, "n": d, "k": f}, y, w2, c2)
            x = ops(NORM, norm, x, y, g2, b2)
        return x


def _clipped(expr: str) -> str:
    return f"y[n,o,h,w] = min(max({expr} + b[o], 0), 6)"


POINTWISE = _clipped("sum[c] x[n,c,h,w] * k[o,c]")
PROJECT = "y[n,o,h,w] = sum[c] x[n,c,h,w] * k[o,c] + b[o]"
PROJECT_ADD = "y[n,o,h,w] = sum[c] x[n,c,h,w] * k[o,c] + b[o] + z[n,o,h,w]"
DEPTHWISE = {
    1: _clipped("sum[r,s] x[n,o,h+r-1,w+s-1] * k[o,r,s]"),
    2: _clipped("sum[r,s] x[n,o,2*h+r-1,2*w+s-1] * k[o,r,s]"),
}
STEM = _clipped("sum[c,r,s] x[n,c,2*h+r-1,2*w+s-1] * k[o,c,r,s]")


class MobileNet:
    """MobileNetV2's convolutions at 224 x 224, batch 1, with normalisation folded; channels scaled."""

    blocks = STAGES

    def __init__(self) -> None:
        self.plans = {scale: self._plan(scale) for scale in (1.0, 0.75, 0.5)}

    def _plan(self, scale: float) -> list[tuple[Any, ...]]:
        torch.manual_seed(0)

        def width(channels: int) -> int:
            return max(8, int(channels * scale + 4) // 8 * 8)

        def weight(*shape: int) -> Tensor:
            fan = 1
            for extent in shape[1:]:
                fan *= extent
            return torch.randn(*shape) * (2 / fan) ** 0.5

        channels = width(32)
        plan: list[tuple[Any, ...]] = [("stem", weight(channels, 3, 3, 3), torch.zeros(channels))]
        for expand, out, repeats, stride in self.blocks:
            for i in range(repeats):
                inner, o = channels * expand, width(out)
                first = None
                if expand > 1:
                    first = (weight(inner, channels), torch.zeros(inner))
                step = stride if i == 0 else 1
                plan.append(
                    (
                        "block",
                        first,
                        (weight(inner, 3, 3), torch.zeros(inner), step),
                        (weight(o, inner), torch.zeros(o)),
                        step == 1 and o == channels,
                    )
                )
                channels = o
        last = max(1280, width(1280))
        plan.append(("last", weight(last, channels), torch.zeros(last)))
        return plan

    def parameters(self) -> list[Tensor]:
        def tensors(value: Any) -> Iterator[Tensor]:
            if isinstance(value, Tensor):
                yield value
            elif isinstance(value, (tuple, list)):
                for each in value:
                    yield from tensors(each)

        return list(tensors(list(self.plans.values())))

    def shapes(self, lengths: Sequence[int]) -> dict[str, Tensor]:
        return {f"channels x {scale}": torch.tensor(scale) for scale in self.plans}

    def _input(self) -> Tensor:
        return torch.linspace(-1, 1, 3 * 224 * 224).reshape(1, 3, 224, 224)

    def eager(self, scale: Tensor) -> Tensor:
        x = self._input()
        for kind, *rest in self.plans[float(scale)]:
            if kind == "stem":
                x = F.relu6(F.conv2d(x, rest[0], rest[1], stride=2, padding=1))
            elif kind == "last":
                x = F.relu6(F.conv2d(x, rest[0][:, :, None, None], rest[1]))
            else:
                first, (k, b, step), (p, c), adds = rest
                y = x
                if first is not None:
                    y = F.relu6(F.conv2d(y, first[0][:, :, None, None], first[1]))
                y = F.relu6(F.conv2d(y, k[:, None], b, stride=step, padding=1, groups=k.shape[0]))
                y = F.conv2d(y, p[:, :, None, None], c)
                x = x + y if adds else y
        return x

    def native(self, ops: Ops, scale: Tensor) -> Tensor:
        x = self._input()
        for kind, *rest in self.plans[float(scale)]:
            _, c, h, _ = x.shape
            if kind == "stem":
                half = {"n": 1, "o": rest[0].shape[0], "c": 3, "h": h // 2, "w": h // 2}
                x = ops(STEM, {**half, "r": 3, "s": 3}, x, *rest)
            elif kind == "last":
                sizes = {"n": 1, "o": rest[0].shape[0], "c": c, "h": h, "w": h}
                x = ops(POINTWISE, sizes, x, *rest)
            else:
                first, (k, b, step), (p, q), adds = rest
                y = x
                if first is not None:
                    sizes = {"n": 1, "o": first[0].shape[0], "c": c, "h": h, "w": h}
                    y = ops(POINTWISE, sizes, y, *first)
                h = h // step
                window = {"n": 1, "o": k.shape[0], "h": h, "w": h, "r": 3, "s": 3}
                y = ops(DEPTHWISE[step], window, y, k, b)
                sizes = {"n": 1, "o": p.shape[0], "c": k.shape[0], "h": h, "w": h}
                x = ops(PROJECT_ADD, sizes, y, p, q, x) if adds else ops(PROJECT, sizes, y, p, q)
        return x


NETWORKS: dict[str, Callable[[], Any]] = {"bert": Bert, "mobilenet": MobileNet}


def run_network(
    name: str,
    *,
    lengths: Sequence[int],
    images: int,
    peers: Sequence[str],
    trials: int,
    show: bool,
) -> dict[str, Any]:
    """Seconds to get ready and of `images` inferences for each shape and contestant; results checked."""
    valid = ("eager", "compile", "dynamic")
    for peer in peers:
        if peer not in valid:
            raise unknown_name("peer", peer, valid)
    torch.set_num_threads(1)
    network = NETWORKS[name]()
    ways = [way for way in WAYS if way != "search" or trials > 0]
    rows: list[dict[str, Any]] = []
    with torch.inference_mode():
        contestants: dict[str, Callable[[Tensor], Tensor]] = {}
        for peer in peers:
            contestants[peer] = _peer(network, peer)
        for way in ways:
            contestants[way] = _native(network, Kernels(way, trials, network.parameters()))
        for shape, example in network.shapes(lengths).items():
            wanted = network.eager(example)
            for contestant, function in contestants.items():
                start = time.perf_counter()
                got = function(example)
                first_s = time.perf_counter() - start
                error = float((got.reshape(wanted.shape) - wanted).abs().max())
                if error > 2e-3 * max(1.0, float(wanted.abs().max())):
                    raise SystemExit(f"{name}, {shape}: {contestant} differs by {error:.1e}")
                times = []
                for _ in range(images):
                    start = time.perf_counter()
                    function(example)
                    times.append(time.perf_counter() - start)
                one = sorted(times)[len(times) // 2]
                rows.append(
                    {
                        "shape": shape,
                        "contestant": contestant,
                        "ready_s": max(0.0, first_s - one),
                        "inference_ms": one * 1e3,
                        "total_s": max(0.0, first_s - one) + one * images,
                        "max_abs_err": error,
                    }
                )
                if show:
                    row = rows[-1]
                    print(
                        f"{shape:18} {contestant:8} ready {row['ready_s']:8.3f} s, one inference "
                        f"{row['inference_ms']:8.2f} ms, {images} with it {row['total_s']:8.2f} s",
                        flush=True,
                    )
    totals = {c: sum(row["total_s"] for row in rows if row["contestant"] == c) for c in contestants}
    return {"network": name, "images": images, "rows": rows, "summary": {"total_s": totals}}


def _peer(network: Any, peer: str) -> Callable[[Tensor], Tensor]:
    if peer == "eager":
        return network.eager  # type: ignore[no-any-return]
    compiled = torch.compile(network.eager, dynamic=peer == "dynamic")
    return compiled  # type: ignore[no-any-return]


def _native(network: Any, kernels: Kernels) -> Callable[[Tensor], Tensor]:
    return lambda x: network.native(kernels, x)
