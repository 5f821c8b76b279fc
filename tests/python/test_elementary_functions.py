"""Every function of the formula language at special values and over a dense sample: the interpreter, kernels for
three CPUs in three dtypes, derivatives, emitted PyTorch and C against NumPy, math and torch in float64.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from syno import Operator, _core

Array = np.ndarray[Any, Any]
INF, NAN = math.inf, math.nan

DTYPES = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
CPUS = ["host", "x86-64-v3", "generic"]

#: Zeros, infinities, no number, denormals, huge, tiny, halfway between integers, around the ends of ranges.
SPECIAL = [
    *(0.0, -0.0, INF, -INF, NAN, 1e-40, -1e-40, 1e-45, 1e-310, -1e-310, 1e-38, -1e-38),
    *(
        3e38,
        -3e38,
        1e308,
        1e-30,
        -1e-30,
        0.5,
        -0.5,
        1.5,
        -1.5,
        2.5,
        1.0,
        -1.0,
        2.0,
        -2.0,
        3.0,
        -3.0,
    ),
    *(
        4.0,
        -5.0,
        -10.0,
        -13.0,
        -14.5,
        10.0,
        14.5,
        20.0,
        -20.0,
        87.0,
        88.8,
        -88.0,
        -100.0,
        -103.9,
        100.0,
    ),
    *(16777217.0, 1.0000001, 0.9999999, 709.9, -745.0, 1e10, -1e10, 0.7071068, 3.14159),
]


def _erf(x: float) -> float:
    return math.erf(x)


_ROOT_TWO = Fraction(math.isqrt(2 * 10**80), 10**40)


def _gelu(x: float) -> float:
    """x / 2 erfc(-x / sqrt 2), itself good to a dozen units far out, the rounding error of the argument, which the tail magnifies, taken out."""
    if math.isinf(x):
        return x if x > 0 else NAN
    t = -x / math.sqrt(2)
    missing = float(-Fraction(x) / _ROOT_TWO - Fraction(t)) if abs(x) < 1e3 else 0.0
    slope = (
        t + math.sqrt(t * t + 2)
        if t > 5
        else 2 / math.sqrt(math.pi) * math.exp(-t * t) / math.erfc(t)
    )
    return x * (0.5 * math.erfc(t) * (1 - missing * slope))


def _sigmoid(x: float) -> float:
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    return math.exp(x) / (1 + math.exp(x))


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    return lambda x: np.array([function(float(v)) if v == v else NAN for v in x])


def _finite(function: Callable[[float], float]) -> Callable[[Array], Array]:
    return _each(lambda x: function(x) if math.isfinite(x) else NAN)


#: By name: what it is in the language, in NumPy or math, in torch; the error in units in the last place allowed in
#: float32 and float64.
UNARY: dict[str, tuple[str, Callable[[Array], Array], Callable[[Any], Any], float, float]] = {
    "neg": ("-x[i]", np.negative, torch.neg, 0, 0),
    "exp": ("exp(x[i])", np.exp, torch.exp, 3, 3),
    "log": ("log(x[i])", np.log, torch.log, 3, 3),
    "sqrt": ("sqrt(x[i])", np.sqrt, torch.sqrt, 0.5, 0.5),
    "rsqrt": ("rsqrt(x[i])", lambda x: 1 / np.sqrt(x), torch.rsqrt, 3, 3),
    "erf": ("erf(x[i])", _each(_erf), torch.erf, 3, 3),
    "tanh": ("tanh(x[i])", np.tanh, torch.tanh, 3, 3),
    "sigmoid": ("sigmoid(x[i])", _each(_sigmoid), torch.sigmoid, 3, 3),
    "relu": ("relu(x[i])", lambda x: np.where(x < 0, 0, x), torch.relu, 0, 0),
    "abs": ("abs(x[i])", np.abs, torch.abs, 0, 0),
    "gelu": ("gelu(x[i])", _each(_gelu), torch.nn.functional.gelu, 7, 20),
    "floor": ("floor(x[i])", np.floor, torch.floor, 0, 0),
    "ceil": ("ceil(x[i])", np.ceil, torch.ceil, 0, 0),
    "round": ("round(x[i])", np.round, torch.round, 0, 0),
    "trunc": ("trunc(x[i])", np.trunc, torch.trunc, 0, 0),
    "sin": ("sin(x[i])", _finite(math.sin), torch.sin, 0.01, 0.5),
    "cos": ("cos(x[i])", _finite(math.cos), torch.cos, 0.01, 0.5),
    "atan": ("atan(x[i])", _each(math.atan), torch.atan, 2, 2),
    "square": ("x[i] ** 2", lambda x: np.power(x, 2.0), lambda x: x**2, 2, 2),
    "cube": ("x[i] ** 3", lambda x: np.power(x, 3.0), lambda x: x**3, 2.5, 2.5),
    "root": (
        "x[i] ** 0.5",
        lambda x: np.power(x, np.full_like(x, 0.5)),
        lambda x: torch.pow(x, torch.full_like(x, 0.5)),
        1,
        1,
    ),
    "one": ("x[i] ** 0", lambda x: np.power(x, 0.0), lambda x: x**0, 0, 0),
    "sixteenth": ("x[i] ** 16", lambda x: np.power(x, 16.0), lambda x: x**16, 16, 16),
    "third": ("x[i] / 3", lambda x: x / 3, lambda x: x / 3, 1.5, 0.5),
    "max_nan": ("max(x[i], inf - inf)", lambda x: x * NAN, lambda x: x * NAN, 0, 0),
    "min_nan": ("min(inf * 0, x[i])", lambda x: x * NAN, lambda x: x * NAN, 0, 0),
}
BINARY: dict[
    str, tuple[str, Callable[[Array, Array], Array], Callable[[Any, Any], Any], float, float]
] = {
    "add": ("x[i] + z[i]", np.add, torch.add, 0.5, 0.5),
    "subtract": ("x[i] - z[i]", np.subtract, torch.sub, 0.5, 0.5),
    "multiply": ("x[i] * z[i]", np.multiply, torch.mul, 0.5, 0.5),
    "divide": ("x[i] / z[i]", np.divide, torch.div, 0.5, 0.5),
    "max": ("max(x[i], z[i])", np.maximum, torch.maximum, 0, 0),
    "min": ("min(x[i], z[i])", np.minimum, torch.minimum, 0, 0),
    "fmod": ("fmod(x[i], z[i])", np.fmod, torch.fmod, 0, 0),
    "power": ("x[i] ** z[i]", np.power, torch.pow, 2, 2),
    "less": ("x[i] < z[i]", np.less, torch.lt, 0, 0),
    "less_equal": ("x[i] <= z[i]", np.less_equal, torch.le, 0, 0),
    "equal": ("x[i] == z[i]", np.equal, torch.eq, 0, 0),
    "not_equal": ("x[i] != z[i]", np.not_equal, torch.ne, 0, 0),
    "and": ("x[i] and z[i]", np.logical_and, torch.logical_and, 0, 0),
    "or": ("x[i] or z[i]", np.logical_or, torch.logical_or, 0, 0),
    "select": ("select(x[i] < z[i], x[i], z[i])", lambda x, z: np.where(x < z, x, z), None, 0, 0),  # type: ignore[dict-item]
}
#: Signs of zeros that C leaves open.
ZERO_OF_ANY_SIGN = {"max", "min", "relu"}


def ulps(got: Array, wanted: Array, dtype: np.dtype[Any]) -> Array:
    """Distances in units in the last place of the nearest value; infinite where one is no number alone, or
    overflows alone by more than its rounding."""
    with np.errstate(all="ignore"):
        nearest = wanted.astype(dtype).astype(np.float64)
        info = ml_dtypes.finfo(dtype)
        finite = np.where(np.isfinite(nearest), nearest, 1.0)
        exponent = np.floor(np.log2(np.maximum(np.abs(finite), float(info.smallest_normal))))
        ulp = np.exp2(exponent - info.nmant)
        apart = np.abs(got - np.where(np.isfinite(wanted), wanted, nearest)) / ulp
        same = (got == nearest) | (np.isnan(got) & np.isnan(nearest))
        one_sided = ~np.isfinite(got) | ~np.isfinite(nearest)
    return np.where(same, 0, np.where(one_sided, INF, apart))


def inputs_of(name: str, dtype: np.dtype[Any]) -> list[Array]:
    with np.errstate(all="ignore"):
        special = np.array(SPECIAL).astype(dtype)
        if name in UNARY:
            random = np.random.default_rng(3)
            dense = [random.uniform(-s, s, 1500) for s in (1.0, 6.0, 40.0, 200.0)]
            dense.append(np.exp2(random.uniform(-140, 120, 500)))
            every = np.concatenate([special, *(d.astype(dtype) for d in dense)])
            if (
                name == "gelu"
            ):  # where its reference loses digits, erfc being below the normal numbers
                every[(every > -39) & (every < -37)] = -37
            return [every]
    return [np.repeat(special, len(special)), np.tile(special, len(special))]


def reference(name: str, given: list[Array]) -> Array:
    function = UNARY[name][1] if name in UNARY else BINARY[name][1]
    with np.errstate(all="ignore"):
        return np.asarray(function(*(a.astype(np.float64) for a in given)), np.float64)


def operator_of(name: str, elements: int) -> Operator:
    text = UNARY[name][0] if name in UNARY else BINARY[name][0]
    return Operator.parse(f"y[i] = {text}", i=elements, data=["x", "z"][: 1 + (name in BINARY)])


def compiled(program: _core.Program, dtype: str, cpu: str) -> _core.Kernel:
    nest = _core.apply_schedule(program, _core.default_schedule(program, dtype=dtype))
    return _core.compile_nest(nest, cpu=_core.cpu_named(cpu))


def check(
    name: str, got: Array, given: list[Array], wanted: Array, dtype: np.dtype[Any], most: float
) -> None:
    wide = got.astype(np.float64)
    apart = ulps(wide, wanted, dtype)
    # The last digit of what is halfway between denormals is nobody's mistake.
    wrong = np.flatnonzero(apart > most + (0.5 if most else 0))
    if most == 0 and name not in ZERO_OF_ANY_SIGN:
        wrong = np.union1d(
            wrong, np.flatnonzero((wanted == 0) & (np.signbit(wide) != np.signbit(wanted)))
        )
    shown = [
        f"{name}({', '.join(repr(float(a[i])) for a in given)}) = {wide[i]!r}, wanted {wanted[i]!r}, "
        f"{apart[i]:.3g} ulp"
        for i in wrong[:12]
    ]
    assert not shown, f"{len(wrong)} of {len(wide)}:\n" + "\n".join(shown)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_kernels_compute_the_function_everywhere(name: str, dtype: str, cpu: str) -> None:
    given = inputs_of(name, DTYPES[dtype])
    row = UNARY[name] if name in UNARY else BINARY[name]
    most = row[4] if dtype == "float64" else row[3]
    if dtype == "bfloat16":
        most = 0.51 if most else 0
    with np.errstate(all="ignore"):
        wanted = reference(name, given)
    got = compiled(operator_of(name, len(given[0])).program, dtype, cpu)(*given)
    check(name, np.asarray(got).view(DTYPES[dtype]), given, wanted, DTYPES[dtype], most)


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_the_interpreter_computes_the_function_everywhere(name: str) -> None:
    given = inputs_of(name, DTYPES["float64"])
    got = operator_of(name, len(given[0])).reference(*given)
    check(
        name,
        got,
        given,
        reference(name, given),
        DTYPES["float64"],
        {"sixteenth": 9, "gelu": 20}.get(name, 2),
    )


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_emitted_pytorch_means_the_same_at_special_values(name: str) -> None:
    given = [a[: len(SPECIAL) ** 2] for a in inputs_of(name, DTYPES["float64"])]
    wanted = reference(name, given)
    got = operator_of(name, len(given[0])).to_torch()(*map(torch.from_numpy, given)).numpy()
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    apart = np.abs(got - np.where(np.isfinite(wanted), wanted, 0))
    close = np.isfinite(got) & np.isfinite(wanted) & (apart <= 1e-9 * np.abs(wanted) + 1e-15)
    settled = np.full(len(got), True)
    if name == "fmod":  # PyTorch's vectors know no quotient beyond their range
        with np.errstate(all="ignore"):
            settled = ~np.isinf(given[0] / given[1]) | ~np.isfinite(given[0]) | (given[1] == 0)
    wrong = np.flatnonzero(settled & ~(same | close))
    assert not len(wrong), [(*(float(a[i]) for a in given), got[i], wanted[i]) for i in wrong[:9]]


def test_emitted_c_means_the_same_at_special_values(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    source = tmp_path / "all.c"
    texts = []
    for name in [*UNARY, *BINARY]:
        given = inputs_of(name, DTYPES["float64"])
        text = _core.emit_c(
            operator_of(name, len(given[0])).program,
            function=f"f_{name}",
            double_precision=True,
            points=1,
        )
        body = text[text.index(f"int f_{name}(") : text.index("int main(void)")]
        texts.append((text[: text.index(f"int f_{name}(")], body))
    source.write_text(texts[0][0] + "".join(body for _, body in texts))
    library = tmp_path / "all.so"
    command = [
        compiler,
        "-std=c11",
        "-O2",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        str(source),
        "-lm",
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    loaded = ctypes.CDLL(str(library))
    for name in [*UNARY, *BINARY]:
        given = inputs_of(name, DTYPES["float64"])
        got = np.empty(len(given[0]))
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*given, got)]
        assert getattr(loaded, f"f_{name}")(*pointers) == 0
        # C's erfc has the rounding error of its argument, times twice the argument's square.
        most = 3000 if name == "gelu" else 9
        check(name, got, given, reference(name, given), DTYPES["float64"], most)


# ---- derivatives ----

#: Where ours are finite and torch's are not, or the other way, for a reason.
GRADIENT_BY_TORCH = [
    n for n in (*UNARY, *BINARY) if n not in {"max_nan", "min_nan", "select", "third"}
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [n for n in GRADIENT_BY_TORCH if n not in list(BINARY)[8:]])
def test_derivatives_agree_with_torch_at_special_values(name: str, dtype: str) -> None:
    with np.errstate(all="ignore"):
        special = np.array([v for v in SPECIAL if abs(v) > 1e-30 or v != v or v == 0]).astype(
            DTYPES[dtype]
        )
    given = (
        [special]
        if name in UNARY
        else [np.repeat(special, len(special)), np.tile(special, len(special))]
    )
    function = UNARY[name][2] if name in UNARY else BINARY[name][2]
    operator = operator_of(name, len(given[0]))
    tensors = [torch.from_numpy(a).double().requires_grad_() for a in given]
    wanted = torch.autograd.grad(function(*tensors).sum(), tensors)
    for letter, gradient in zip("xz", wanted, strict=False):
        program = operator.program.derivative(letter)
        values = {"x": given[0], "z": given[-1], "dy": np.ones(len(given[0]), DTYPES[dtype])}
        kernel = compiled(program, dtype, "host")
        got = np.asarray(kernel(*(values[n] for n in program.inputs)), np.float64)
        told = np.asarray(
            program.interpret({n: values[n].astype(np.float64) for n in program.inputs})[
                program.outputs[0]
            ]
        )
        exact = gradient.numpy()
        for what, found, tolerance in (("kernel", got, 1e-4), ("interpreter", told, 1e-9)):
            least = float(np.finfo(DTYPES[dtype]).tiny) * 100
            most = float(np.finfo(DTYPES[dtype]).max) / 100
            # Only where no part of the formula leaves the dtype's range on the way.
            settled = (
                ~np.isfinite(exact)
                | ((np.abs(exact) < math.sqrt(most)) & (np.abs(exact) > least))
                | (exact == 0)
            )
            settled &= np.all([~np.isfinite(a) | (np.abs(a) < 1e5) for a in given], axis=0)
            same = (found == exact) | (np.isnan(found) & np.isnan(exact))
            with np.errstate(all="ignore"):
                close = np.abs(found - exact) <= tolerance * np.abs(exact) + (
                    1e-7 if what == "kernel" else 1e-12
                )
            wrong = np.flatnonzero(settled & ~same & ~close)
            assert not len(wrong), (
                what,
                f"d{letter}",
                [(*(float(a[i]) for a in given), found[i], exact[i]) for i in wrong[:9]],
            )


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_the_gradient_of_an_extreme_is_torchs_at_ties_and_at_what_is_no_number(
    reduction: str,
) -> None:
    rows = np.array(
        [[1, 2, 2], [NAN, 1, 2], [INF, INF, 0], [-INF, -INF, -INF], [0.0, -0.0, -1], [3, 1, 1]]
    )
    operator = Operator.parse(f"y[i] = {reduction}[j] x[i,j]", i=6, j=3)
    program = operator.program.derivative("x")
    tensor = torch.from_numpy(rows).requires_grad_()
    result = tensor.amax(1) if reduction == "max" else tensor.amin(1)
    (wanted,) = torch.autograd.grad(result.sum(), tensor)
    for dtype in ("float32", "float64"):
        given = {"x": rows.astype(DTYPES[dtype]), "dy": np.ones(6, DTYPES[dtype])}
        got = compiled(program, dtype, "host")(*(given[n] for n in program.inputs))
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-6)
    told = program.interpret({"x": rows, "dy": np.ones(6)})
    np.testing.assert_allclose(told[program.outputs[0]], wanted.numpy(), rtol=1e-12)
    module = operator.to_torch()
    given_tensor = torch.from_numpy(rows).requires_grad_()
    (by_module,) = torch.autograd.grad(module(given_tensor).sum(), given_tensor)
    np.testing.assert_allclose(by_module.numpy(), wanted.numpy())


# ---- means and indices ----


def test_a_mean_divides_by_the_number_of_its_terms() -> None:
    random = np.random.default_rng(0)
    for terms in (3, 5, 6, 7, 9, 10, 49, 100):
        x = np.round(random.uniform(-99, 99, (37, terms))).astype(np.float32)
        operator = Operator.parse("y[i] = mean[j] x[i,j]", i=37, j=terms)
        wanted = x.sum(1, dtype=np.float32) / np.float32(terms)
        for cpu in CPUS:
            got = compiled(operator.program, "float32", cpu)(x)
            np.testing.assert_array_equal(got, wanted)
    for value in (1, 3, 0.5, 7):
        row = np.full((1, 3), value, np.float32)
        assert Operator.parse("y[i] = mean[j] x[i,j]", i=1, j=3).compile()(row) == np.float32(value)
        assert (
            Operator.parse("y[i] = mean[j] x[i,j]", i=1, j=3).to_torch()(torch.from_numpy(row))
            == value
        )


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("y[i] = index(i + 16777210) == 16777217", lambda i: i == 7),
        ("y[i] = index(i + 16777210) < 16777217", lambda i: i < 7),
        ("y[i] = 16777217 <= index(i + 16777210)", lambda i: i >= 7),
        ("y[i] = index(i + 16777210) != index(2 * i + 16777203)", lambda i: i != 7),
        ("y[i] = index(i + 16777210) - 16777210", lambda i: i),
        ("y[i] = index(3 * i + 1000000001) - index(i + 1000000000)", lambda i: 2 * i + 1),
        ("y[i] = 2 * index(i + 16777210) - 33554420", lambda i: 2 * i),
        ("y[i] = index(i + 16777210)", lambda i: np.float32(i + 16777210)),
    ],
)
def test_indices_beyond_the_mantissa_are_whole_numbers(
    text: str, wanted: Callable[[Array], Array], cpu: str
) -> None:
    operator = Operator.parse(text, i=37)
    got = compiled(operator.program, "float32", cpu)()
    np.testing.assert_array_equal(got, np.asarray(wanted(np.arange(37)), np.float32))
    assert operator.compile(cache=False).verify()
