"""What importers build rows from, against PyTorch: random shapes, broadcasting, and numbers that are none."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor  # noqa: E402

from syno.errors import ShapeError  # noqa: E402
from syno.graph.building import Builder, NotCovered, Value  # noqa: E402
from syno.graph.functions import elementwise, norms, products, reductions  # noqa: E402
from syno.graph.functions.formulas import exact  # noqa: E402
from syno.graph.reference import run_reference  # noqa: E402

SPECIAL = [
    math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-7, -1e-7, 1e-3, -1e-3, 0.3, -0.3, 0.5, -0.5, 1, -1, 2, -2, 3, -3, 6, -6,
    19, 21, -21, 50, 88, -88, 1000, -1000, 1e30, -1e30,
]  # fmt: skip


def drawn(seed: int, *shape: int, dtype: Any = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def computed(function: Callable[..., Value], *tensors: Tensor) -> Tensor:
    build = Builder()
    values = [build.input(f"t{n}", t.shape, str(t.dtype)[6:]) for n, t in enumerate(tensors)]
    network = build.network([function(build, *values)])
    given = {value.name: t for value, t in zip(values, tensors, strict=True)}
    (made,) = run_reference(network, given).values()
    return made


def assert_same(ours: Tensor, theirs: Tensor, few: float = 1e-10) -> None:
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    torch.testing.assert_close(
        ours, theirs, rtol=few, atol=1e-37 if few > 1e-8 else 1e-12, equal_nan=True
    )


def of_torch(name: str) -> Callable[..., Tensor]:
    if name == "log_sigmoid":
        return F.logsigmoid
    found = getattr(torch, name, None) or getattr(F, name, None)
    assert found is not None, name
    return found  # type: ignore[no-any-return]


UNARY = [
    *elementwise.UNARY,
    *elementwise.UNARY_OF_FLOATS,
    *elementwise.ROUNDING,
    *elementwise.TESTS,
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_an_element_at_special_and_random_numbers(name: str, dtype: Any) -> None:
    x = torch.cat(
        [
            torch.tensor(SPECIAL, dtype=dtype),
            drawn(1, 60, dtype=dtype) * 3,
            drawn(2, 40, dtype=dtype) * 1e-4,
        ]
    )
    ours = computed(elementwise.unary(name), x)
    assert_same(ours, of_torch(name)(x), 3e-6 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("name", ["neg", "exp", "sigmoid", "isnan"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 2), (2, 1, 3, 1, 2)])
def test_functions_of_an_element_take_any_rank(name: str, shape: tuple[int, ...]) -> None:
    x = drawn(3, *shape)
    assert_same(computed(elementwise.unary(name), x), of_torch(name)(x))


BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum,
    "minimum": torch.minimum, "fmax": torch.fmax, "fmin": torch.fmin, "pow": torch.pow, "logaddexp": torch.logaddexp,
    "xlogy": torch.xlogy, "heaviside": torch.heaviside, "rsub": torch.rsub, "fmod": torch.fmod,
    "remainder": torch.remainder, "floor_divide": torch.floor_divide, "atan2": torch.atan2,
}  # fmt: skip
SHAPES = [
    ((), (3,)),
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((2, 1, 4), (3, 1)),
    ((1,), (2, 3)),
    ((5, 1, 2, 1), (3, 1, 4)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("name", [*BINARY, *elementwise.COMPARISONS])
def test_functions_of_two_elements_broadcast(name: str, shapes: Any) -> None:
    x, y = drawn(4, *shapes[0]), drawn(5, *shapes[1])
    if name in BINARY:
        assert_same(computed(getattr(elementwise, name), x, y), BINARY[name](x, y))
    else:
        assert_same(computed(elementwise.comparison(name), x, y), getattr(torch, name)(x, y))


@pytest.mark.parametrize("name", [*BINARY, *elementwise.COMPARISONS])
def test_functions_of_two_elements_at_special_numbers(name: str) -> None:
    x = torch.tensor(SPECIAL, dtype=torch.float64)
    grid = x[:, None].expand(-1, len(x)).contiguous(), x.expand(len(x), -1).contiguous()
    if name in BINARY:
        assert_same(computed(getattr(elementwise, name), *grid), BINARY[name](*grid))
    else:
        assert_same(computed(elementwise.comparison(name), *grid), getattr(torch, name)(*grid))


@pytest.mark.parametrize("exponent", [0, 0.5, 1, 2, 3, -0.5, -1, -2, 5, 2.5, -3])
def test_powers_by_a_number(exponent: float) -> None:
    x = torch.tensor(SPECIAL, dtype=torch.float64)
    ours = computed(lambda build, v: elementwise.pow(build, v, exponent), x)
    assert_same(ours, torch.pow(x, exponent))


WITH_NUMBERS: dict[str, tuple[Callable[..., Value], Callable[..., Tensor]]] = {
    "clamp": (lambda b, x: elementwise.clamp(b, x, -1, 2), lambda x: x.clamp(-1, 2)),
    "clamp low": (lambda b, x: elementwise.clamp(b, x, 0.5), lambda x: x.clamp(0.5)),
    "clamp crossed": (lambda b, x: elementwise.clamp(b, x, 2, 1), lambda x: x.clamp(2, 1)),
    "clamp nan": (lambda b, x: elementwise.clamp(b, x, math.nan), lambda x: x.clamp(math.nan)),
    "leaky_relu": (lambda b, x: elementwise.leaky_relu(b, x, 0.2), lambda x: F.leaky_relu(x, 0.2)),
    "threshold": (
        lambda b, x: elementwise.threshold(b, x, 0.1, 7),
        lambda x: F.threshold(x, 0.1, 7),
    ),
    "elu": (lambda b, x: elementwise.elu(b, x, 1.7), lambda x: F.elu(x, 1.7)),
    "celu": (lambda b, x: elementwise.celu(b, x, 1.7), lambda x: F.celu(x, 1.7)),
    "gelu": (elementwise.gelu, F.gelu),
    "gelu tanh": (
        lambda b, x: elementwise.gelu(b, x, "tanh"),
        lambda x: F.gelu(x, approximate="tanh"),
    ),
    "softplus": (elementwise.softplus, F.softplus),
    "softplus of": (
        lambda b, x: elementwise.softplus(b, x, 2.5, 7),
        lambda x: F.softplus(x, 2.5, 7),
    ),
    "softshrink": (elementwise.softshrink, F.softshrink),
    "hardshrink": (elementwise.hardshrink, F.hardshrink),
    "hardtanh": (lambda b, x: elementwise.hardtanh(b, x, -2, 3), lambda x: F.hardtanh(x, -2, 3)),
    "logit": (elementwise.logit, torch.logit),
    "logit eps": (lambda b, x: elementwise.logit(b, x, 0.1), lambda x: torch.logit(x, 0.1)),
    "nan_to_num": (elementwise.nan_to_num, torch.nan_to_num),
    "nan_to_num of": (
        lambda b, x: elementwise.nan_to_num(b, x, 1, 2, -3),
        lambda x: x.nan_to_num(1, 2, -3),
    ),
    "add alpha": (
        lambda b, x: elementwise.add(b, x, 3, 0.25),
        lambda x: torch.add(x, 3, alpha=0.25),
    ),
    "huge number": (lambda b, x: elementwise.mul(b, x, 1e-30), lambda x: x * 1e-30),
    "lowest": (
        lambda b, x: elementwise.add(b, x, -3.4028234663852886e38),
        lambda x: x - 3.4028234663852886e38,
    ),
}


@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_functions_with_numbers_at_special_numbers(name: str) -> None:
    ours, theirs = WITH_NUMBERS[name]
    x = torch.cat([torch.tensor(SPECIAL, dtype=torch.float64), drawn(6, 40)])
    assert_same(computed(ours, x), theirs(x))


def test_the_same_tensor_twice_is_read_once() -> None:
    x = drawn(7, 2, 3)
    assert_same(computed(lambda build, v: elementwise.mul(build, v, v), x), x * x)


def test_where_and_masked_fill_take_truth_values() -> None:
    x, y, c = drawn(8, 2, 3), drawn(9, 3), drawn(10, 2, 1) > 0
    assert_same(computed(elementwise.where, c, x, y), torch.where(c, x, y))
    filled = computed(lambda b, v, m: elementwise.masked_fill(b, v, m, -math.inf), x, c)
    assert_same(filled, x.masked_fill(c, -math.inf))


def test_numbers_that_programs_hold_are_read_as_they_are() -> None:
    """1 / 2304 has twenty digits behind the point, of which a fraction in lowest terms needs fewer."""
    draw = random.Random(5)
    numbers = [1 / n for n in range(1, 3_000)] + [
        draw.uniform(0, 10) ** draw.choice([1, -5]) for _ in range(500)
    ]
    held = [(v, exact(v)) for v in numbers]
    assert exact(1 / 2304) is not None
    x = torch.ones(1)
    held = [each for each in held if each[1] is not None][::20]
    for value, text in [*held, (1 / 2304, exact(1 / 2304))]:
        got = computed(lambda b, v, value=value: elementwise.mul(b, v, value), x)
        assert got.item() == x.mul(value).item(), text


def test_whole_numbers_that_programs_cannot_hold_are_not_covered() -> None:
    build = Builder()
    x = build.input("x", (3,), "int64")
    for function in (elementwise.add, elementwise.mul, elementwise.maximum):
        with pytest.raises(NotCovered):
            function(build, x, x)
    with pytest.raises(NotCovered):
        reductions.sum(build, x)


# --- reductions

DIMS: list[Any] = [0, -1, [0, 2], [-1, 1], None]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", DIMS, ids=str)
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "logsumexp", "var", "std"])
def test_reductions(name: str, dim: Any, keepdim: bool) -> None:
    x = drawn(11, 2, 3, 4)
    dims = [0, 1, 2] if dim is None else dim
    spread = {"correction": 1} if name in ("var", "std") else {}
    ours = computed(lambda b, v: getattr(reductions, name)(b, v, dim, keepdim=keepdim, **spread), x)
    assert_same(ours, getattr(torch, name)(x, dim=dims, keepdim=keepdim, **spread))


@pytest.mark.parametrize("name", ["all", "any", "prod"])
def test_reductions_along_one_dimension(name: str) -> None:
    x = drawn(12, 2, 3, 4) * (drawn(13, 2, 3, 4) > 0)
    for dim in (0, -1):
        ours = computed(lambda b, v, d=dim: getattr(reductions, name)(b, v, d), x)
        assert_same(ours, getattr(torch, name)(x, dim))


@pytest.mark.parametrize("order", [0, 1, 2, 3, -1, 0.5, math.inf, -math.inf])
def test_norms_of_vectors(order: float) -> None:
    x = drawn(14, 2, 3, 4)
    for dim in ([1], [0, 2], None):
        ours = computed(lambda b, v, d=dim: reductions.vector_norm(b, v, order, d), x)
        assert_same(ours, torch.linalg.vector_norm(x, order, dim=dim))


def test_logsumexp_of_infinities() -> None:
    x = drawn(15, 3, 4)
    x[0], x[1, 0], x[2, 0] = -math.inf, math.inf, math.nan
    assert_same(computed(lambda b, v: reductions.logsumexp(b, v, -1), x), x.logsumexp(-1))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_running_sums_and_products(dim: int) -> None:
    x = drawn(16, 2, 3, 4)
    x[0, 1, 2] = math.inf
    assert_same(computed(lambda b, v: reductions.cumsum(b, v, dim), x), x.cumsum(dim))
    assert_same(computed(lambda b, v: reductions.cumprod(b, v, dim), x), x.cumprod(dim))
    logs = computed(lambda b, v: reductions.logcumsumexp(b, v, dim), x)
    torch.testing.assert_close(logs, x.logcumsumexp(dim), rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_without_the_element_or_from_the_end(exclusive: bool, reverse: bool) -> None:
    x = drawn(18, 3, 40)
    way = {"exclusive": exclusive, "reverse": reverse}
    turned = x.flip(1) if reverse else x
    for function, wanted, inverse in (
        (reductions.cumsum, turned.cumsum(1), torch.sub),
        (reductions.cumprod, turned.cumprod(1), torch.div),
    ):
        wanted = inverse(wanted, turned) if exclusive else wanted
        wanted = wanted.flip(1) if reverse else wanted
        made = computed(lambda b, v, f=function: f(b, v, 1, **way), x)  # type: ignore[misc]
        torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-5)


def test_places_of_the_greatest_and_least() -> None:
    x = drawn(17, 2, 3, 4)
    assert_same(computed(lambda b, v: reductions.argmax(b, v, 1, True), x), x.argmax(1, True))
    assert_same(computed(lambda b, v: reductions.argmin(b, v, -1), x), x.argmin(-1))


# --- products

MATRICES = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (7, 3, 4)), ((1, 2, 3), (1, 3, 4)), ((3,), (2, 3, 4)), ((2, 3, 4), (4,)), ((1, 3), (3, 1)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", MATRICES, ids=str)
def test_products_of_matrices_of_any_rank(shapes: Any) -> None:
    x, y = drawn(18, *shapes[0]), drawn(19, *shapes[1])
    assert_same(computed(products.matmul, x, y), x @ y)


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_linear(rank: int, bias: bool) -> None:
    given = [
        drawn(20, *[2, 5, 6][: rank - 1], 3),
        drawn(21, 4, 3),
        *([drawn(22, 4)] if bias else []),
    ]
    assert_same(computed(products.linear, *given), F.linear(*given))


def test_products_with_a_summand() -> None:
    bias, x, y = drawn(23, 4), drawn(24, 2, 3), drawn(25, 3, 4)
    ours = computed(lambda b, *v: products.addmm(b, *v, 0.5, 2), bias, x, y)
    assert_same(ours, torch.addmm(bias, x, y, beta=0.5, alpha=2))
    nothing = computed(lambda b, *v: products.addmm(b, *v, 0, 1), bias * math.nan, x, y)
    assert_same(nothing, x @ y)


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("ii->i", (3, 3)), ("ii", (3, 3)), ("ij->", (2, 3)), ("...ij,...jk->...ik", (5, 2, 3), (3, 4)),
    ("i,j,k->ijk", (2,), (3,), (4,)), ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), ("ij,jk->k", (2, 3), (3, 4)),
    ("ba,b...->a...", (2, 3), (2, 4, 5)), ("ij->ji", (2, 3)), ("...->...", (2, 3)), ("a...b->b...", (2, 3, 4)),
    ("ij,ij->ij", (2, 1), (2, 3)), ("iij,ik->kj", (2, 2, 3), (2, 4)), ("i...,i...", (2, 3), (2, 3)),
]  # fmt: skip


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda case: case[0])
def test_einsum(case: Any) -> None:
    equation, *shapes = case
    given = [drawn(30 + n, *shape) for n, shape in enumerate(shapes)]
    ours = computed(lambda b, *v: products.einsum(b, equation, v), *given)
    assert_same(ours, torch.einsum(equation, *given))


@pytest.mark.parametrize("outer", [(2, 4), (4,), ()], ids=str)
def test_attention(outer: tuple[int, ...]) -> None:
    q, k, v = drawn(40, *outer, 5, 6), drawn(41, *outer, 7, 6), drawn(42, *outer, 7, 3)
    attention = F.scaled_dot_product_attention
    assert_same(computed(products.scaled_dot_product_attention, q, k, v), attention(q, k, v))
    causal = computed(
        lambda b, *t: products.scaled_dot_product_attention(b, *t, is_causal=True, scale=0.3),
        q,
        k,
        v,
    )
    assert_same(causal, attention(q, k, v, is_causal=True, scale=0.3))
    mask = drawn(43, 5, 7) > 0
    mask[0] = False  # which attends to nothing
    added = torch.zeros(5, 7, dtype=torch.float64).masked_fill(~mask, -math.inf)
    for given in (mask, added):
        ours = computed(products.scaled_dot_product_attention, q, k, v, given)
        assert_same(ours, attention(q, k, v, given))


def test_attention_of_shared_heads() -> None:
    q, k, v = drawn(44, 2, 4, 5, 6), drawn(45, 2, 2, 7, 6), drawn(46, 2, 2, 7, 3)
    ours = computed(
        lambda b, *t: products.scaled_dot_product_attention(b, *t, enable_gqa=True), q, k, v
    )
    assert_same(ours, F.scaled_dot_product_attention(q, k, v, enable_gqa=True))


# --- normalisations


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_the_softmax_family(name: str, dim: int) -> None:
    x = drawn(50, 2, 3, 4)
    x[0, 0], x[1, 1, 0], x[1, 2, 0] = -math.inf, math.nan, 1e4
    assert_same(
        computed(lambda b, v: getattr(norms, name)(b, v, dim), x), getattr(F, name)(x, dim=dim)
    )


def test_normalisations() -> None:
    x, gamma, beta = drawn(51, 2, 4, 5, 3), drawn(52, 4), drawn(53, 4)
    w, c = drawn(54, 5, 3), drawn(55, 5, 3)
    ours = computed(lambda b, *v: norms.layer_norm(b, v[0], [5, 3], *v[1:]), x, w, c)
    assert_same(ours, F.layer_norm(x, [5, 3], w, c))
    ours = computed(lambda b, v: norms.layer_norm(b, v, [3], eps=1e-3), x)
    assert_same(ours, F.layer_norm(x, [3], eps=1e-3))
    ours = computed(lambda b, *v: norms.rms_norm(b, v[0], [5, 3], v[1]), x, w)
    assert_same(ours, F.rms_norm(x, [5, 3], w))
    for groups in (1, 2, 4):
        ours = computed(
            lambda b, *v, g=groups: norms.group_norm(b, v[0], g, *v[1:]), x, gamma, beta
        )
        assert_same(ours, F.group_norm(x, groups, gamma, beta))
    assert_same(computed(norms.instance_norm, x), F.instance_norm(x))
    mean, var = drawn(56, 4), drawn(57, 4).abs()
    ours = computed(norms.batch_norm, x, mean, var, gamma, beta)
    assert_same(ours, F.batch_norm(x, mean, var, gamma, beta))
    for size in (1, 2, 3, 5):
        ours = computed(lambda b, v, s=size: norms.local_response_norm(b, v, s, 0.3, 0.6, 1.5), x)
        assert_same(ours, F.local_response_norm(x, size, 0.3, 0.6, 1.5))
    for p in (1, 2, 3):
        ours = computed(lambda b, v, p=p: reductions.normalize(b, v, p, 1), x)
        assert_same(ours, F.normalize(x, p, 1))


def test_shapes_that_do_not_fit_are_refused() -> None:
    build = Builder()
    x, w = build.input("x", (2, 3)), build.input("w", (4, 5))
    for wrong in (
        lambda: products.linear(build, x, w),
        lambda: products.matmul(build, x, w),
        lambda: elementwise.add(build, x, w),
        lambda: reductions.sum(build, x, 5),
        lambda: norms.layer_norm(build, x, [4]),
        lambda: norms.group_norm(build, x, 2),
        lambda: products.einsum(build, "ij,kl->m", [x, w]),
    ):
        with pytest.raises(ShapeError):
            wrong()


def test_what_is_made_of_weights_alone_is_apart_from_the_data() -> None:
    build = Builder()
    x = build.input("x", (1, 2, 3))
    held = [build.weight(n, np.ones(2, np.float32), n) for n in ("mean", "var", "gamma", "beta")]
    network = build.network([norms.batch_norm(build, x, *held)])
    assert [("x" in node.inputs) for node in network.nodes] == [False, False, True]
