"""Kernels of operators: verified before use, called in place on any array, cached."""

from __future__ import annotations

import json
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import syno.kernels.kernel as kernel_module
from syno import _core
from syno.errors import KernelError, ScheduleError, ShapeError, SynoError, UnknownName
from syno.kernels.kernel import DTYPES, compile
from syno.kernels.spills import without_spills
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.support.bounded import Bounded

CONV = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path / "cache"))
    kernel_module._kernels.clear()
    return tmp_path / "cache"


def conv(**changes) -> Operator:
    return Operator.parse(CONV, **{**dict(n=1, o=5, c=4, h=6, w=7, r=3, s=3), **changes})


def arrays(op, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(op.shapes[n]).astype(dtype) for n in op.inputs]


FORMULAS = [
    "y[n,o,h] = sum[c,r] x[n,c,{s}*h+{d}*r-{p}] * k[o,c,r]",
    "y[n,c,h] = sum[r] x[n,c,{s}*h+{d}*r-{p}] * k[c,r]",
    "y[n,c,h] = max[r] x[n,c,{s}*h+{d}*r-{p}] fill -inf",
    "y[n,c,h] = mean[r] x[n,c,{s}*h+{d}*r-{p}]",
    "t[n,o,h] = sum[c] x[n,c,h] * a[o,c]; y[n,o,h] = sum[r] t[n,o,{s}*h+{d}*r-{p}] * b[o,r]",
    "y[n,h] = relu(sum[c] x[n,c,h] * a[c])",
]


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(FORMULAS),
    st.tuples(*[st.integers(1, 9)] * 4),
    st.integers(1, 3),
    st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(0, 1)),
    st.sampled_from(list(DTYPES)),
)
def test_any_formula_compiles_to_what_its_reference_says(text, extents, window, sdp, dtype):
    text = text.format(s=sdp[0], d=sdp[1], p=min(sdp[2], sdp[1] * (window - 1)))
    sizes = dict(zip("nochr", (*extents, window), strict=True))
    used = {name: value for name, value in sizes.items() if name in text}
    try:
        op = Operator.parse(text, **used)
    except SynoError:
        return  # sizes that do not fit together are the parser's business
    kernel = compile(op, dtype=dtype, cache=False)
    assert kernel.verification and kernel.verify(seed=1)
    inputs = arrays(op, DTYPES[dtype])
    wide = [a.astype(np.float64) for a in inputs]
    got, expected = kernel(*inputs), op.reference(*wide)
    assert got.dtype == DTYPES[dtype]
    # In bfloat16 the result is rounded once, whatever the number of terms and stages.
    tolerance = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 2.0**-8}[dtype]
    absolute = 30 * (1e-12 if dtype == "float64" else 1e-5)
    np.testing.assert_allclose(got.astype(np.float64), expected, atol=absolute, rtol=tolerance)


def test_verification_prints_shapes_and_error():
    result = conv().compile().verify()
    assert result
    assert str(result).startswith("verified: y[n,o,h,w] = sum[c,r,s]")
    assert "x [1, 4, 6, 7]" in str(result)
    assert result.points == 5 * 6 * 7  # fewer than 256 elements: all of them
    assert result.max_rel_err <= result.limit == 1e-5
    assert json.loads(json.dumps(result.to_dict()))["passed"]


def test_outputs_can_be_given_and_inputs_lie_anywhere():
    op = conv()
    x, k = arrays(op)
    kernel = op.compile()
    expected = op.reference(x, k)
    out = np.empty(op.shapes["y"], np.float32)
    assert kernel(x, k, out=out) is out
    np.testing.assert_allclose(out, expected, atol=1e-4)
    for view in (
        np.asfortranarray(x),
        np.stack([x, x], -1)[..., 0],
        x[:, ::-1].copy()[:, ::-1],
        np.broadcast_to(x[:, :1], x.shape),
    ):
        np.testing.assert_allclose(kernel(view, k), op.reference(view, k), atol=1e-4)
    wide = np.zeros((1, 5, 6, 14), np.float32)
    kernel(x, k, out=wide[..., ::2])
    np.testing.assert_allclose(wide[..., ::2], expected, atol=1e-4)
    assert not wide[..., 1::2].any()


