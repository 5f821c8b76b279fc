"""Operators as Triton kernels, run in Triton's interpreter on the CPU and compared with the float64 interpreter."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE_S
from test_emit import all_programs, index_maps, random_inputs

import syno
from syno import _core
from syno._core import Program
from syno.errors import FormatError, KernelError, ShapeError, UnknownName
from syno.gpu import gpu_named, gpu_names
from syno.kernels.kernel import Verification
from syno.support.fresh import python_command, python_environment

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from syno.gpu.operators import verified  # noqa: E402
from syno.gpu.texts import Interpreter  # noqa: E402

H200 = gpu_named("h200")
#: Largest difference over the largest value.
APART = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 2.0**-8, "float16": 2.0**-10}
#: Blocks and steps of a text that the interpreter has time for.
MOST_WORK = 24


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    with Interpreter() as running:
        yield running


def check(
    interpreter: Interpreter, program: Program, text: _core.TritonText, dtype: str, seed: int = 0
) -> None:
    """Runs a text on random inputs and compares all outputs."""
    kind = getattr(torch, dtype)
    drawn = random_inputs(program, seed)
    inputs = {n: torch.from_numpy(drawn[n]).to(kind).double().numpy() for n in program.inputs}
    expected = program.interpret(inputs)
    results = interpreter.run(text.source, list(inputs.values()))
    for name, got in zip(program.outputs, results, strict=True):
        wanted = expected[name]
        assert got.shape == wanted.shape
        scale = max(1e-30, float(np.abs(wanted).max(initial=0)))
        worst = float(np.abs(got - wanted).max(initial=0)) / scale
        assert worst <= APART[dtype], f"{name} by {worst:.1e}: {text.kernels}\n{text.source}"


@pytest.mark.parametrize("dtype", APART)
def test_kernels_compute_the_program(interpreter: Interpreter, dtype: str) -> None:
    kinds: set[str] = set()
    large = Program.parse(
        "y[i,j] = sum[k] x[i,k] * w[k,j]", shapes={"x": [130, 140], "w": [140, 120]}
    )
    products = dtype != "float64"
    for program in (*all_programs().values(), *([large] if products else [])):
        text = _core.emit_triton(program, H200, dtype)
        kinds |= {kernel.kind for kernel in text.kernels}
        check(interpreter, program, text, dtype)
    assert ("product" in kinds) == products


def test_any_tiles_compute_the_program(interpreter: Interpreter) -> None:
    seen: Counter[str] = Counter()
    for number, (name, program) in enumerate(all_programs().items()):
        found = 0
        for variant in range(1000 * number, 1000 * number + 200):
            dtype = sorted(APART)[variant % 4]
            text = _core.emit_triton(program, H200, dtype, variant=variant)
            if sum(k.blocks * k.steps for k in text.kernels) > MOST_WORK:
                continue
            check(interpreter, program, text, dtype, seed=variant)
            for kernel in text.kernels:
                seen[kernel.kind] += 1
                seen["parts"] += kernel.parts > 1
                seen["blocks"] += kernel.blocks > kernel.parts
                seen["steps"] += kernel.steps > 1
            found += 1
            if found == 4:
                break
        assert found, name
    wanted = {"points", "reduced", "product", "parts", "blocks", "steps"}
    assert all(seen[each] >= 5 for each in wanted), seen


@settings(deadline=None, max_examples=25)
@given(program=index_maps(), variant=st.one_of(st.none(), st.integers(0, 1000)))
def test_kernels_read_at_any_index(
    interpreter: Interpreter, program: Program, variant: int | None
) -> None:
    text = _core.emit_triton(program, H200, variant=variant)
    if sum(k.blocks * k.steps for k in text.kernels) <= 4 * MOST_WORK:
        check(interpreter, program, text, "float32")


def test_quotients_of_negative_numbers_round_down(interpreter: Interpreter) -> None:
    """Triton's own round towards zero."""
    for text in (
        "x[(i-4)/3+1, (j-5)%4]",
        "x[(4-i)/3+1, (2-j)%4]",
        "x[(i-4)/3, (2*j-9)/2%4] fill 2",
    ):
        program = Program.parse(f"y[i,j] = {text}", shapes={"x": [3, 4]}, sizes={"i": 8, "j": 7})
        for dtype in ("float32", "bfloat16"):
            check(interpreter, program, _core.emit_triton(program, H200, dtype), dtype)


