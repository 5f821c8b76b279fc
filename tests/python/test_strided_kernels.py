"""Kernels of arguments with other strides: checked on generated data, never on the caller's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import syno.kernels.arrays
import syno.kernels.kernel
from syno import Operator, _core
from syno.errors import KernelError, ShapeError
from syno.kernels.prepack import prepacked


def products() -> Operator:
    return Operator.parse("y[i,j] = sum[k] a[i,k] * b[k,j]", i=17, j=21, k=33)


HARD = {
    "a NaN": lambda a: a.__setitem__((3, 4), np.nan),
    "infinities": lambda a: (a.__setitem__((3, 4), np.inf), a.__setitem__((3, 5), -np.inf)),
    "cancellation": lambda a: a.__imul__(np.where(np.arange(a.shape[1]) % 2, 1e20, -1e20)),
    "overflow": lambda a: a.__imul__(1e38),
    "denormals": lambda a: a.__imul__(1e-42),
    "zeros": lambda a: a.__imul__(0),
}


@pytest.mark.parametrize("what", HARD)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_any_data_of_the_caller_are_computed(what: str, dtype: str) -> None:
    kernel = products().compile(dtype, cache=False)
    random = np.random.default_rng(0)
    narrow = syno.kernels.kernel.DTYPES[dtype]
    with np.errstate(all="ignore"):
        wide = random.normal(size=(17, 33))
        HARD[what](wide)
        a = np.asfortranarray(wide.astype(narrow))
        b = random.normal(size=(21, 33)).astype(narrow).T
    got = kernel(a, b).astype(np.float64)
    wanted = kernel(np.array(a, order="C"), np.array(b, order="C")).astype(np.float64)
    if what in ("a NaN", "infinities"):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    if what in ("denormals", "zeros", "a NaN", "infinities"):
        np.testing.assert_allclose(got, wanted, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize("what", HARD)
def test_results_are_written_to_strided_memory(what: str) -> None:
    operator = Operator.parse("y[i,j] = x[i,j] - x[i,j]", i=17, j=33)
    kernel = operator.compile(cache=False)
    x = np.random.default_rng(0).normal(size=(17, 33)).astype(np.float32)
    with np.errstate(all="ignore"):
        HARD[what](x)
        out = np.zeros((33, 17), np.float32).T
        assert kernel(np.asfortranarray(x), out=out) is out
        np.testing.assert_array_equal(out, x - x)


def test_views_that_show_an_element_twice_are_computed() -> None:
    kernel = Operator.parse("y[i] = sum[k] x[i,k] * w[k]", i=30, k=5).compile(cache=False)
    line = np.random.default_rng(0).normal(size=34).astype(np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(line, 5)
    w = np.full(5, 2, np.float32)
    np.testing.assert_allclose(kernel(windows, w), windows @ w, rtol=1e-5)
    same = np.broadcast_to(np.float32(3), (30, 5))
    np.testing.assert_allclose(kernel(same, w), same @ w, rtol=1e-5)
    tensor = torch.ones(1, 5).expand(30, 5)
    np.testing.assert_allclose(kernel(tensor, torch.from_numpy(w)), 10)


def wrong_code(operator: Operator, strides: dict[str, list[int]]) -> _core.Kernel:
    schedule = _core.default_schedule(operator.program, strides=strides)
    text = _core.apply_schedule(operator.program, schedule).text()
    nest = text.replace(" = y_acc", " = 1.01 * y_acc")
    assert nest != text, text
    return _core.compile_nest(_core.LoopNest.parse(nest))


def test_wrong_code_for_strides_is_refused_before_it_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = products()
    kernel = operator.compile(cache=False)
    a = np.zeros((33, 17), np.float32).T
    b = np.zeros((33, 21), np.float32)
    code = wrong_code(operator, {"a": [1, 17]})
    monkeypatch.setattr(syno.kernels.kernel.Kernel, "_code_for", lambda self, arrays, out: code)
    out = np.full((17, 21), 7, np.float32)
    for _ in range(2):  # zeros tell nothing of it: the check does not look at them
        with pytest.raises(KernelError, match="strides"):
            kernel(a, b, out=out)
    assert (out == 7).all()
    with pytest.raises(KernelError, match="strides"):
        kernel.for_arrays(a, b, out=out)


def test_one_check_a_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = products().compile(cache=False)
    checks = []
    real = syno.kernels.kernel.Kernel._code_for

    class Counting:
        def __init__(self, code: _core.Kernel) -> None:
            self.code = code

        def for_arrays(self, *arrays: object, out: object) -> _core.Kernel:
            checks.append(1)
            return self.code.for_arrays(*arrays, out=out)

        def __call__(self, *arrays: object, **options: object) -> object:
            return self.code(*arrays, **options)

    monkeypatch.setattr(
        syno.kernels.kernel.Kernel,
        "_code_for",
        lambda self, arrays, out: Counting(real(self, arrays, out)),
    )
    a, b = np.ones((33, 17), np.float32).T, np.ones((33, 21), np.float32)
    for _ in range(3):
        np.testing.assert_allclose(kernel(a, b), 33)
    assert len(checks) == 1
    kernel(a, b[:, ::-1])
    assert len(checks) == 2


def test_arguments_far_apart_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syno.kernels.arrays, "CHECKED_BYTES", 1000)
    kernel = products().compile(cache=False)

    def never(self: object, arrays: object, out: object) -> object:
        raise AssertionError("no code for such strides is wanted")

    monkeypatch.setattr(syno.kernels.kernel.Kernel, "_code_for", never)
    random = np.random.default_rng(0)
    a = random.normal(size=(17, 33, 50)).astype(np.float32)[:, :, 7]
    b = random.normal(size=(33, 21)).astype(np.float32)
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-4, atol=1e-4)
    place = np.zeros((17, 21, 90), np.float32)
    assert kernel(a, b, out=place[:, :, 3]).base is place
    np.testing.assert_allclose(place[:, :, 3], a @ b, rtol=1e-4, atol=1e-4)
    tensor = torch.from_numpy(np.repeat(a[:, :, None], 60, 2))[:, :, 3]
    got = kernel(tensor, torch.from_numpy(b))
    assert isinstance(got, torch.Tensor)
    np.testing.assert_allclose(got, a @ b, rtol=1e-4, atol=1e-4)
    with pytest.raises(ShapeError):
        kernel(a, b, out=np.zeros((17, 20, 90), np.float32)[:, :, 3])


def test_packed_kernels_check_the_code_for_strides_too(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=9, n=48, k=16)
    random = np.random.default_rng(0)
    w = random.normal(size=(48, 16)).astype(np.float32)
    packed = prepacked(operator, ["w"], cache=False).pack(w=w)
    x = random.normal(size=(16, 9)).astype(np.float32).T
    np.testing.assert_allclose(packed(x), x @ w.T, rtol=1e-4, atol=1e-4)
    x = np.asfortranarray(np.full((9, 16), np.nan, np.float32))
    assert np.isnan(packed(x)).all()
    failed = type(
        "Failed", (), {"passed": False, "max_rel_err": 1.0, "limit": 1e-5, "detail": ""}
    )()
    monkeypatch.setattr(_core, "verify_prepacked", lambda *_: failed)
    if packed.kernel.packs:
        with pytest.raises(KernelError, match="strides"):
            packed(np.zeros((9, 32), np.float32)[:, ::2])