def test_torch_tensors_go_in_and_come_out():
    torch = pytest.importorskip("torch")
    op = conv()
    inputs = [torch.from_numpy(a) for a in arrays(op)]
    y = op.compile()(*inputs)
    assert isinstance(y, torch.Tensor)
    expected = torch.nn.functional.conv2d(*inputs, padding=1)
    torch.testing.assert_close(y, expected, atol=1e-4, rtol=1e-4)
    with_gradient = inputs[0].clone().requires_grad_()
    with torch.no_grad():
        torch.testing.assert_close(
            op.compile()(with_gradient, inputs[1]), expected, atol=1e-4, rtol=1e-4
        )


def test_memory_protocols_are_enough():
    op = conv()
    x, k = arrays(op)
    dlpack = types.SimpleNamespace()
    carrier = type(
        "Carrier",
        (),
        {
            "__dlpack__": lambda self, **kw: x.__dlpack__(**kw),
            "__dlpack_device__": lambda self: x.__dlpack_device__(),
        },
    )()
    del dlpack
    np.testing.assert_allclose(op.compile()(carrier, memoryview(k)), op.reference(x, k), atol=1e-4)


def test_results_do_not_depend_on_the_number_of_threads():
    op = conv(n=3, h=20, w=20)
    x, k = arrays(op)
    kernel = op.compile(threads=2)
    one = kernel(x, k, num_threads=1)
    np.testing.assert_array_equal(one, kernel(x, k, num_threads=2))
    np.testing.assert_array_equal(one, kernel(x, k))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda k, x, w: k(x), ShapeError, "1 arrays for 2 inputs"),
        (lambda k, x, w: k(x[:, :3], w), ShapeError, "x"),
        (lambda k, x, w: k(x.astype(np.float64), w), KernelError, "float64|f64|double"),
        (lambda k, x, w: k(x.astype(np.int32), w), KernelError, "int"),
        (lambda k, x, w: k(x, w, num_threads=0), KernelError, "num_threads"),
        (lambda k, x, w: k(x, w, out=np.empty(3, np.float32)), ShapeError, "y"),
    ],
)
def test_wrong_arguments_get_a_sentence(call, error, message):
    op = conv()
    with pytest.raises(error, match=message):
        call(op.compile(), *arrays(op))


def test_output_over_input_is_refused():
    op = Operator.parse("y[i] = sum[j] x[i+j-1] * k[j]", i=8, j=3)
    x, k = arrays(op)
    with pytest.raises(ShapeError):
        op.compile()(x, k, out=x)


def test_compile_options_are_checked():
    op = conv()
    with pytest.raises(UnknownName, match=r"float16.*float32, float64"):
        op.compile("float16")
    with pytest.raises(KernelError, match="threads=0"):
        op.compile(threads=0)
    symbolic = Operator.parse("size N : primary = 2, 3; input x[N]; y[i: N] = 2 * x[i]")
    with pytest.raises(ShapeError, match=r"choose one with \.at"):
        symbolic.compile()
    assert symbolic.at(1).compile()(np.ones(3, np.float32)).tolist() == [2, 2, 2]


def test_schedules_can_be_given():
    from syno import _core

    op = conv()
    plain = _core.default_schedule(op.program, dtype="float32", threads=1)
    assert op.compile(schedule=plain).schedule.text() == plain.text()
    other = Operator.parse("z[i] = 2 * x[i]", i=4)
    with pytest.raises(ScheduleError):
        other.compile(schedule=plain)


def test_the_same_kernel_is_compiled_once_in_a_process():
    assert conv().compile() is conv().compile()
    assert conv().compile() is not conv().compile(dtype="float64")


def test_a_cached_object_is_not_verified_again(cache, monkeypatch):
    first = conv().compile()
    files = {p.suffix for p in cache.iterdir()}
    assert ".verified" in files
    kernel_module._kernels.clear()

    def never(self, seed=0):
        raise AssertionError("verified again")

    monkeypatch.setattr(kernel_module.Kernel, "verify", never)
    key, verification = first.key, first.verification
    del first
    again = conv().compile()
    assert again.key == key
    if again.report.from_cache:
        assert again.verification == verification


