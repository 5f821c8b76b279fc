"""What a caller can get wrong about kernels: the right result, or a typed sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE_S

import syno
from syno import _core
from syno.errors import KernelError, ShapeError, SynoError, UnknownName

ADD = "y[i,j] = a[i,j] + b[j]"


def compiled(text: str, **sizes: int) -> _core.Kernel:
    program = _core.Program.parse(text, sizes=sizes)
    return _core.compile_nest(_core.apply_schedule(program, _core.default_schedule(program)))


def arrays(rows: int = 6, columns: int = 37) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return (
        generator.standard_normal((rows, columns), np.float32),
        generator.standard_normal(columns, np.float32),
    )


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("y[i,j,k] = a[i] * b[j] * c[k]", {"i": 2**21, "j": 2**21, "k": 2**21}),
        ("y[i] = a[i]", {"i": 2**62}),
        ("y[i] = sum[j,k] a[i,j,k]", {"i": 2**22, "j": 2**22, "k": 2**22}),
    ],
)
def test_sizes_that_overflow_are_refused(text: str, sizes: dict[str, int]) -> None:
    with pytest.raises(SynoError) as error:
        compiled(text, **sizes)
    assert "[" in str(error.value)


def test_empty_outputs_are_left_alone() -> None:
    kernel = compiled(ADD, i=6, j=37)
    with pytest.raises(ShapeError, match="made for"):
        kernel(np.zeros((0, 37), np.float32), np.zeros(37, np.float32))


def test_views_of_any_strides_give_the_same() -> None:
    a, b = arrays()
    kernel = compiled(ADD, i=6, j=37)
    wanted = a + b
    wide = np.zeros((12, 74), np.float32)
    wide[::2, ::2] = a
    for view in (
        wide[::2, ::2],
        np.asfortranarray(a),
        a[::-1].copy()[::-1],
        a[:, ::-1].copy()[:, ::-1],
    ):
        np.testing.assert_allclose(kernel(view, b), wanted, rtol=1e-6)
    row = np.broadcast_to(b[:1], b.shape)  # stride 0
    np.testing.assert_allclose(kernel(a, row), a + b[0], rtol=1e-6)
    out = np.zeros((6, 74), np.float32)[:, ::-2]
    kernel(a, b, out=out)
    np.testing.assert_allclose(out, wanted, rtol=1e-6)


def test_memory_at_any_address() -> None:
    a, b = arrays()
    kernel = compiled(ADD, i=6, j=37)
    for shift in (4, 8, 12, 60):
        raw = np.zeros(a.nbytes + 64, np.uint8)
        place = raw[shift : shift + a.nbytes].view(np.float32).reshape(a.shape)
        place[...] = a
        np.testing.assert_allclose(kernel(place, b), a + b, rtol=1e-6)


def test_outputs_that_share_memory_are_refused() -> None:
    a, b = arrays()
    kernel = compiled(ADD, i=6, j=37)
    with pytest.raises(ShapeError, match="shares memory"):
        kernel(a, b, out=a)
    with pytest.raises(ShapeError, match="reaches an element twice"):
        kernel(a, b, out=np.lib.stride_tricks.as_strided(np.zeros(50, np.float32), a.shape, (4, 4)))


def test_scalars() -> None:
    kernel = compiled("y[] = sum[i] a[i] * b[]", i=33)
    a = np.arange(33, dtype=np.float32)
    result = kernel(a, np.float32(2).reshape(()))
    assert result.shape == ()
    assert float(result) == 2 * a.sum()


def test_other_dtypes_are_refused() -> None:
    a, b = arrays()
    kernel = compiled(ADD, i=6, j=37)
    with pytest.raises(KernelError, match="float32"):
        kernel(a.astype(np.int32), b)
    with pytest.raises(KernelError, match="float32"):
        kernel(a.astype(np.float64), b)
    with pytest.raises(SynoError, match="float32"):
        syno.compile(syno.Operator.parse(ADD, i=6, j=37), dtype="int8")
    with pytest.raises(UnknownName, match="x86-64-v3"):
        _core.cpu_named("x86-64-v33")


USE_CACHE = """
import sys
import numpy as np
from syno import _core
program = _core.Program.parse("y[i,j] = exp(a[i,j] * 3) + 7", sizes={"i": 6, "j": 37})
nest = _core.apply_schedule(program, _core.default_schedule(program))
kernel = _core.compile_nest(nest, cache_directory=sys.argv[1])
a = np.linspace(0, 1, 222, dtype=np.float32).reshape(6, 37)
assert np.allclose(kernel(a), np.exp(a * 3) + 7, rtol=1e-5)
print(kernel.report.from_cache)
"""


def test_processes_share_a_cache(tmp_path: Path) -> None:
    command = [sys.executable, "-c", USE_CACHE, str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
    assert [path.suffix for path in tmp_path.iterdir()] == [".kernel"], "one entry, nothing partial"
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize("place", ["/dev/full/cache", "/proc/cache"])
def test_a_cache_that_cannot_be_written_costs_time_only(place: str) -> None:
    command = [sys.executable, "-c", USE_CACHE, place]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stdout.strip() == "False"
    assert "cannot be written" in done.stderr


@pytest.mark.parametrize("cpu", ["x86-64-v3", "generic"])
def test_named_cpus_compute_the_same(cpu: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", USE_CACHE, str(tmp_path)]
    environment = {**os.environ, "SYNO_CPU": cpu}
    subprocess.run(command, env=environment, check=True, timeout=PATIENCE_S, capture_output=True)
