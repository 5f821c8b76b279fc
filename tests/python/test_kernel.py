"""The engine's kernels: any array in place, with any strides, or a sentence saying why not."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
import threading

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syno import _core

SCALE = """\
nest scale
input x: {dtype}[{n}, {m}]
input a: {dtype}[]
output y: {dtype}[{n}, {m}]
for i in 0..{n} parallel
  for j in 0..{m} vector
    y[i, j] = x[i, j] * a[] + index(j)
"""


def scale(n: int = 5, m: int = 37, dtype: str = "f32", **options: object) -> _core.Kernel:
    nest = _core.LoopNest.parse(SCALE.format(n=n, m=m, dtype=dtype))
    return _core.compile_nest(nest, **options)


def expected(x: np.ndarray, a: float) -> np.ndarray:
    return x.astype(np.float64) * a + np.arange(x.shape[1])


def test_numpy_in_numpy_out():
    x = np.random.default_rng(0).standard_normal((5, 37)).astype(np.float32)
    y = scale()(x, np.float32(2).reshape(()))
    assert isinstance(y, np.ndarray)
    np.testing.assert_allclose(y, expected(x, 2), rtol=1e-6)


def test_torch_in_torch_out_in_place():
    torch = pytest.importorskip("torch")
    x, a = torch.randn(5, 37), torch.tensor(3.0)
    y = scale()(x, a)
    assert isinstance(y, torch.Tensor)
    np.testing.assert_allclose(y.numpy(), expected(x.numpy(), 3), rtol=1e-5, atol=1e-6)
    out = torch.zeros(37, 5).t()
    assert scale()(x, a, out=out, num_threads=2) is out
    assert torch.equal(out, y)


def test_bfloat16_tensors_and_bits():
    torch = pytest.importorskip("torch")
    x = torch.randn(5, 37).to(torch.bfloat16)
    a = torch.tensor(0.5, dtype=torch.bfloat16)
    kernel = scale(dtype="bf16")
    y = kernel(x, a)
    assert y.dtype == torch.bfloat16
    want = (x.float() * 0.5 + torch.arange(37)).to(torch.bfloat16)
    assert torch.equal(y, want)
    bits = kernel(x.view(torch.uint16).numpy(), np.array(0x3F00, np.uint16))
    assert bits.dtype == np.uint16
    assert np.array_equal(bits, want.view(torch.uint16).numpy())


BF16 = np.dtype(ml_dtypes.bfloat16)


def test_bfloat16_arrays_of_any_strides():
    kernel = scale(dtype="bf16")
    x = np.random.default_rng(3).standard_normal((5, 37)).astype(BF16)
    half = np.array(0.5, BF16)
    want = expected(x, 0.5).astype(BF16)
    assert kernel(x, half).dtype == BF16
    wide = np.zeros((10, 74), BF16)
    wide[::2, 1::2] = x
    for view in (x, np.asfortranarray(x), wide[::2, 1::2], x[::-1].copy()[::-1]):
        np.testing.assert_array_equal(kernel(view, half), want)
    out = np.zeros((37, 10), BF16)
    kernel(x, half, out=out[:, ::2].T)
    np.testing.assert_array_equal(out[:, ::2].T, want)
    assert not out[:, 1::2].any()
    frozen = out.copy()
    frozen.setflags(write=False)
    for arrays, message in (
        ((x.astype(np.float32), half), "`x` is float32, and this kernel takes bfloat16"),
        ((x.view(np.int16), half), "`x` is int16, and this kernel takes bfloat16"),
        ((x, np.array(0.5)), "`a` is float64"),
    ):
        with pytest.raises(_core.KernelError, match=message):
            kernel(*arrays)
    with pytest.raises(_core.KernelError, match="`y` cannot be written in place"):
        kernel(x, half, out=frozen[:, ::2].T)
    with pytest.raises(_core.KernelError, match="`x` is bfloat16, and this kernel takes float32"):
        scale()(x, np.array(1, np.float32))


def test_bfloat16_of_every_kind_goes_through_a_kernel():
    text = "nest copy\ninput x: {}[65536]\noutput y: {}[65536]\nfor i in 0..65536 vector\n  y[i] = x[i]\n"
    widen, narrow = (
        _core.compile_nest(_core.LoopNest.parse(text.format(*pair)))
        for pair in (("bf16", "f32"), ("f32", "bf16"))
    )
    every = np.arange(65536, dtype=np.uint16).view(BF16)
    wide = widen(every)
    assert np.array_equal(wide.view(np.uint32), np.arange(65536, dtype=np.uint32) << 16)
    # What lies between two numbers becomes what ml_dtypes makes of it, denormal and infinite ones too.
    for rest in (0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        between = (wide.view(np.uint32) | np.uint32(rest)).view(np.float32)
        with np.errstate(invalid="ignore"):
            numbers = between.astype(BF16)
        got = narrow(between)
        nan = np.isnan(between)
        assert np.isnan(got[nan].astype(np.float32)).all()
        assert np.array_equal(got[~nan].view(np.uint16), numbers[~nan].view(np.uint16))


@settings(max_examples=40, deadline=None)
@given(
    offset=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    step=st.tuples(st.sampled_from([1, 2, -1, -2]), st.sampled_from([1, 2, 3, -1, -3])),
    transposed=st.booleans(),
    into_view=st.booleans(),
)
def test_any_view_of_a_bigger_array(offset, step, transposed, into_view):
    kernel = scale()
    n, m = 5, 37

    def view(base: np.ndarray) -> np.ndarray:
        if transposed:
            base = base.T
        rows = slice(offset[0], offset[0] + n * abs(step[0]), abs(step[0]))
        columns = slice(offset[1], offset[1] + m * abs(step[1]), abs(step[1]))
        part = base[rows, columns]
        return part[:: -1 if step[0] < 0 else 1, :: -1 if step[1] < 0 else 1]

    big = np.random.default_rng(1).standard_normal((120, 120)).astype(np.float32)
    before = big.copy()
    x = view(big)
    assert x.shape == (n, m)
    a = np.array(1.5, np.float32)
    if not into_view:
        np.testing.assert_allclose(kernel(x, a), expected(x, 1.5), rtol=1e-5, atol=1e-6)
    else:
        target = np.full((120, 120), -7, np.float32)
        kernel(x, a, out=view(target))
        np.testing.assert_allclose(view(target), expected(x, 1.5), rtol=1e-5, atol=1e-6)
        assert np.count_nonzero(target != -7) <= n * m, "only the view was written"
    assert np.array_equal(big, before)


def test_interleaved_views_share_no_element():
    both = np.arange(2 * 5 * 37, dtype=np.float32).reshape(5, 74)
    x = both[:, ::2].copy()
    scale()(both[:, ::2], np.array(2, np.float32), out=both[:, 1::2])
    np.testing.assert_array_equal(both[:, ::2], x)
    np.testing.assert_allclose(both[:, 1::2], expected(x, 2))


def test_zero_sized_tensors():
    y = scale(n=0)(np.empty((0, 37), np.float32), np.array(1, np.float32))
    assert y.shape == (0, 37)


X = np.zeros((5, 37), np.float32)
A = np.array(1, np.float32)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((X,), {}, _core.ShapeError, "1 arrays for 2 inputs: x, a"),
        (
            (X.T, A),
            {},
            _core.ShapeError,
            r"`x` has shape \[37, 5\]; the kernel was made for \[5, 37\]",
        ),
        ((X.astype(np.float64), A), {}, _core.KernelError, "`x` is float64, and this kernel takes"),
        (([[1.0]], A), {}, _core.KernelError, "`x` is a list"),
        ((X, A), {"out": X}, _core.ShapeError, "output `y` shares memory with `x`"),
        ((X, A), {"out": [X.copy(), X.copy()]}, _core.ShapeError, "2 arrays for 1 outputs"),
        ((X, A), {"num_threads": 0}, _core.KernelError, "at least 1"),
        (
            (X, A),
            {"out": np.broadcast_to(np.zeros((1, 37), np.float32), (5, 37))},
            _core.KernelError,
            "cannot be written",
        ),
    ],
)
def test_what_does_not_fit_gets_a_sentence(arguments, options, error, message):
    with pytest.raises(error, match=message):
        scale()(*arguments, **options)


def test_output_that_overlaps_itself_is_refused():
    wide = np.lib.stride_tricks.as_strided(
        np.zeros(100, np.float32), (5, 37), (4, 4), writeable=True
    )
    with pytest.raises(_core.ShapeError, match="reaches an element twice"):
        scale()(X, A, out=wide)


def test_misaligned_memory_is_refused():
    raw = np.zeros(5 * 37 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(5, 37)
    with pytest.raises(_core.ShapeError, match="copy it"):
        scale()(raw, A)


def test_tensors_that_require_gradients_say_what_to_do():
    torch = pytest.importorskip("torch")
    with pytest.raises(_core.KernelError, match="detach"):
        scale()(torch.zeros(5, 37, requires_grad=True), torch.tensor(1.0))


def test_pointers_are_counted():
    kernel = scale()
    y = np.empty((5, 37), np.float32)
    kernel.call_pointers([X.ctypes.data, A.ctypes.data, y.ctypes.data], 1)
    np.testing.assert_allclose(y, expected(X, 1))
    with pytest.raises(_core.ShapeError, match="2 pointers for 3"):
        kernel.call_pointers([X.ctypes.data, A.ctypes.data], 1)


def test_many_python_threads_call_and_compile():
    results: list[bool] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((5, 37)).astype(np.float32)
        for m in range(3):
            y = scale()(x, A, num_threads=2)
            results.append(bool(np.allclose(y, expected(x, 1), rtol=1e-5, atol=1e-6)))
            scale(m=20 + m)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 12
    assert all(results)


def test_a_forked_child_calls_and_compiles():
    kernel = scale()
    kernel(X, A, num_threads=3)
    child = os.fork()
    if child == 0:
        ok = np.allclose(kernel(X, A, num_threads=3), expected(X, 1))
        ok = ok and scale(m=41)(np.zeros((5, 41), np.float32), A).shape == (5, 41)
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_kernel_shows_what_it_is():
    kernel = scale()
    assert kernel.loops().startswith("nest scale")
    assert kernel.symbol in kernel.llvm()
    assert kernel.symbol in kernel.assembly()
    assert kernel.object_bytes()[:4] == b"\x7fELF"
    assert len(kernel.key) == 32
    assert kernel.report.code_bytes > 0
    assert kernel.key == scale().key != scale(m=38).key


def test_cache_directory(tmp_path, caplog):
    assert not scale(m=51, cache_directory=str(tmp_path)).report.from_cache
    assert [p.suffix for p in tmp_path.iterdir()] == [".kernel"]
    assert scale(m=51, cache_directory=str(tmp_path)).report.from_cache
    blocked = tmp_path / "file"
    blocked.write_text("")
    with caplog.at_level(logging.WARNING, logger="syno"):
        for m in (52, 53):
            assert not scale(m=m, cache_directory=str(blocked)).report.from_cache
    assert [r.message for r in caplog.records if "cannot be written" in r.message].__len__() == 1


@pytest.mark.parametrize("cpu", ["generic", "x86-64-v3"])
def test_syno_cpu_names_the_cpu(cpu):
    script = textwrap.dedent(
        f"""
        import numpy as np
        from syno import _core
        nest = _core.LoopNest.parse({SCALE.format(n=5, m=37, dtype="f32")!r})
        y = _core.compile_nest(nest)(np.ones((5, 37), np.float32), np.array(2, np.float32))
        assert np.array_equal(y, np.tile(2 + np.arange(37), (5, 1))), y
        print(_core.host_cpu().name, _core.host_cpu().vector_bits)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "SYNO_CPU": cpu},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (
        done.stdout.split()
        == {
            "generic": ["x86-64", "128"],
            "x86-64-v3": ["x86-64-v3", "256"],
        }[cpu]
    )


def test_an_unknown_cpu_names_the_valid_ones():
    with pytest.raises(_core.UnknownName, match="x86-64-v3"):
        _core.cpu_named("x86-64-v33")