def test_what_lies_beyond_the_last_term_counts_for_nothing(interpreter: Interpreter) -> None:
    """Fills, functions that are not 0 at 0, and what is no number, in the last tile of a sum, a product and an extreme."""
    for body in (
        "sum[k] (x[i,k+3] fill 2) * (w[k,j] fill 3)",
        "sum[k] exp(x[i,k]) * (1 + w[k,j])",
        "sum[k] log(1 + abs(x[i,k])) * (1 / w[k,j])",
        "prod[k] x[i,k] * w[k,j]",
        "max[k] (x[i,k] - w[k,j])",
        "min[k] (x[i,k] + w[k,j])",
    ):
        shapes = {"x": [4, 5], "w": [5, 3]}
        program = Program.parse(f"y[i,j] = {body}", shapes=shapes, sizes={"i": 4, "k": 5})
        seen = set()
        for variant in (None, *range(150)):
            text = _core.emit_triton(program, H200, variant=variant)
            (kernel,) = text.kernels
            kind = (kernel.kind, kernel.parts > 1)
            if kind not in seen and kernel.blocks * kernel.steps <= MOST_WORK:
                seen.add(kind)
                check(interpreter, program, text, "float32")
        assert len(seen) >= 4, (body, seen)


def part(
    interpreter: Interpreter, program: Program, dtype: str = "float32", gpu: _core.GpuModel = H200
) -> Verification:
    text = _core.emit_triton(program, gpu, dtype)
    return verified(program, text.source, interpreter.run, dtype=dtype)


def small_operators() -> list[syno.Operator]:
    """Synthesised ones, at sizes that the interpreter has time for, and Operator 1."""
    graphs = _core.sample_operators(_core.spec_named("test"), n=4, seed=5)
    found = [
        syno.Operator.from_pgraph(graph).at(0).with_sizes(N=2, H=6, W=6, C_in=6, C_out=6)
        for graph in graphs
    ]
    text = (
        "t[n,g,d,s,h,w] = sum[c] x[n,4*g+c,h,w+s-1] * a[d,4*g+c,s]; "
        "y[n,o,h,w] = sum[r,s,g,d] t[n,g,d,s,h+r-1,w] * b[o,r,s,g,d]"
    )
    sizes = dict(n=2, o=8, h=5, w=4, r=3, s=3, g=2, c=4, d=2)
    return [*found, syno.Operator.parse(text, **sizes)]


def test_synthesised_operators_and_their_gradients_are_verified(interpreter: Interpreter) -> None:
    for number, operator in enumerate(small_operators()):
        dtype = ("float32", "bfloat16")[number % 2]
        for program in (operator.program, operator.program.derivatives(operator.inputs)):
            result = part(interpreter, program, dtype)
            assert result.passed, result


def test_a_text_that_computes_something_else_is_found(interpreter: Interpreter) -> None:
    program = all_programs()["convolution"]
    source = _core.emit_triton(program, H200).source
    wrong = source.replace(">= 0", ">= 1", 1)
    assert wrong != source
    assert verified(program, source, interpreter.run, dtype="float32").passed
    result = verified(program, wrong, interpreter.run, dtype="float32")
    assert not result.passed and "reference" in result.detail


def test_a_text_that_fails_says_what_the_interpreter_said(interpreter: Interpreter) -> None:
    with pytest.raises(KernelError, match="NameError"):
        interpreter.run("DTYPE = nothing\n", [])
    program = all_programs()["matmul"]
    text = _core.emit_triton(program, H200)
    with pytest.raises(KernelError, match=r"a is torch.float32 \[2, 4\].*\[3, 4\]"):
        interpreter.run(text.source, [np.zeros((2, 4)), np.zeros((4, 5))])
    check(interpreter, program, text, "float32")  # and goes on


# ---- Tiles


def conv(n: int, c: int, o: int, h: int) -> Program:
    text = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"
    return syno.Operator.parse(text, n=n, c=c, o=o, h=h, w=h, r=3, s=3).program


def only(
    program: Program, gpu: _core.GpuModel = H200, dtype: str = "float32"
) -> _core.TritonKernel:
    (kernel,) = _core.emit_triton(program, gpu, dtype).kernels
    return kernel


def test_tiles_follow_the_gpu_and_the_shape() -> None:
    large = only(conv(128, 64, 64, 56))
    assert large.kind == "product" and large.blocks >= 132 and large.parts == 1
    assert repr(only(conv(128, 64, 64, 56))) == repr(large)
    # A sum of very many terms with few results is shared among blocks.
    weights = _core.emit_triton(conv(128, 64, 64, 56).derivatives(["k"]), H200).kernels[-1]
    assert weights.kind == "product" and weights.parts > 1 and weights.blocks >= 132
    # Nothing is shared by the results of a depthwise convolution.
    text = "y[n,c,h,w] = sum[r,s] x[n,c,h+r-1,w+s-1] * k[c,r,s]"
    depthwise = syno.Operator.parse(text, n=128, c=64, h=56, w=56, r=3, s=3).program
    assert only(depthwise).kind == "points"
    # Tensor cores are faster by more than ten.
    assert (
        only(conv(128, 256, 256, 14), dtype="bfloat16").seconds
        < 0.5 * only(conv(128, 256, 256, 14)).seconds
    )


