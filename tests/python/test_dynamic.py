"""Operators compiled for ranges of their sizes: right at every size, in few pieces of machine code."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import written_machine

import syno
from syno import Operator, _core
from syno.errors import ArgumentError, KernelError, ScheduleError, ShapeError, UnknownName
from syno.kernels import spills
from syno.kernels.buckets import LOSS, NARROW, Bucket, Plan, Plans, tried_in
from syno.kernels.construct import construct
from syno.kernels.dynamic import DynamicKernel
from syno.kernels.families import Family
from syno.machines.model import fixed_kernels, machine_model

SOFTMAX = "m[i] = max[j] x[i,j]; e[i,j] = exp(x[i,j] - m[i]); s[i] = sum[j] e[i,j]; y[i,j] = e[i,j] / s[i]"


@st.composite
def formulas(draw: st.DrawFn) -> tuple[str, dict[str, int], list[str]]:
    """(formula, extents, names of sizes that calls bring along)."""
    kinds = ["product", "product", "product", "softmax", "window", "norm", "elements"]
    kind = draw(st.sampled_from(kinds))
    if kind == "elements":  # whose loops are fused to one
        extents = {"i": draw(st.integers(1, 20)), "j": draw(st.sampled_from([1, 3, 16, 48, 96]))}
        return "y[i,j] = x[i,j] / (1 + abs(x[i,j])) + w[j]", extents, draw(_some("ij"))
    if kind == "softmax":
        return SOFTMAX, {"i": draw(st.integers(1, 7)), "j": 5}, draw(_some("ij"))
    if kind == "norm":
        text = "m[i] = mean[j] x[i,j]; v[i] = mean[j] (x[i,j] - m[i]) * (x[i,j] - m[i]); "
        text += "y[i,j] = (x[i,j] - m[i]) * rsqrt(v[i] + 1) * g[j]"
        return text, {"i": draw(st.integers(1, 7)), "j": 5}, draw(_some("ij"))
    if kind == "window":
        text = "y[n,o,h] = sum[c,r] x[n,c,h+r-1] * k[o,c,r]"
        sizes = {"n": 2, "o": draw(st.integers(1, 9)), "c": draw(st.integers(1, 5)), "h": 6, "r": 3}
        return text, sizes, draw(_some("nh"))
    names = "ijkl"[: draw(st.integers(1, 4))]
    a = "".join(
        draw(st.permutations([name for name in names if draw(st.booleans())] or [names[0]]))
    )
    b = "".join(
        draw(st.permutations([name for name in names if name not in a or draw(st.booleans())]))
    )
    y = [name for name in names if draw(st.booleans())]
    sums = [name for name in names if name not in y]
    reduction = draw(st.sampled_from(["sum", "mean", "max"]))
    text = f"y[{','.join(draw(st.permutations(y)))}] = "
    text += f"{reduction}[{','.join(sums)}] " if sums else ""
    text += f"x[{','.join(a)}]" + (f" * w[{','.join(b)}]" if b else "")
    return text, {name: draw(st.integers(1, 20)) for name in names}, draw(_some(names))


def _some(names: str) -> st.SearchStrategy[list[str]]:
    return st.sets(st.sampled_from(names), min_size=1, max_size=2).map(sorted)


def _near(kernel: Any, operator: Operator, rng: np.random.Generator) -> None:
    arrays = [
        rng.standard_normal(operator.shapes[name]).astype(np.float32) for name in operator.inputs
    ]
    wanted = operator.reference(*arrays)
    made = kernel(*arrays)
    assert made.shape == wanted.shape
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)


@settings(max_examples=25)
@given(formula=formulas(), most=st.integers(1, 40), threads=st.integers(1, 2), data=st.data())
def test_code_for_a_range_is_right_at_its_sizes(
    formula: tuple[str, dict[str, int], list[str]], most: int, threads: int, data: st.DataObject
) -> None:
    text, sizes, names = formula
    operator = Operator.parse(text, **sizes)
    least = data.draw(st.integers(1, most))
    kernel = operator.compile(
        dynamic=dict.fromkeys(names, (least, most)), threads=threads, cache=False
    )
    assert isinstance(kernel, DynamicKernel)
    assert kernel.by_size == ""
    assert kernel.sizes == dict.fromkeys(names, (least, most))
    rng = np.random.default_rng(0)
    for size in sorted({least, most, *data.draw(st.lists(st.integers(least, most), max_size=4))}):
        other = data.draw(st.integers(least, most))
        values = dict(zip(names, (size, other), strict=False))
        _near(kernel, operator.with_sizes(**values), rng)
        _near(kernel.at(**values), operator.with_sizes(**values), rng)


def test_buckets_hold_each_size_once_and_share_code() -> None:
    operator = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=4, n=32, k=32)
    kernel = operator.compile(dynamic={"m": (1, 64)}, cache=False)
    held = [
        size for bucket in kernel.buckets for size in range(bucket.least[0], bucket.greatest[0] + 1)
    ]
    assert sorted(held) == list(range(1, 65))
    assert len(kernel.buckets) < 40
    before = len(kernel.ready)
    bucket = kernel.buckets[-1]
    for size in range(bucket.least[0], bucket.greatest[0] + 1):
        kernel(np.zeros((size, 32), np.float32), np.zeros((32, 32), np.float32))
    assert len(kernel.ready) <= before + 1
    assert "parameter m in" in kernel.loops(m=64)
    assert "DynamicKernel(" in repr(kernel)
    assert str(bucket) in str(kernel)


def test_all_kinds_of_arrays_are_taken() -> None:
    torch = pytest.importorskip("torch")
    operator = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=4, n=3, k=5)
    kernel = syno.compile(operator, dynamic={"m": (2, 9)}, cache=False)
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((7, 5), (3, 5)))
    wanted = x @ w.T
    np.testing.assert_allclose(kernel(x, w), wanted, rtol=1e-5, atol=1e-5)
    made = kernel(torch.tensor(x), torch.tensor(w))
    assert isinstance(made, torch.Tensor)
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-5)
    columns = np.asfortranarray(x)
    np.testing.assert_allclose(
        kernel(columns, torch.tensor(w.T.copy()).T), wanted, rtol=1e-5, atol=1e-5
    )
    out = np.empty((7, 3), np.float32)
    assert kernel(x, w, out=out, num_threads=2) is out
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)
    for refused, error in (
        ({"out": np.empty((3, 7), np.float32).T}, KernelError),
        ({"out": np.empty((6, 3), np.float32)}, ShapeError),
        ({"out": x}, ShapeError),
        ({"num_threads": 0}, KernelError),
    ):
        with pytest.raises(error):
            kernel(x, w, **refused)
    with pytest.raises(KernelError, match="float64"):
        kernel(x.astype(np.float64), w)
    with pytest.raises(KernelError, match="requires a gradient"):
        kernel(torch.tensor(x, requires_grad=True), torch.tensor(w))


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ([(10, 5), (3, 5)], r"x has shape \(10, 5\): its dimension 0 gives m=10, and the kernel was made for 2 to 9"),
        ([(1, 5), (3, 5)], "gives m=1"),
        ([(0, 5), (3, 5)], "gives m=0"),
        ([(4, 6), (3, 5)], r"\[4, 6\]; the kernel was made for \[4, 5\]"),
        ([(4, 5)], "1 arrays for 2 inputs: x, w"),
        ([(), (3, 5)], "it needs 2 dimensions"),
    ],
)  # fmt: skip
def test_shapes_outside_of_the_range_get_a_sentence(
    shapes: list[tuple[int, ...]], says: str
) -> None:
    operator = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=4, n=3, k=5)
    kernel = operator.compile(dynamic={"m": (2, 9)}, cache=False)
    with pytest.raises(ShapeError, match=says):
        kernel(*(np.zeros(shape, np.float32) for shape in shapes))


@pytest.mark.parametrize(
    ("dynamic", "error", "says"),
    [
        ({}, ShapeError, "give the range of each size"),
        ([1, 2], ShapeError, "give the range of each size"),
        ({"q": (1, 2)}, UnknownName, "no size is named 'q'|unknown size 'q'|'q'"),
        ({"m": 4}, ShapeError, "the least and the greatest"),
        ({"m": (0, 4)}, ShapeError, "at least 1|between 1"),
        ({"m": (4, 2)}, ShapeError, "least value is above"),
        ({"m": (1, 2.5)}, ShapeError, "greatest m"),
        ({"m": (1, 2**40)}, ShapeError, "greatest m"),
    ],
)
def test_ranges_that_are_none_get_a_sentence(
    dynamic: Any, error: type[Exception], says: str
) -> None:
    operator = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=4, n=3, k=5)
    with pytest.raises(error, match=says):
        operator.compile(dynamic=dynamic)
    with pytest.raises(ArgumentError, match="derive"):
        operator.compile(dynamic={"m": (1, 4)}, derive=True)
    kernel = operator.compile(dynamic={"m": (1, 4)}, cache=False)
    with pytest.raises(UnknownName):
        kernel.at(q=3)
    with pytest.raises(ShapeError, match="size m is missing"):
        kernel.at()
    with pytest.raises(ShapeError, match="m"):
        kernel.at(m=5)


def test_what_holds_a_size_in_an_index_is_compiled_for_each_size() -> None:
    """A rotation by a size is no matter of extents: its kernels are of one size each."""
    operator = Operator.parse("y[i] = x[(i + 1) % 6]", i=6, shapes={"x": (6,)})
    with pytest.raises(
        ShapeError, match=r"no input's shape shows i|of one of the sizes|only extents"
    ):
        operator.compile(dynamic={"i": (2, 9)}, cache=False)

    def at(sizes: dict[str, int]) -> Operator:
        n = sizes["n"]
        return Operator.parse(f"y[i] = x[(i + 1) % {n}]", i=n, shapes={"x": (n,)})

    kernel = DynamicKernel(
        Family(at, {"n": (2, 9)}), dtype="float32", threads=1, cache=False, background=False
    )
    assert "only extents may change" in kernel.by_size
    for n in (2, 3, 9):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(kernel(x), np.roll(x, -1))
    assert "each size alone" in repr(kernel)
    assert "for" in kernel.loops(n=4)


def test_sizes_of_one_dimension_change_together() -> None:
    """A softmax's `j` and `k` walk the same dimension: one of them names it, as both do."""

    def softmax(x: Any) -> Any:
        e = np.exp(x)
        return e / e.sum(-1, keepdims=True)

    text = "y[i,j] = exp(x[i,j]) / sum[k] exp(x[i,k])"
    operator = syno.Operator.parse(text, i=8, j=64, k=64)
    for named in ({"j": (3, 64)}, {"k": (3, 64)}, {"j": (3, 64), "k": (3, 64)}):
        kernel = operator.compile(dynamic=named)
        assert tuple(kernel.sizes) == tuple(named)[:1]
        for size in (3, 17, 64):
            x = np.random.default_rng(size).standard_normal((8, size)).astype(np.float32)
            np.testing.assert_allclose(kernel(x), softmax(x), rtol=1e-5)
        for at in ({"j": 17}, {"k": 17}, {"j": 17, "k": 17}):
            if at.keys() & named.keys() or set(named) == {"j", "k"}:
                x = np.random.default_rng(17).standard_normal((8, 17)).astype(np.float32)
                np.testing.assert_allclose(kernel.at(**at)(x), softmax(x), rtol=1e-5)
    with pytest.raises(ShapeError, match=r"k=16 and j=17 walk the same dimension"):
        kernel.at(j=17, k=16)
    with pytest.raises(UnknownName, match="Valid: j, k"):
        kernel.at(i=17)
    with pytest.raises(ShapeError, match=r"j=\(3, 64\) and k=\(3, 32\) walk the same dimension"):
        operator.compile(dynamic={"j": (3, 64), "k": (3, 32)})
    turned = syno.Operator.parse("y[i,j] = x[i,j] - x[j,i]", i=20, j=20).compile(
        dynamic={"i": (2, 20)}
    )
    x = np.random.default_rng(0).standard_normal((7, 7)).astype(np.float32)
    np.testing.assert_array_equal(turned(x), x - x.T)
    # What shows a size by itself changes alone: k stays.
    alone = syno.Operator.parse("y[i] = x[i] + sum[k] x[k] * w[k]", i=16, k=4)
    kernel = alone.compile(dynamic={"i": (8, 16)})
    x = np.random.default_rng(0).standard_normal(9).astype(np.float32)
    w = np.ones(4, np.float32)
    np.testing.assert_allclose(kernel(x, w), x + x[:4].sum(), rtol=1e-5)


