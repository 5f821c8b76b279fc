"""Sizes that calls bring along: one loop nest, one machine code for a range of them, right at every one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from syno import _core
from syno.errors import ParseError, ScheduleError, ShapeError

MOST = 13


@dataclass(frozen=True)
class Axis:
    name: str
    extent: int  # 0: the size that a call brings along
    tile: int
    vector: bool


@dataclass(frozen=True)
class Product:
    """y[...] = sum over the other axes of a[...] * b[...], tiled, some of its axes as long as a call says."""

    axes: tuple[Axis, ...]
    a: str
    b: str
    y: str
    parallel: bool

    def einsum(self) -> str:
        return f"{self.a},{self.b}->{self.y}"

    def shape(self, of: str, n: int) -> tuple[int, ...]:
        extents = {axis.name: axis.extent or n for axis in self.axes}
        return tuple(extents[name] for name in of)

    def text(self, *, guarded: bool = True) -> str:
        extents = {axis.name: str(axis.extent) if axis.extent else "n" for axis in self.axes}

        def buffer(kind: str, name: str, of: str) -> str:
            return f"{kind} {name}: f32[{', '.join(extents[axis] for axis in of)}]"

        lines = [
            "nest product", f"parameter n in 1..{MOST + 1}",
            buffer("input", "a", self.a), buffer("input", "b", self.b), buffer("output", "y", self.y),
        ]  # fmt: skip
        written = [axis for axis in self.axes if axis.name in self.y]
        lines += self._loops(written, {}, [], "{y} = 0", 0, guarded, "z")
        lines += self._loops(list(self.axes), {}, [], "{y} += {a} * {b}", 0, guarded, "")
        return "\n".join(lines) + "\n"

    def _loops(
        self,
        left: list[Axis],
        where: dict[str, str],
        conditions: list[str],
        body: str,
        depth: int,
        guarded: bool,
        prefix: str,
    ) -> Iterator[str]:
        indent = "  " * depth
        if not left:
            if conditions and guarded:
                yield f"{indent}if {', '.join(conditions)}"
                indent += "  "
            places = {
                name: f"{name}[{', '.join(where[axis] for axis in of)}]"
                for name, of in (("a", self.a), ("b", self.b), ("y", self.y))
                if all(axis in where for axis in of)
            }
            yield indent + body.format(**places)
            return
        axis, *rest = left
        name = prefix + axis.name
        kind = " parallel" if depth == 0 and self.parallel and axis.name in self.y else ""
        if axis.tile == 1:
            yield f"{indent}for {name} in 0..{axis.extent or 'n'}{kind}"
            yield from self._loops(
                rest, {**where, axis.name: name}, conditions, body, depth + 1, guarded, prefix
            )
            return
        tile = axis.tile
        index = f"{name} * {tile} + {name}i"
        end = str(axis.extent) if axis.extent else "n"
        whole = str(axis.extent // tile) if axis.extent else f"n / {tile}"
        every = str(-(-axis.extent // tile)) if axis.extent else f"(n + {tile - 1}) / {tile}"
        minus = f" - {end}"
        for begin, stop, tail in (("0", whole, False), (whole, every, True)):
            if begin == stop:
                continue
            yield f"{indent}for {name} in {begin}..{stop}{kind}"
            yield f"{indent}  for {name}i in 0..{tile}{' vector' if axis.vector else ''}"
            condition = [f"{index}{minus} in -{2 * MOST + 2 * tile}..0"] if tail else []
            yield from self._loops(
                rest,
                {**where, axis.name: index},
                [*conditions, *condition],
                body,
                depth + 2,
                guarded,
                prefix,
            )


@st.composite
def products(draw: st.DrawFn) -> Product:
    count = draw(st.integers(1, 4))
    names = "ijkl"[:count]
    live = draw(st.sets(st.sampled_from(names), min_size=1))
    vector = draw(st.sampled_from([*names, ""]))
    axes = []
    for name in names:
        extent = 0 if name in live else draw(st.integers(1, 5))
        tile = draw(st.sampled_from([1, 2, 3, 4, 8, 16]))
        axes.append(Axis(name, extent, tile, name == vector))
    subsets = st.permutations(names).flatmap(
        lambda order: st.integers(0, count).map(lambda n: "".join(order[:n]))
    )
    a, b = draw(subsets), draw(subsets)
    b += "".join(name for name in names if name not in a + b)
    y = "".join(draw(st.permutations([name for name in names if draw(st.booleans())])))
    return Product(tuple(axes), a, b, y, draw(st.booleans()))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(product=products(), seed=st.integers(0, 2**16))
def test_one_nest_is_right_at_every_size(product: Product, seed: int) -> None:
    nest = _core.LoopNest.parse(product.text())
    nest.verify()
    assert _core.LoopNest.parse(nest.text()).text() == nest.text()
    assert nest.parameters == [("n", 1, MOST)]
    kernel = _core.compile_nest(nest)
    rng = np.random.default_rng(seed)
    for n in range(1, MOST + 1):
        a = rng.standard_normal(product.shape(product.a, n)).astype(np.float32)
        b = rng.standard_normal(product.shape(product.b, n)).astype(np.float32)
        wanted = np.einsum(product.einsum(), a.astype(np.float64), b.astype(np.float64))
        inputs = {"a": a, "b": b}
        np.testing.assert_allclose(nest.interpret(inputs, [n])["y"], wanted, atol=1e-12, rtol=1e-9)
        special = nest.specialised([n])
        special.verify()
        assert special.parameters == []
        np.testing.assert_array_equal(
            special.interpret(inputs)["y"], nest.interpret(inputs, [n])["y"]
        )
        made = kernel.at([n])(a, b, num_threads=2 if product.parallel else 1)
        np.testing.assert_allclose(made, wanted, atol=1e-3, rtol=1e-4)


@settings(max_examples=60)
@given(product=products())
def test_a_nest_whose_tails_are_not_guarded_is_refused(product: Product) -> None:
    """An index may leave a tensor as long as a call says only where the tile is one of the size's divisors."""
    leaves = any(axis.extent == 0 and axis.tile > 1 for axis in product.axes)
    leaves |= any(axis.extent and axis.extent % axis.tile for axis in product.axes)
    nest = _core.LoopNest.parse(product.text(guarded=False))
    if not leaves:
        nest.verify()
        return
    with pytest.raises(ScheduleError, match="guard it or pad the buffer"):
        nest.verify()