def altered(**changes: object) -> _core.GpuModel:
    facts = json.loads(H200.to_json())
    return _core.GpuModel.from_json(json.dumps({**facts, **changes}))


def test_tiles_fit_the_shared_memory_of_a_block(interpreter: Interpreter) -> None:
    little = altered(shared_bytes=8192, shared_bytes_per_block=8192)
    for stages in range(2):
        kernel = only(conv(128, 64 + stages, 64, 56), little)
        operands = (kernel.rows + kernel.columns) * kernel.depth * 4
        assert kernel.kind != "product" or operands * max(1, kernel.stages - 1) <= 8192
    assert part(interpreter, conv(1, 4, 4, 4), gpu=little).passed


def test_a_slower_gpu_is_predicted_to_be_slower() -> None:
    a100, program = gpu_named("a100"), conv(128, 64, 64, 56)
    assert only(program, a100).seconds > 1.5 * only(program).seconds


@pytest.mark.parametrize(("gpu", "capability"), [("h200", 90), ("a100", 80)])
def test_kernels_compile_for_a_gpu_that_is_not_here(
    gpu: str, capability: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Triton's own compiler, to machine code; what shared memory it needs, the GPU has."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as compiled

    from syno.gpu.texts import loaded

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    model, programs = gpu_named(gpu), all_programs()
    chosen = [conv(128, 64, 64, 56), conv(128, 64, 64, 56).derivatives(["k"])]
    chosen += [programs[name] for name in ("softmax", "groups", "accumulation and constants")]
    limit = json.loads(model.to_json())["shared_bytes_per_block"]
    for program in chosen:
        text = _core.emit_triton(program, model)
        module = loaded(text.source)
        for i, kernel in enumerate(text.kernels):
            for name in (f"scope_{i + 1}", *([f"scope_{i + 1}_sum"] if kernel.parts > 1 else [])):
                function = getattr(module, name)
                source = ASTSource(fn=function, signature=dict.fromkeys(function.arg_names, "*fp32"), constexprs={})  # fmt: skip
                options = {"num_warps": kernel.warps, "num_stages": kernel.stages}
                code = compiled(source, target=GPUTarget("cuda", capability, 32), options=options)
                assert code.asm["cubin"] and code.metadata.shared <= limit, kernel


# ---- What is refused


def test_what_triton_lacks_is_refused() -> None:
    for exponent in ("0.5", "x[i]", "17"):
        program = Program.parse(f"y[i] = x[i] ** {exponent}", shapes={"x": [4]})
        with pytest.raises(KernelError, match="no power function"):
            _core.emit_triton(program, H200)
    symbolic = Program.parse("size n : primary = 3, 4\ninput x[n]\ny[i: n] = x[i] + x[i]\nreturn y")
    with pytest.raises(ShapeError, match="2 valuations"):
        _core.emit_triton(symbolic, H200)
    with pytest.raises(UnknownName, match="float16, float32, float64"):
        _core.emit_triton(all_programs()["matmul"], H200, "float8")
    with pytest.raises(UnknownName, match="ieee, tf32x3"):
        _core.emit_triton(all_programs()["matmul"], H200, precision="tf32")


def test_whole_powers_are_products(interpreter: Interpreter) -> None:
    for exponent in ("0", "1", "2", "3", "-2"):
        program = Program.parse(f"y[i] = x[i] ** {exponent}", shapes={"x": [40]})
        assert part(interpreter, program).passed, exponent


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"multiprocessors": 0}, "/multiprocessors is 0"),
        ({"memory_gbs": -1}, r"/memory_gbs is -1; it must be in \(0"),
        ({"shared_bytes_per_block": 1 << 20}, "more than the 233472 of a multiprocessor"),
        ({"registers": 65536.5}, "/registers is not an integer"),
        ({"format": "syno machine"}, "is 'syno machine', not 'syno gpu'"),
        ({"version": 2}, "newer than 1"),
        ({"warps": 4}, "/warps is unknown; there are: format"),
    ],
)
def test_gpu_files_are_read_strictly(changes: dict[str, object], words: str) -> None:
    with pytest.raises(FormatError, match=words):
        altered(**changes)