def test_a_size_nobody_saw_runs_at_once_while_better_code_is_made() -> None:
    operator = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=4, n=32, k=64)
    # How many buckets there are follows the machine.
    with fixed_kernels(written_machine().to_json()):
        kernel = operator.compile(dynamic={"m": (1, 64)}, cache=False, background=True)
    assert len(kernel.buckets) > 1
    waits, real = threading.Event(), kernel._make

    def held_up(bucket: Bucket) -> Any:
        assert waits.wait(60)
        return real(bucket)

    kernel._make = held_up  # type: ignore[method-assign]
    x, w = np.ones((3, 64), np.float32), np.ones((32, 64), np.float32)
    np.testing.assert_array_equal(kernel(x, w), np.full((3, 32), 64, np.float32))
    assert kernel._bucket((3,)) not in kernel.ready
    waits.set()
    kernel.wait()
    assert kernel._bucket((3,)) in kernel.ready
    np.testing.assert_array_equal(kernel(x, w), np.full((3, 32), 64, np.float32))


def test_sizes_are_read_off_the_same_shapes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Operator.parse("y[i] = sum[j] x[i,j] * w[j]", i=4, j=8).compile(dynamic={"i": (1, 40)})
    asked: list[int] = []
    plain = Family.sizes_of

    def sizes_of(self: Family, shapes: Any) -> Any:
        asked.append(len(shapes))
        return plain(self, shapes)

    monkeypatch.setattr(Family, "sizes_of", sizes_of)
    w = np.arange(8, dtype=np.float32)
    for _ in range(3):
        for size in (4, 40, 1):
            x = np.ones((size, 8), np.float32)
            np.testing.assert_array_equal(kernel(x, w), np.full(size, 28, np.float32))
    assert len(asked) == 3
    for _ in range(2):
        with pytest.raises(ShapeError, match="made for 1 to 40"):
            kernel(np.ones((41, 8), np.float32), w)
        with pytest.raises(ShapeError, match="inputs"):
            kernel(np.ones((4, 8), np.float32))
    # However many shapes there are, few are kept.
    monkeypatch.setattr("syno.kernels.dynamic.KEPT_SIZES", 5)
    for size in range(1, 41):
        assert kernel(np.ones((size, 8), np.float32), w).shape == (size,)
        assert len(kernel._of_shapes) <= 5


