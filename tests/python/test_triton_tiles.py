"""Which tiles Triton kernels have, and how they lie in memory: digits of iterators, loads side by side, candidates in order,
and the choice by measuring."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import syno
from syno import _core
from syno._core import Program
from syno.errors import KernelError
from syno.gpu import gpu_named

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from syno.gpu.operators import TritonOperator  # noqa: E402
from syno.gpu.texts import Interpreter  # noqa: E402
from syno.gpu.tuning import TritonTuning, measured_on, tuned  # noqa: E402

H100 = gpu_named("h100")
GROUPS = "y[n,o,h] = sum[c] x[n,c+16*(o/16),h] * w[o%16,c+16*(o/16)]"


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    with Interpreter() as running:
        yield running


def right(interpreter: Interpreter, program: Program, text: _core.TritonText) -> None:
    """Runs a text on random inputs and compares all outputs."""
    generator = np.random.default_rng(0)
    inputs = {n: generator.standard_normal(program.shape(n)) for n in program.inputs}
    inputs = {n: a.astype(np.float32).astype(np.float64) for n, a in inputs.items()}
    wanted = program.interpret(inputs)
    for name, got in zip(
        program.outputs, interpreter.run(text.source, list(inputs.values())), strict=True
    ):
        scale = max(1e-30, float(np.abs(wanted[name]).max(initial=0)))
        apart = float(np.abs(got - wanted[name]).max(initial=0)) / scale
        assert apart < 1e-5, text.source


def candidates(program: Program, count: int) -> Iterator[_core.TritonText]:
    """Texts of the first candidates, and of some later ones."""
    for rank in (*range(count), 3 * count, 20 * count):
        yield _core.emit_triton(program, H100, precision="tf32x3", ranks=[rank] * 9)


# ---- Digits


def grouped(n: int = 128, c: int = 64, h: int = 196) -> Program:
    return syno.Operator.parse(GROUPS, n=n, o=c, c=16, h=h).program


def test_what_reads_only_quotients_of_a_channel_makes_its_remainders_columns() -> None:
    """Both factors read a group of channels, one of them the channel within it, too: groups are independent products. As one
    iterator of both, each channel would be a product of its own, with one column."""
    (kernel,) = _core.emit_triton(grouped(), H100).kernels
    assert kernel.kind == "product" and kernel.columns == 16
    # Nobody reads a group only.
    plain = syno.Operator.parse("y[n,o,h] = sum[c] x[n,c,h] * w[o,c]", n=128, o=64, c=64, h=196)
    (kernel,) = _core.emit_triton(plain.program, H100).kernels
    assert kernel.kind == "product" and kernel.columns == 64


@st.composite
def divided(draw: st.DrawFn) -> Program:
    """Products whose factors read quotients and remainders of iterators, by numbers that divide one another or do not."""
    by = draw(st.sampled_from([2, 3, 4, 6]))
    again = draw(st.sampled_from([1, 2, 3]))
    extent = by * again * draw(st.sampled_from([1, 2, 5]))
    left = draw(st.sampled_from([f"o/{by}", f"o%{by}", f"o/{by * again}", f"(o+1)%{by}", "o"]))
    right = draw(
        st.sampled_from(
            [f"o%{by}", f"o/{by}%{max(2, again)}", f"{extent - 1}-o", f"o/{by}+o%{by}", "o"]
        )
    )
    terms = draw(st.sampled_from(["k", f"k/{by}", f"k%{by}"]))
    long = by * draw(st.integers(1, 9))
    text = f"y[i,o] = sum[k] x[i,k,{left}] * w[{terms},{right}]"
    shapes = {"x": [7, long, extent + 1], "w": [long, 2 * extent]}
    text = text.replace("[i,o]", f"[i, o: {extent}]").replace("sum[k]", f"sum[k: {long}]")
    return Program.parse(text, shapes=shapes)


@settings(deadline=None, max_examples=30)
@given(program=divided())
def test_scopes_in_digits_compute_the_same(interpreter: Interpreter, program: Program) -> None:
    for text in candidates(program, 2):
        if sum(k.blocks * k.steps for k in text.kernels) <= 40:
            right(interpreter, program, text)


def test_digits_walk_tiles_that_hold_their_products_and_such_that_do_not(
    interpreter: Interpreter,
) -> None:
    """Sums over windows of 3 and channels of 16 and 24, steps of 16 and 32 terms: shared by all lanes, or part of an iterator."""
    seen = set()
    for channels in (16, 24, 32):
        text = "y[n,o,h] = sum[c,r] x[n,c,h+r-1] * w[o,c,r]"
        program = syno.Operator.parse(text, n=2, o=20, c=channels, h=9, r=3).program
        for variant in range(200):
            made = _core.emit_triton(program, H100, variant=variant)
            (kernel,) = made.kernels
            shared = bool(re.search(r"= base\d* // \d+", made.source))
            if kernel.kind != "product" or (shared, kernel.depth) in seen:
                continue
            if kernel.blocks * kernel.steps <= 40:
                seen.add((shared, kernel.depth))
                right(interpreter, program, made)
    assert len({shared for shared, _ in seen}) == 2 and len(seen) >= 4, seen


# ---- Side by side in memory


def hints(program: Program, dtype: str = "float32") -> list[tuple[int, int]]:
    """Of the loads and the store of a product."""
    source = _core.emit_triton(program, H100, dtype).source
    found = re.findall(r"tl\.max_contiguous\(\w+, \[(\d), (\d)\]\)", source)
    return [(int(a), int(b)) for a, b in found]


def test_loads_say_along_which_axis_they_lie_side_by_side() -> None:
    def conv(h: int) -> Program:
        return syno.Operator.parse(
            "y[n,o,h,w] = sum[c] x[n,c,h,w] * k[o,c]", n=128, o=128, c=128, h=h, w=h
        ).program

    # Images of 8x8: pixels, of which four are loaded at once; weights: the terms; results: pixels.
    assert hints(conv(8)) == [(4, 1), (4, 1), (4, 1)]
    # Of 7x7: four at the end of an image are no neighbours, but most are.
    assert hints(conv(7)) == [(2, 1), (4, 1), (2, 1)]
    # Eight of 16 bits.
    assert hints(conv(8), "bfloat16") == [(8, 1), (8, 1), (8, 1)]
    # Every other pixel: no two neighbours.
    strided = syno.Operator.parse(
        "y[n,o,h,w] = sum[c] x[n,c,2*h,2*w] * k[o,c]", n=128, o=128, c=128, h=7, w=7
    )
    assert hints(strided.program) == [(4, 1), (2, 1)]


def test_a_matrix_whose_columns_are_read_as_terms_says_so() -> None:
    program = syno.Operator.parse("y[i,j] = sum[k] x[k,i] * w[k,j]", i=512, j=512, k=512).program
    assert hints(program) == [(4, 1), (1, 4), (1, 4)]


# ---- Candidates


def test_candidates_come_in_the_order_of_predictions_shapes_first() -> None:
    program = syno.Operator.parse("y[i,j] = sum[k] x[i,k] * w[k,j]", i=512, j=512, k=512).program
    kernels = [text.kernels[0] for text in candidates(program, 12)]
    assert repr(kernels[0]) == repr(_core.emit_triton(program, H100, precision="tf32x3").kernels[0])
    first = kernels[:12]
    assert [k.seconds for k in first] == sorted(k.seconds for k in first)
    shapes = {(k.kind, k.rows, k.columns, k.depth, k.split_tf32) for k in first}
    assert len(shapes) == 12
    last = _core.emit_triton(program, H100, ranks=[10**9]).kernels[0]
    assert last.candidates > 1000 and last.seconds >= max(k.seconds for k in kernels)


def test_three_products_of_tf32_where_that_is_faster(interpreter: Interpreter) -> None:
    program = syno.Operator.parse("y[i,j] = sum[k] x[i,k] * w[k,j]", i=64, j=64, k=64).program
    large = syno.Operator.parse("y[i,j] = sum[k] x[i,k] * w[k,j]", i=4096, j=4096, k=4096).program
    split = _core.emit_triton(large, H100, precision="tf32x3")
    plain = _core.emit_triton(large, H100)
    assert split.kernels[0].split_tf32 and not plain.kernels[0].split_tf32
    assert 'input_precision="tf32x3"' in split.source and 'input_precision="ieee"' in plain.source
    assert split.seconds < 0.7 * plain.seconds
    assert "by TF32" in repr(split.kernels[0])
    right(interpreter, program, _core.emit_triton(program, H100, precision="tf32x3"))
    # None of float64, none of bfloat16, whose products need no splitting, and none where a GPU has no TF32.
    for dtype in ("float64", "bfloat16"):
        kernel = _core.emit_triton(large, H100, dtype, precision="tf32x3").kernels[0]
        assert not kernel.split_tf32
    facts = re.sub(r'"tf32_tflops": [\d.]+,?', "", H100.to_json())
    older = _core.GpuModel.from_json(re.sub(r",\s*}", "}", facts))
    assert not _core.emit_triton(large, older, precision="tf32x3").kernels[0].split_tf32


def test_times_say_what_holds_a_kernel_up() -> None:
    def longest(program: Program) -> str:
        (kernel,) = _core.emit_triton(program, H100).kernels
        assert min(kernel.times.values()) >= 0 and max(kernel.times.values()) <= kernel.seconds
        return max(kernel.times, key=lambda name: kernel.times[name])

    product = syno.Operator.parse("y[i,j] = sum[k] x[i,k] * w[k,j]", i=4096, j=4096, k=4096)
    assert longest(product.program) == "arithmetic"
    copied = syno.Operator.parse("y[i,j] = x[i,j]", i=4096, j=4096)
    assert longest(copied.program) == "memory"


# ---- By measuring


def two_scopes() -> Program:
    text = "t[i,k] = sum[l] x[i,l] * v[l,k]; y[i,j] = sum[k] t[i,k] * w[k,j]"
    return syno.Operator.parse(text, i=128, j=128, k=128, l=128).program


def test_the_fastest_candidate_of_each_kernel_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    program = two_scopes()
    asked: list[list[str]] = []

    def write(ranks: Sequence[int]) -> _core.TritonText:
        return _core.emit_triton(program, H100, ranks=list(ranks))

    def measure(text: _core.TritonText) -> list[float]:
        asked.append([repr(kernel) for kernel in text.kernels])
        if len(asked) == 2:
            raise KernelError("[gpu] out of shared memory")
        return [3.0 if len(asked) == 4 else 5.0, 4.0 if len(asked) == 3 else 6.0]

    with caplog.at_level(logging.WARNING, "syno.gpu"):
        text, rows = tuned(write, measure, 5, "forward")
    (said,) = caplog.messages
    assert "candidate 1 is left out" in said and "out of shared memory" in said
    assert len(asked) == 5
    assert [repr(k) for k in text.kernels] == [asked[3][0], asked[2][1]]
    assert [(row.rank, row.seconds, row.first_seconds, row.measured) for row in rows] == [
        (3, 3.0, 5.0, 4),
        (2, 4.0, 6.0, 4),
    ]
    shown = TritonTuning(tuple(rows), "a GPU")
    assert shown.seconds == 7.0 and shown.first_seconds == 11.0
    assert "on a GPU" in str(shown) and str(shown).count("forward") == 2
    assert len(shown.to_dict()["kernels"]) == 2 and "<pre>" in shown._repr_html_()

    def never(text: _core.TritonText) -> list[float]:
        raise KernelError(f"[gpu] {len(text.kernels)} kernels fail")

    with pytest.raises(KernelError, match="2 kernels fail"):
        tuned(write, never, 3, "forward")


def test_tiles_that_compute_something_else_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from syno.gpu import tuning

    results = [torch.ones(3), torch.ones(3) * (1 + 1e-6), torch.tensor([1.0, 1.0, float("nan")])]
    texts = [_core.emit_triton(two_scopes(), H100, ranks=[r, r]) for r in range(3)]
    given = {text.source: result for text, result in zip(texts, results, strict=True)}
    monkeypatch.setattr(
        tuning, "loaded", lambda source: SimpleNamespace(run=lambda *_: (given[source],))
    )
    monkeypatch.setattr(tuning, "kernel_seconds", lambda *_: [1.0, 2.0])
    measure = measured_on([torch.ones(3)], 1e-4)
    assert measure(texts[0]) == [1.0, 2.0] and measure(texts[1]) == [1.0, 2.0]
    with pytest.raises(KernelError, match="compute something else"):
        measure(texts[2])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_nothing_is_tuned() -> None:
    module = syno.Operator.parse("y[i] = x[i] * w[i]", i=4).to_triton()
    with pytest.raises(KernelError, match="no CUDA device: torch"):
        module.tune()
    with pytest.raises(KernelError, match="candidates=0 must be at least 1"):
        module.tune(0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_tuned_kernels_on_the_device() -> None:
    module: TritonOperator = syno.Operator.from_program(two_scopes()).to_triton(gpu="h100")
    tuning = module.tune(3)
    assert tuning.seconds <= tuning.first_seconds and module.verify()