@pytest.mark.parametrize("content", ["", "{", '{"passed": false}', '{"passed": 1}', "[]"])
def test_a_damaged_record_means_verifying_again(cache, monkeypatch, content):
    first = conv().compile()
    for path in cache.glob("*.verified"):
        path.write_text(content)
    kernel_module._kernels.clear()
    again = conv().compile()
    assert again.verification and again.verification.points == first.verification.points


@pytest.fixture(params=["first", "after smaller tiles"])
def chosen(request, monkeypatch):
    """Kernels as they come, and those of which smaller register tiles are compiled and compared, too."""
    monkeypatch.setattr("syno.kernels.construct._constructed", Bounded(64))
    if request.param != "first":
        monkeypatch.setattr("syno.kernels.spills._FEW", -1.0)


def test_the_cache_keeps_what_was_chosen(cache, chosen):
    kernel = conv().compile()
    assert sorted(p.suffix for p in cache.iterdir()) == [".kernel", ".schedule", ".verified"]
    assert (cache / f"{kernel.key}.kernel").exists()


def test_a_wrong_kernel_is_discarded(cache, chosen, monkeypatch):
    def wrong(self, seed=0):
        return kernel_module.Verification(False, 0.31, 1e-5, 256, "y[0]", self.operator, "float32")

    monkeypatch.setattr(kernel_module.Kernel, "verify", wrong)
    with pytest.raises(
        KernelError, match=r"max_rel_err 3\.1e-01 \(limit 1e-05\).*discarded, not cached"
    ):
        conv().compile()
    assert not list(cache.glob("*"))


