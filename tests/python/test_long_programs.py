"""Programs of hundreds and thousands of statements: code grows in proportion, in functions of a bounded length."""

from __future__ import annotations

import random
import re
import signal
from pathlib import Path

import numpy as np
import pytest

from syno import _core


def chain(length: int, *, extent: int = 16, outputs: int = 1) -> _core.Program:
    """Window reductions, each of the last one's results; the last few are returned."""
    lines, last = [], "x"
    for k in range(length):
        lines.append(f"t{k}[i] = sum[r: 3] {last}[i+r-1] * w[r]")
        last = f"t{k}"
    returned = ", ".join(f"t{k}" for k in range(length - outputs, length))
    text = "\n".join([*lines, f"return {returned}"])
    return _core.Program.parse(text, sizes={"i": extent}, shapes={"x": [extent]})


def mixed(length: int, seed: int) -> _core.Program:
    """Windows, products with a matrix, maxima and functions, each of some earlier results."""
    draw = random.Random(seed)
    lines, made = ["t0[i,j] = sum[r: 3] x[i+r-1,j] * w[r]"], ["t0"]
    for k in range(1, length):
        a, b = draw.choice(made[-3:]), draw.choice(made[-8:])
        body = draw.choice(
            [
                f"sum[r: 3] {a}[i,j+r-1] * w[r] + 0.125 * {b}[i,j]",
                f"tanh(sum[k: 16] {a}[i,k] * m[k,j]) + 0.25",
                f"max[r: 3] {a}[i+r-1,j] - 0.5 * {b}[i,j] + 0.25",
                f"tanh({a}[i,j]) * sum[r: 3] {b}[i+r-1,j] * w[r] + 0.25",
            ]
        )
        lines.append(f"t{k}[i,j] = {body}")
        made.append(f"t{k}")
    text = "\n".join([*lines, f"return t{length // 2}, t{length - 1}"])
    shapes = {"x": [24, 16], "m": [16, 16], "w": [3]}
    return _core.Program.parse(text, sizes={"i": 24, "j": 16}, shapes=shapes)


def compiled(program: _core.Program, threads: int = 1, dtype: str = "float32") -> _core.Kernel:
    schedule = _core.default_schedule(program, threads=threads, dtype=dtype)
    return _core.compile_nest(_core.apply_schedule(program, schedule))


def functions(kernel: _core.Kernel) -> list[int]:
    """Lines of each function."""
    return [
        part.split("\n}")[0].count("\n")
        for part in re.split(r"^define ", kernel.llvm(), flags=re.M)[1:]
    ]


def test_functions_are_of_a_bounded_length() -> None:
    short, long = (functions(compiled(chain(n, extent=64))) for n in (30, 450))
    assert len(short) == 1 and len(long) > 4
    assert max(long) < 2 * 4096


def test_the_module_grows_in_proportion_to_the_program() -> None:
    short, long = (len(compiled(chain(n, extent=64)).llvm()) for n in (100, 400))
    assert long < 4.6 * short


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_programs_in_several_functions_compute_the_same(seed: int, threads: int) -> None:
    program = mixed(40, seed)
    kernel = compiled(program, threads, "float64")
    assert len(functions(kernel)) > 1
    draw = np.random.default_rng(seed)
    arguments = [(name, shape) for name, out, shape in kernel.arguments if not out]
    inputs = {name: draw.uniform(-0.5, 0.5, shape) for name, shape in arguments}
    wanted = program.interpret(inputs)
    given = [inputs[name] for name, _ in arguments]
    for results in (kernel(*given), kernel(*given, num_threads=3)):
        for got, want in zip(results, wanted.values(), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-7 * np.abs(want).max())


def test_two_thousand_reductions_compile() -> None:
    program = chain(2000)
    kernel = compiled(program)
    x, w = np.ones(16, np.float32), np.array([0.25, 0.5, 0.25], np.float32)
    want = x.astype(np.float64)
    for _ in range(2000):
        want = np.convolve(want, w, "same")
    np.testing.assert_allclose(kernel(x, w), want, rtol=1e-3, atol=1e-30)


def test_many_outputs_are_verified() -> None:
    program = chain(500, outputs=500)
    assert compiled(program).verify(program)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_interruption_ends_code_generation(threads: int, tmp_path: Path) -> None:
    """What is half compiled is not kept: an object in the cache would be the whole one."""
    program = chain(1500, extent=64)
    nest = _core.apply_schedule(program, _core.default_schedule(program, threads=threads))

    class Heard(Exception):
        pass

    def hear(number: int, frame: object) -> None:
        raise Heard

    before = signal.signal(signal.SIGALRM, hear)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Heard):
            _core.compile_nest(nest, cache_directory=str(tmp_path))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not list(tmp_path.rglob("*.kernel"))