TOTAL = """\
nest total
parameter n in 2..9
input x: f32[n, 3]
output y: f32[3]
for j in 0..3
  y[j] = 0
for i in 0..n
  for j in 0..3
    y[j] += x[i, j]
"""


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (("i in 0..n", "i in 0..n + 1"), ScheduleError, r"index 0 of `x`, i, .* outside \[0, n\)"),
        (("i in 0..n", "i in 0..n vector"), ScheduleError, "its bounds are not constant"),
        (("for j in 0..3\n  y[j] = 0", "for n in 0..3\n  y[n] = 0"), ScheduleError, "called as a parameter is"),
        (("n in 2..9", "n in 0..9"), ParseError, "sizes begin at 1"),
        (("n in 2..9", "n in 5..5"), ParseError, "sizes begin at 1 and end after"),
        (("n in 2..9", "n in 2..2000000000000"), ParseError, "at most 1099511627776"),
        (("f32[n, 3]", "f32[n - 3, 3]"), ParseError, "an extent is -1"),
        (("f32[n, 3]", "f32[n, 3] strides[1, 9]"), ScheduleError, "such arguments are row-major"),
        (("parameter n in 2..9", "parameter n in 2..9\nparameter n in 1..4"), ParseError, "second parameter"),
        (("output y: f32[3]", "output y: f32[3]\ntemporary t: f32[n]"), ScheduleError, "only arguments may"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_at_every_size_is_refused(
    change: tuple[str, str], error: type[Exception], says: str
) -> None:
    text = TOTAL.replace(*change)
    assert text != TOTAL
    with pytest.raises(error, match=says):
        _core.LoopNest.parse(text).verify()


def test_sizes_outside_of_the_range_get_a_sentence() -> None:
    nest = _core.LoopNest.parse(TOTAL)
    kernel = _core.compile_nest(nest)
    for sizes, says in (
        ([1], "`n` is 1; it was made for 2 to 8"),
        ([9], "is 9"),
        ([], "0 sizes for"),
    ):
        with pytest.raises(ShapeError, match=says):
            kernel.at(sizes)
        with pytest.raises(ShapeError, match=says.split(";")[0]):
            nest.interpret({"x": np.zeros((2, 3))}, sizes)
    with pytest.raises(ShapeError, match="call what at"):
        kernel(np.zeros((2, 3), np.float32))
    with pytest.raises(ShapeError, match="call what at"):
        kernel.call_pointers([0, 0])
    with pytest.raises(ShapeError, match=r"has shape \[5, 3\]; the kernel was made for \[4, 3\]"):
        kernel.at([4])(np.zeros((5, 3), np.float32))


def test_a_kernel_at_a_size_takes_arrays_of_any_strides() -> None:
    kernel = _core.compile_nest(_core.LoopNest.parse(TOTAL)).at([6])
    x = np.arange(36, dtype=np.float32).reshape(6, 6)[:, ::2]
    np.testing.assert_array_equal(kernel(x), x.sum(0))