def test_an_unusable_cache_directory_costs_only_time(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("SYNO_CACHE", str(blocked / "inside"))
    assert conv().compile().verification
    monkeypatch.setenv("SYNO_CACHE", "")
    kernel_module._kernels.clear()
    assert conv().compile().verification


def test_a_kernel_shows_what_it_is():
    kernel = conv().compile()
    assert "for" in kernel.loops()
    assert "define" in kernel.llvm()
    assert "ret" in kernel.asm()
    assert kernel.object_bytes()[:4] == b"\x7fELF"
    assert len(kernel.key) == 32
    assert kernel.report.code_bytes > 0
    assert "max_rel_err" in repr(kernel)
    assert "<details>" in kernel._repr_html_()
    assert 0 < kernel.time(turns=3).median_us < 1e6
    assert kernel.timing is kernel.timing


def test_threads_are_used_where_a_kernel_gains_by_them() -> None:
    small = Operator.parse("y[i] = x[i] + 1", i=64, weights=[]).compile(threads=4)
    assert (small.threads, small.runs_on) == (4, 1)
    large = Operator.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", m=512, n=512, k=512)
    assert large.compile(threads=1).runs_on == 1
    if machine_model().cores >= 2:
        kernel = large.compile(threads=2)
        assert kernel.runs_on == 2
        one = _core.predict_nest(kernel._core.nest, machine_model(), threads=1)
        assert kernel.predict().seconds < 0.85 * one.seconds
    for count in range(1, 9):
        assert 1 <= large.compile(threads=count).runs_on <= count


def test_a_torch_call_runs_on_the_threads_that_the_kernel_gains_by() -> None:
    torch = pytest.importorskip("torch")
    from syno.torch import Op, ops
    from syno.torch import native as calls

    seen = []

    class Watched:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self.held = made(*arguments, **options)

        def add(self, *arguments: Any, **options: Any) -> None:
            seen.append((options["threads"], *options["runs_on"]))
            self.held.add(*arguments, **options)

        def clear(self) -> None:
            self.held.clear()

        def __call__(self, tensors: Any) -> Any:
            return self.held(tensors)

    made = _core.TensorCalls
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(calls._core, "TensorCalls", Watched)
            patch.setattr(ops, "_with_kernels", {})  # what is watched here is not kept for others
            op = Op(Operator.parse("y[i] = sum[j] x[j] * w[i,j]", i=7, j=9), prepack=True).eval()
            x = torch.randn(9)
            with torch.no_grad():
                for prepack in (True, False):
                    op.prepack = prepack
                    for _ in range(2):
                        torch.testing.assert_close(op(x), op.w @ x, rtol=1e-5, atol=1e-5)
    finally:
        torch.set_num_threads(before)
    assert seen and set(seen) == {(2, 1)}


# Strides


def view_of(values: np.ndarray, how: int, gap: int) -> np.ndarray:
    """The same values in memory of other strides: transposed, apart, backwards."""
    order = list(range(values.ndim))
    if how & 1:
        order.reverse()
    apart = gap if how & 2 else 1
    memory = np.zeros([values.shape[d] * apart for d in order], values.dtype)
    view = memory[tuple(slice(None, None, apart) for _ in order)].transpose(np.argsort(order))
    if how & 4:
        view = view[::-1]
    view[...] = values
    return view


@given(
    m=st.integers(1, 40),
    n=st.integers(1, 40),
    k=st.integers(1, 40),
    how=st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 7)),
    gap=st.integers(2, 3),
    threads=st.integers(1, 2),
)
@settings(max_examples=20, deadline=None)
def test_views_get_schedules_of_their_own(
    m: int, n: int, k: int, how: tuple[int, int, int], gap: int, threads: int
) -> None:
    rng = np.random.default_rng(m + 41 * n)
    a = rng.standard_normal((m, k)).astype(np.float32)
    b = rng.standard_normal((k, n)).astype(np.float32)
    kernel = compile(Operator.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", m=m, n=n, k=k))
    out = view_of(np.zeros((m, n), np.float32), how[2], gap)
    kernel(view_of(a, how[0], gap), view_of(b, how[1], gap), out=out, num_threads=threads)
    np.testing.assert_allclose(out, a @ b, rtol=1e-4, atol=1e-4)


def test_code_for_strides_is_scheduled_for_them_and_kept() -> None:
    operator = Operator.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", m=64, n=64, k=64)
    kernel = compile(operator)
    a, b = np.ones((64, 64), np.float32), np.ones((64, 64), np.float32).T
    code = kernel._code_for((a, b), None)
    assert "strides[1, 64]" in code.loops()
    assert kernel._code_for((a, b), None) is code
    assert kernel._code_for((a, a), None) is kernel._core
    given_schedule = compile(operator, schedule=kernel.schedule)
    assert given_schedule._code_for((a, b), None) is given_schedule._core
    with pytest.raises(ShapeError, match=r"shape \[64, 32\]"):
        kernel(a, b[:, ::2])


# Spills


def test_tiles_that_spill_are_made_smaller() -> None:
    from syno import _core

    operator = Operator.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", m=40, n=96, k=48)
    too_large = _core.Schedule.parse(
        "schedule f32\nsplit y loops=m numbers=20\nsplit y loops=n numbers=48\n"
        "split y loops=n_i numbers=16\nreorder y loops=m_o,n_o,k,m_i,n_i_o,n_i_i\n"
        "vectorize y loops=n_i_i\nregister_tile y loops=m_i,n_i_o,n_i_i\n"
    )
    codes: list[_core.Kernel] = []
    mended = without_spills(operator.program, too_large, dtype="float32", threads=1, codes=codes)
    assert codes[0].report.hot_spills > 1
    assert len(codes) > 1
    assert mended != too_large
    fewest = min(code.report.hot_spills for code in codes)
    chosen = _core.compile_nest(_core.apply_schedule(operator.program, mended))
    assert chosen.report.hot_spills == fewest < 1
    assert compile(operator, schedule=mended).verify()
    # Code that spills nothing is taken as it is.
    again: list[_core.Kernel] = []
    assert (
        without_spills(operator.program, mended, dtype="float32", threads=1, codes=again) == mended
    )
    assert len(again) == 1


def test_a_dtype_that_is_no_name_is_told_which_name_to_give() -> None:
    torch = pytest.importorskip("torch")
    op = Operator.parse("y[i] = 2 * x[i]", i=5)
    with pytest.raises(UnknownName, match="did you mean 'float64'"):
        op.compile(dtype=torch.float64)  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="Valid: bfloat16, float32, float64"):
        op.compile(dtype="f32")