def test_code_that_computes_something_else_at_some_size_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the code for a range is wrong, each size gets its own."""
    operator = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=4, n=3, k=5)
    other = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k] * 2", m=4, n=3, k=5)

    def nest_of_another(self: Plans, plan: Plan, bucket: Bucket) -> Any:
        wrong = Family(lambda sizes: other.with_sizes(**sizes), {"m": (2, 9)})
        return real(Plans(wrong, dtype="float32", threads=1), plan, bucket)

    real = Plans.nest_of
    monkeypatch.setattr(Plans, "nest_of", nest_of_another)
    kernel = operator.compile(dynamic={"m": (2, 9)}, cache=False)
    assert "max_rel_err" in kernel.by_size
    np.testing.assert_array_equal(
        kernel(np.ones((3, 5), np.float32), np.ones((3, 5), np.float32)), np.full((3, 3), 5.0)
    )


def test_loops_fused_to_one_end_with_the_size() -> None:
    kernel = Operator.parse("y[i,j] = max(x[i,j], 0)", i=5, j=96).compile(
        threads=1, dynamic={"i": (1, 512)}
    )
    assert len(kernel.buckets) == 1  # none is needed where nothing runs for nothing
    lanes = machine_model().vector_bits // 32
    assert f"in 0..{96 // lanes} * i\n" in kernel.loops(i=5)


def test_the_last_tile_has_code_for_each_number_of_its_rows() -> None:
    """Conditions in the innermost loop would cost more than the rows they leave out."""
    operator = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=64, n=32, k=32)
    loops = operator.compile(dynamic={"m": (33, 64)}, cache=False).loops(m=64)
    assert "parameter m in" in loops
    assert "else 0" not in loops


def _window(width: int, taps: int, stride: int = 1, *, summed: bool = False) -> Any:
    left, over = ("o", "w,c,r") if summed else ("o,w", "c,r")
    text = f"y[{left}] = sum[{over}] x[c,{stride}*w+r-{taps // 2}] * k[o,c,r]"
    return Operator.parse(text, o=8, c=2, w=width, r=taps)


def _ranged_nest(
    least: int,
    most: int,
    taps: int,
    stride: int,
    tile: int,
    cuts: list[int],
    *,
    summed: bool = False,
) -> Any:
    """Of a window, or of its outputs' sum, with the loop over tiles of its positions cut at these places."""
    sizes = dict.fromkeys([most, least, (least + most) // 2, max(least, most - 1)])
    instances = [([size], _window(size, taps, stride, summed=summed).program) for size in sizes]
    live = _core.with_live_ends(instances, ["w"])
    peel = f"\npeel y loops=w_o numbers={','.join(map(str, cuts))}" if cuts else ""
    order, kept = ("w_o,c,r,w_i,o", "o") if summed else ("w_o,c,r,w_i,o", "w_i,o")
    schedule = _core.Schedule.parse(
        f"schedule f32\nsplit y loops=w numbers={tile}\nreorder y loops={order}\nvectorize y loops=o\n"
        f"register_tile y loops={kept}{peel}\n"
    )
    return _core.apply_schedule(live, schedule, [("w", least, most)])


@pytest.mark.parametrize(("stride", "taps"), [(3, 5), (2, 3), (4, 4), (5, 2)])
def test_rows_that_no_window_reads_are_left_out_at_every_size(stride: int, taps: int) -> None:
    """Windows with a stride leave the last rows of some sizes, also of the largest: tiles of all rows end before them."""

    def program(height: int) -> Any:
        windows = (height - taps) // stride + 1
        return _core.Program.parse(
            f"input x[3, {height}]\nweight a[16, 3]\nweight b[2, 16, {taps}]\n"
            f"t[o: 16, i: {height}] = sum[c: 3] x[c, i] * a[o, c]\n"
            f"y[p: 2, j: {windows}] = sum[o: 16, r: {taps}] t[o, {stride} * j + r] * b[p, o, r]\nreturn y\n"
        )

    least, most = taps, taps + 3 * stride + stride - 1
    sizes = list(range(least, most + 1))
    live = _core.with_live_ends([([h], program(h)) for h in (most, *sizes[:-1])], ["h"])
    schedule = _core.Schedule.parse(
        "schedule f32\ncompute_at t tensor=y loops=p\nreorder t loops=c,i,o\nvectorize t loops=o\n"
        "register_tile t loops=i,o\n"
    )
    code = _core.compile_nest(_core.apply_schedule(live, schedule, [("h", least, most)]))
    for height in sizes:
        (found,) = _core.verify_at_sizes(None, [code.at([height])], [program(height)], 0)
        assert found.passed, f"{height} of {most}: {found.detail}"


def test_tiles_that_reach_no_border_have_no_conditions() -> None:
    """Where a schedule cuts a loop at the borders of a window, the loop of a range of sizes is cut there, too."""
    # Where the least size has fewer tiles than there are borders, too.
    for least in (100, 9):
        text = str(_ranged_nest(least, 200, 3, 1, 8, [1, 24]).text())
        inside = text.partition("for w_o in 1..(w + 7) / 8 - 1\n")[2]
        inside = inside.partition("for w_o in (w + 7) / 8 - 1..(w + 7) / 8\n")[0]
        assert "y_acc" in inside
        assert "if " not in inside
        assert "else 0" not in inside
    # A window of one tap has no border.
    assert "for w_o in 0..w / 8\n" in str(_ranged_nest(100, 200, 1, 1, 8, [1, 24]).text())


@settings(max_examples=25)
@given(
    taps=st.sampled_from([1, 3, 5]),
    stride=st.integers(1, 2),
    tile=st.integers(2, 6),
    ends=st.tuples(st.integers(1, 40), st.integers(1, 40)).map(sorted),
    cuts=st.sets(st.integers(1, 6), max_size=3),
    summed=st.booleans(),
)
def test_loops_cut_at_borders_make_every_step_once(
    taps: int, stride: int, tile: int, ends: list[int], cuts: set[int], summed: bool
) -> None:
    least, most = ends
    steps = -(-most // tile)
    nest = _ranged_nest(
        least, most, taps, stride, tile, sorted(cut for cut in cuts if cut < steps), summed=summed
    )
    code = _core.compile_nest(nest)
    for size in range(least, most + 1):
        found = code.at([size]).verify(_window(size, taps, stride, summed=summed).program, 0)
        assert found.passed, found.detail


def test_a_range_is_compared_with_single_sizes_at_whole_vectors_too() -> None:
    assert tried_in(Bucket((17,), (512,), 0.0)) == [
        (17,),
        (264,),
        (512,),
        (32,),
        (64,),
        (128,),
        (256,),
    ]
    assert tried_in(Bucket((4, 20), (8, 40), 0.0)) == [(4, 20), (6, 30), (8, 40), (6, 32)]
    assert tried_in(Bucket((5,), (5,), 0.0)) == [(5,)]


def test_smaller_tiles_of_another_size_need_not_fit_a_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where code spills, smaller tiles are tried: those for the size whose schedule a range has may unroll its rows whole, which a
    range of more rows refuses."""
    monkeypatch.setattr(spills, "_FEW", -1.0)  # as if all code spilled
    operator = Operator.parse("y[i] = mean[j] x[i,j]", i=256, j=64)
    family = Family(lambda at: operator.with_sizes(**at), {"i": (4, 256)})
    live = family.program((4,), (256,))
    few = construct(family.at((4,)), explain=False).schedule
    with pytest.raises(ScheduleError, match="would be unrolled"):
        _core.apply_schedule(live, few, [("i", 4, 256)])
    plain = construct(operator, explain=False).schedule
    tried: list[str] = []

    def nest_of(schedule: _core.Schedule) -> _core.LoopNest:
        tried.append(str(schedule.text()))
        return _core.apply_schedule(live, schedule, [("i", 4, 256)])

    found = spills.without_spills(
        family.at((4,)).program, plain, dtype="float32", threads=1, nest_of=nest_of
    )
    assert found == plain
    assert len(tried) > 1


@pytest.mark.parametrize(
    ("text", "sizes", "least", "greatest"),
    [
        ("y[i] = mean[j] x[i,j]", {"i": 512, "j": 272}, 225, 272),
        ("y[i] = max[j] x[i,j]", {"i": 96, "j": 512}, 417, 512),
        ("y[m,n] = sum[k] a[m,k] * b[k,n]", {"m": 256, "n": 24, "k": 256}, 17, 24),
        ("y[o,w] = sum[c,r] x[c,w+r-1] * k[o,c,r]", {"o": 32, "c": 32, "w": 96, "r": 3}, 81, 96),
        (SOFTMAX, {"i": 64, "j": 128}, 97, 128),
    ],
)
def test_code_of_a_range_has_the_schedule_that_loses_least(
    text: str, sizes: dict[str, int], least: int, greatest: int
) -> None:
    """Against the schedule of its greatest size in whole vectors, which serves where others do not gain more than predictions
    are wrong by."""
    (size,) = [name for name, value in sizes.items() if value == greatest]
    operator = Operator.parse(text, **sizes)
    family = Family(lambda at: operator.with_sizes(**at), {size: (least, greatest)})
    plans = Plans(family, dtype="float32", threads=1)
    bucket = Bucket((least,), (greatest,), 0.0)
    whole = family.representative((greatest,))
    plain, chosen = plans._planned(whole, whole, bucket), plans.of(bucket)
    assert chosen == plain or chosen.loss <= max(LOSS, plain.loss - LOSS)
    assert plans._planned(chosen.extents, chosen.like, bucket).loss == chosen.loss
    # Where it will be cut, no other size's schedule is tried than those of its greatest ones.
    narrow = greatest - least < max(2, NARROW * greatest)
    for like in tried_in(bucket) if narrow else [(greatest,), (greatest - (greatest % 2 == 0),)]:
        try:
            other = plans._planned(whole, like, bucket)
        except ScheduleError:
            continue
        assert chosen.loss <= max(LOSS, other.loss + LOSS)
    kernel = operator.compile(dynamic={size: (least, greatest)}, cache=False)
    rng = np.random.default_rng(0)
    for value in (least, (least + greatest) // 2, greatest):
        _near(kernel, operator.with_sizes(**{size: value}), rng)


def test_code_of_a_narrow_range_need_not_be_for_whole_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 17 to 20 columns, 32 would be computed: along the rows nothing is computed in vain. So typical rates of a CPU with
    vectors of sixteen say; with others, whole vectors may be as fast."""
    typical = tmp_path / "machine.json"
    typical.write_text(_core.describe_machine(_core.cpu_named("znver4")).to_json())
    monkeypatch.setenv("SYNO_MACHINE", str(typical))
    operator = Operator.parse("y[b,i,j] = sum[k] q[b,i,k] * p[b,j,k]", b=8, i=256, j=20, k=64)
    kernel = operator.compile(dynamic={"j": (17, 20)}, cache=False)
    (bucket,) = kernel.buckets
    assert kernel._plans.of(bucket).like != (32,)  # the schedule is that of 19 or 20 columns
    assert bucket.predicted_loss < kernel._plans._planned((32,), (32,), bucket).loss
    rng = np.random.default_rng(0)
    for size in range(17, 21):
        _near(kernel, operator.with_sizes(j=size), rng)
