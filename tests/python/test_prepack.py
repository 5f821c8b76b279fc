"""Kernels with prepacked constants compute what the operator computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import drawn_machine, written_machine

from syno import _core
from syno.errors import KernelError, ScheduleError, ShapeError, UnknownName
from syno.kernels.construct import predicted_seconds
from syno.kernels.kernel import DTYPES
from syno.kernels.prepack import prepacked
from syno.kernels.verdicts import Outcome
from syno.machines.model import fixed_kernels, machine_model
from syno.operators.operator import Operator

CONV = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"


@settings(max_examples=8, deadline=None)
@given(
    o=st.integers(1, 40),
    c=st.integers(1, 9),
    h=st.integers(1, 9),
    w=st.integers(1, 12),
    seed=st.integers(0, 9),
)
def test_prepacked_convolutions_equal_the_interpreter(
    o: int, c: int, h: int, w: int, seed: int
) -> None:
    op = Operator.parse(CONV, n=1, o=o, c=c, h=h, w=w, r=3, s=3)
    kernel = prepacked(op, cache=False)
    assert kernel.verification.passed
    rng = np.random.default_rng(seed)
    x, k = (rng.standard_normal(op.shapes[n]).astype(np.float32) for n in op.inputs)
    packed = kernel.pack(k=k)
    k_before = k.copy()
    k[:] = np.nan  # packed once: what happens to the array later does not matter
    want = op.program.interpret({"x": x, "k": k_before})["y"]
    scale = max(1.0, float(np.abs(want).max()))
    assert np.abs(packed(x) - want).max() <= 1e-4 * scale
    strided = np.empty((*x.shape[:-1], 2 * x.shape[-1]), np.float32)[..., ::2]
    strided[:] = x
    assert np.abs(packed(strided) - want).max() <= 1e-4 * scale


def test_the_weights_are_read_only_once() -> None:
    op = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=64, n=96, k=128)
    with fixed_kernels(written_machine().to_json()):  # which packs the weights, others need not
        kernel = prepacked(op)
    assert "prepack" in kernel.schedule.text()
    packed = kernel.pack(w=np.ones((96, 128), np.float32))
    names = [name for name, _ in packed.arguments()]
    assert "w" not in names and names[0] == "x" and names[-1] == "y"
    assert packed.bytes >= 96 * 128 * 4
    x = np.ones((64, 128), np.float32)
    out = np.empty((64, 96), np.float32)
    addresses = [
        at if at is not None else {"x": x, "y": out}[name].ctypes.data
        for name, at in packed.arguments()
    ]
    packed.unchecked(addresses, 1)
    assert (out == 128).all()


def test_torch_tensors_in_torch_tensors_out() -> None:
    torch = pytest.importorskip("torch")
    op = Operator.parse("y[m,n] = sum[k] x[m,k] * w[k,n]", m=5, n=33, k=7)
    weight = torch.randn(7, 33, requires_grad=True)
    x = torch.randn(5, 7)
    result = prepacked(op).pack(w=weight)(x)
    assert isinstance(result, torch.Tensor)
    assert torch.allclose(result, (x @ weight).detach(), atol=1e-5)


def test_weights_of_torch_are_packed_as_they_are_seen() -> None:
    """A view whose memory holds the negated values, a parameter, and one on another device."""
    torch = pytest.importorskip("torch")
    kernel = prepacked(Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=2, n=48, k=16))
    x, seen = torch.randn(2, 16), torch.randn(48, 16)
    negated = torch.complex(torch.zeros(48, 16), -seen).conj().imag
    assert negated.is_neg() and torch.equal(negated, seen)
    for w in (negated, torch.nn.Parameter(seen)):
        torch.testing.assert_close(kernel.pack(w=w)(x), x @ seen.T, rtol=1e-5, atol=1e-5)
    with pytest.raises(KernelError, match=r"device meta.*CPU"):
        kernel.pack(w=seen.to("meta"))


@settings(max_examples=8, deadline=None)
@given(m=st.integers(1, 9), n=st.integers(1, 70), k=st.integers(1, 40), seed=st.integers(0, 9))
def test_bfloat16_constants_are_kept_as_float32(m: int, n: int, k: int, seed: int) -> None:
    op = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=m, n=n, k=k)
    kernel = prepacked(op, dtype="bfloat16", cache=False)
    assert kernel.dtype == "bfloat16"
    rng = np.random.default_rng(seed)
    bfloat16 = DTYPES["bfloat16"]
    x, w = (rng.standard_normal(op.shapes[name]).astype(bfloat16) for name in op.inputs)
    packed = kernel.pack(w=w)
    if kernel.packs:
        assert all(buffer.dtype == np.float32 for buffer in packed.buffers.values())
    got = packed(x)
    assert got.dtype == bfloat16
    want = x.astype(np.float64) @ w.astype(np.float64).T
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=2**-8, atol=1e-5 * k)
    torch = pytest.importorskip("torch")
    tensors = [torch.from_numpy(a.astype(np.float32)).bfloat16() for a in (x, w)]
    again = kernel.pack(w=tensors[1])(tensors[0])
    assert again.dtype == torch.bfloat16
    assert np.array_equal(again.float().numpy(), got.astype(np.float32))
    with pytest.raises(KernelError, match="`w` is float32; the kernel takes bfloat16"):
        kernel.pack(w=w.astype(np.float32))


def test_nothing_to_pack_is_no_mistake() -> None:
    op = Operator.parse("y[i] = x[i] + b[i]", i=5)
    b = np.arange(5, dtype=np.float32)
    packed = prepacked(op, ["b"]).pack(b=b)
    b[:] = 0
    assert (packed(np.ones(5, np.float32)) == 1 + np.arange(5)).all()


def test_mistakes_get_a_sentence() -> None:
    op = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=4, n=8, k=3)
    kernel = prepacked(op)
    good = np.ones((8, 3), np.float32)
    with pytest.raises(UnknownName, match="'v'"):
        prepacked(op, ["v"])
    with pytest.raises(UnknownName, match="dtype"):
        prepacked(op, dtype="int8")
    with pytest.raises(UnknownName, match="constant"):
        kernel.pack(w=good, q=good)
    with pytest.raises(ShapeError, match="missing"):
        kernel.pack()
    with pytest.raises(ShapeError, match=r"\[3, 8\]"):
        kernel.pack(w=good.T)
    with pytest.raises(KernelError, match="float64"):
        kernel.pack(w=good.astype(np.float64))
    with pytest.raises(ShapeError, match="1 inputs: x"):
        kernel.pack(w=good)()
    with pytest.raises(ScheduleError, match="computed"):
        _core.default_schedule(op.program, constants=["y"])


def test_constants_from_far_have_a_schedule_of_their_own() -> None:
    """One that is made for their way from main memory, and computes the same."""
    op = Operator.parse(CONV, n=1, o=256, c=256, h=4, w=4, r=3, s=3)
    with fixed_kernels(written_machine().to_json()):
        about = op.program, "float32", 1, ("k",)
        far = len(machine_model().levels) - 1
        assert predicted_seconds(*about, far) > predicted_seconds(*about, 2)
        without = op.program, "float32", 1, ()
        assert predicted_seconds(*without, far) == predicted_seconds(*without)
        kernels = [prepacked(op, constants_from=level, cache=False) for level in (0, far)]
    rng = np.random.default_rng(1)
    x, k = (rng.standard_normal(op.shapes[n]).astype(np.float32) for n in op.inputs)
    near, beyond = (kernel.pack(k=k)(x) for kernel in kernels)
    assert np.abs(near - beyond).max() <= 1e-5 * np.abs(near).max()
    assert kernels[0] is not kernels[1]


def test_kernels_are_kept_for_the_machine_that_they_were_made_for() -> None:
    """Whoever compiles the same program in the same process for another machine gets that one's."""
    operator = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=64, n=256, k=512)
    machines = [written_machine(), *map(drawn_machine, range(6))]

    def schedules() -> list[str]:
        made = []
        for machine in machines:
            with fixed_kernels(machine.to_json()):
                made.append(str(prepacked(operator, ["w"]).schedule.text()))
        return made

    first = schedules()
    assert len(set(first)) > 1
    assert schedules() == first


def test_code_that_computes_something_else_is_discarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path / "cache"))
    op = Operator.parse("y[m,n] = sum[k] x[m,k] * w[k,n]", m=6, n=34, k=9)
    monkeypatch.setattr(Outcome, "of", lambda check: Outcome(False, 0.31, 1e-5, 256, "y[0,0]"))
    with pytest.raises(KernelError, match=r"max_rel_err 3\.1e-01.*it was discarded"):
        prepacked(op)
    assert not list((tmp_path / "cache").glob("*"))