def test_gpu_files_round_trip_and_name_their_source(tmp_path: Path) -> None:
    assert gpu_names() == ["a100", "h100", "h200"]
    for name in gpu_names():
        gpu = gpu_named(name)
        assert not gpu.measured and "data sheet" in gpu.source and "not measured" in str(gpu)
        path = tmp_path / f"{name}.json"
        path.write_text(gpu.to_json())
        assert gpu_named(path) == gpu and hash(gpu_named(str(path))) == hash(gpu)
    with pytest.raises(UnknownName, match="did you mean 'h200'"):
        gpu_named("h20")
    with pytest.raises(FormatError, match="cannot be read"):
        gpu_named(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(FormatError):
        gpu_named(tmp_path / "bad.json")


# ---- The module


def operator() -> syno.Operator:
    return syno.Operator.parse("y[n,o] = sum[c] x[n,c] * w[o,c] * s[c]", n=4, o=3, c=5)


def test_verify_compares_forward_and_gradients() -> None:
    module = operator().to_triton(dtype="bfloat16", gpu="a100")
    result = module.verify(seed=3)
    assert result and set(result.parts) == {"forward", "gradients"}
    assert result.where == "Triton's interpreter" or torch.cuda.is_available()
    assert "verified" in str(result) and json.dumps(result.to_dict())
    assert "<pre>" in result._repr_html_()
    assert "ds" in module.gradient_source("s") and "dx" not in module.gradient_source("s")
    with pytest.raises(UnknownName, match="s, w, x"):
        module.gradient_source("q")
    with pytest.raises(UnknownName, match="bfloat16, float32, float64"):
        operator().to_triton(dtype="float16")
    with pytest.raises(UnknownName, match="ieee, tf32x3"):
        operator().to_triton(precision="bf16")


def test_without_a_device_the_cpu_goes_on_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    module = operator().to_triton()
    plain = operator().to_torch()
    plain.load_state_dict(module.state_dict())
    for batch in (4, 4, 7):
        x = torch.randn(batch, 5)
        with caplog.at_level(logging.WARNING, "syno.gpu"):
            torch.testing.assert_close(module(x), plain(x))
    assert len(caplog.records) == 1
    assert caplog.records[0].message.startswith("no CUDA device: ")


TRAINING = """
import copy, torch, syno
operator = syno.Operator.parse("y[n,o] = sum[c] x[n,c] * w[o,c] * s[c]; z[n] = sum[o] y[n,o] * y[n,o]", n=4, o=3, c=5)
module, plain = operator.to_triton(), operator.to_torch()
plain.load_state_dict(module.state_dict())
for batch in (4, 6):
    for both in (module, plain):
        for p in both.parameters(): p.grad = None
    given = torch.randn(batch, 5)
    inputs = [given.clone().requires_grad_() for _ in range(2)]
    results = [m(x) for m, x in zip((module, plain), inputs)]
    for result in results: (result * torch.arange(1.0, batch + 1)).sum().backward()
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(x.grad for x in inputs))
    for mine, other in zip(module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
assert type(results[0].grad_fn).__name__ == "_CallBackward", results[0].grad_fn
again = copy.deepcopy(module)
torch.testing.assert_close(again(given), results[0])
"""


def run_interpreted(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        python_command(program),
        env={**python_environment(), "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_modules_train_on_kernels() -> None:
    """Where this process interprets Triton's kernels, tensors of the CPU take the way of those of a GPU."""
    done = run_interpreted(TRAINING)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_kernels_on_the_device() -> None:
    for one in small_operators():
        assert one.to_triton().verify().where != "Triton's interpreter"


def test_triton_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from syno.gpu import texts

    monkeypatch.setattr(
        texts, "no_triton", lambda: 'Triton is not installed: pip install "syno[gpu]"'
    )
    with pytest.raises(KernelError, match=r"syno\[gpu\]"):
        texts.loaded("")
    with pytest.raises(KernelError, match=r"syno\[gpu\]"):
        Interpreter()


def test_the_same_text_wherever_it_is_made() -> None:
    program = "from syno import _core; from syno.gpu import gpu_named; import sys;"
    program += "p = _core.Program.parse(sys.argv[1]); print(_core.emit_triton(p, gpu_named('h200')).source)"
    text = str(conv(2, 3, 4, 5).text())
    child = subprocess.run(
        [sys.executable, "-c", program, text],
        env=python_environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert child.stdout.rstrip() == _core.emit_triton(Program.parse(text), H200).source.rstrip()
