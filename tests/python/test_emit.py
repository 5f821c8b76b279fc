"""Every emitted text is run and compared with the interpreter."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syno import _core
from syno._core import Program

CASES = {
    "convolution": (
        "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]",
        {"x": [2, 3, 5, 4], "k": [4, 3, 3, 3]},
        {},
    ),
    "strided and dilated": (
        "y[n,o,h] = sum[c,r] x[n,c,2*h+3*r-2] * k[o,c,r]",
        {"x": [2, 3, 10], "k": [4, 3, 3]},
        {"h": 4},
    ),
    "groups": (
        "y[n,g,o,h] = sum[c,r] x[n,2*g+c,h+r-1] * k[g,o,c,r]",
        {"x": [2, 6, 5], "k": [3, 4, 2, 3]},
        {},
    ),
    "taps in the result": (
        "y[n,o,r,h,w] = sum[c] x[n,c,h,w+2*r-2] * k[o,c,r]",
        {"x": [2, 3, 4, 7], "k": [2, 3, 3]},
        {"w": 7},
    ),
    "matmul": ("y[m,n] = sum[k] a[m,k] * b[k,n]", {"a": [3, 4], "b": [4, 5]}, {}),
    "three factors": (
        "y[i,j] = sum[k,l] a[i,k] * b[k,l] * c[l,j]",
        {"a": [3, 4], "b": [4, 2], "c": [2, 5]},
        {},
    ),
    "max pool": ("y[n,h] = max[r] x[n,2*h+r-1] fill -inf", {"x": [3, 9]}, {"h": 5, "r": 3}),
    "mean": ("y[i] = mean[j] x[i,j]", {"x": [3, 4]}, {}),
    "product": ("y[i: 3] = prod[j: 5] x[i,j] fill 1", {"x": [3, 4]}, {}),
    "softmax": (
        "m[i] = max[j] x[i,j]; e[i,j] = exp(x[i,j]-m[i]); s[i] = sum[j] e[i,j]; y[i,j] = e[i,j]/s[i]",
        {"x": [3, 5]},
        {},
    ),
    "functions": (
        "y[i] = gelu(x[i]) * sigmoid(x[i]) + tanh(x[i]) / exp(x[i]) - relu(x[i]) * erf(x[i]) + abs(x[i])",
        {"x": [9]},
        {},
    ),
    "turns": (
        "y[i] = sin(x[i]) + cos(3 * x[i]) * atan(x[i])",
        {"x": [9]},
        {},
    ),
    "steps": (
        "y[i] = floor(x[i] * 5) + ceil(x[i] * 3) - round(x[i] * 7) * trunc(x[i] * 2)",
        {"x": [9]},
        {},
    ),
    "roots": ("y[i] = sqrt(abs(x[i])) + log(abs(x[i]) + 1) * rsqrt(abs(x[i]) + 2)", {"x": [9]}, {}),
    "comparisons": (
        "y[i] = select(x[i] < b[7-i], max(x[i], b[i]), min(x[i], 2))",
        {"x": [8], "b": [8]},
        {},
    ),
    "rotated pixels": ("y[i,j] = x[(i+1)%6, j/2, 2*(j%2)]", {"x": [6, 3, 3]}, {"i": 6, "j": 6}),
    "flipped": ("y[i,j] = x[5-i] * x[i+j-1]", {"x": [6]}, {"i": 6, "j": 3}),
    "diagonal": ("y[i] = sum[j] x[i,i,j] * w[j,j]", {"x": [4, 4, 3], "w": [3, 3]}, {}),
    "scalar": ("s[] = sum[i] x[i] * x[i]; y[i] = x[i] * s[]", {"x": [5]}, {}),
    "reserved names": (
        "self[i] = sum[lambda] import[i,lambda] * class[lambda]",
        {"import": [3, 4], "class": [4]},
        {},
    ),
}


def program_of(name: str) -> Program:
    text, shapes, sizes = CASES[name]
    return Program.parse(text, shapes=shapes, sizes=sizes)


ACCUMULATING = (
    "input x[4]; weight w[2]; constant c[2] = {1, 1/2}\n"
    "t[6] : [i: 4, j: 2][i + 2*j - 1] += x[i] * w[j] * c[j]\ny[i: 6] = t[i] + 1\nreturn y, t"
)


def all_programs() -> dict[str, Program]:
    programs = {name: program_of(name) for name in CASES}
    programs["accumulation and constants"] = Program.parse(ACCUMULATING)
    return programs


def random_inputs(program: Program, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=program.shape(name)) for name in program.inputs}


# ---- PyTorch ----


def torch_outputs(program: Program, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Of the emitted text, run; reading it gives the same."""
    torch = pytest.importorskip("torch")
    namespace: dict[str, object] = {}
    text = _core.emit_pytorch(program)
    exec(compile(text, "emitted", "exec"), namespace)
    module = namespace["Operator"](dtype=torch.float64)  # type: ignore[operator]
    results = outputs_of(module, program, inputs)
    for got, wanted in zip(outputs_of(read_module(text), program, inputs), results, strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=text)
    return results


def read_module(text: str) -> Any:
    """The same text read, and not run."""
    import torch

    from syno.torch.aten import EmittedOperator
    from syno.torch.emitted import read

    return EmittedOperator(read(text), dtype=torch.float64)


def outputs_of(module: Any, program: Program, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    import torch

    weights = [n for n in program.inputs if program.role(n) == "weight"]
    with torch.no_grad():
        for name, parameter in zip(weights, module.parameters(), strict=True):
            parameter.copy_(torch.from_numpy(inputs[name]))
        data = [torch.from_numpy(inputs[n]) for n in program.inputs if program.role(n) == "input"]
        result = module(*data)
    outputs = result if isinstance(result, tuple) else (result,)
    return [o.numpy() for o in outputs]


@pytest.mark.parametrize("name", [*CASES, "accumulation and constants"])
def test_pytorch_computes_the_program(name: str) -> None:
    program = all_programs()[name]
    inputs = random_inputs(program)
    expected = program.interpret(inputs)
    for output, got in zip(program.outputs, torch_outputs(program, inputs), strict=True):
        np.testing.assert_allclose(
            got, expected[output], atol=1e-9, err_msg=_core.emit_pytorch(program)
        )


@st.composite
def index_maps(draw: st.DrawFn) -> Program:
    """y[i,j] = sum[k] x[e] * w[f] with indices of every kind that operators make."""
    extents = {v: draw(st.integers(1, 6)) for v in "ijk"}

    def index(depth: int) -> str:
        if depth == 0:
            return draw(st.sampled_from("ijk"))
        a, size = index(depth - 1), draw(st.integers(1, 6))
        kind = draw(st.integers(0, 5))
        if kind == 0:
            return f"({a}) / {size}"
        if kind == 1:
            return f"(({a}) + {draw(st.integers(-2, 3))}) % {size}"
        if kind == 2:
            return f"inside(({a}) - {draw(st.integers(0, 2))}, {size})"
        return f"{draw(st.integers(1, 3))} * ({a}) + {index(depth - 1)} - {draw(st.integers(0, 3))}"

    shape = [draw(st.integers(1, 7)) for _ in range(2)]
    reads = ", ".join(index(draw(st.integers(0, 2))) for _ in shape)
    loops = ", ".join(f"{v}: {extents[v]}" for v in "ij")
    return Program.parse(
        f"input x[{shape[0]}, {shape[1]}]; weight w[{extents['k']}, {extents['j']}]\n"
        f"y[{loops}] = sum[k: {extents['k']}] x[{reads}] * w[k, {index(0).replace('i', 'j').replace('k', 'j')}]\nreturn y"
    )


@settings(deadline=None, max_examples=150)
@given(index_maps())
def test_pytorch_reads_at_any_index(program: Program) -> None:
    inputs = random_inputs(program)
    expected = program.interpret(inputs)["y"]
    text = program.text() + _core.emit_pytorch(program)
    np.testing.assert_allclose(torch_outputs(program, inputs)[0], expected, atol=1e-9, err_msg=text)


@st.composite
def windows(draw: st.DrawFn) -> Program:
    """Convolutions of one to three dimensions whose taps run forwards, or backwards as those of gradients do."""
    rank = draw(st.integers(1, 3))
    shape, kernel, indices, places = [], [], [], []
    for d in range(rank):
        place, taps = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        stride, dilation = draw(st.integers(1, 2)), draw(st.sampled_from([-3, -2, -1, 1, 2]))
        begin = draw(st.integers(-3, 6))
        shape.append(draw(st.integers(1, 8)))
        kernel.append(taps)
        places.append(f"h{d}: {place}")
        indices.append(f"{stride} * h{d} + {begin} + ({dilation}) * r{d}")
    sums = ", ".join(f"r{d}: {n}" for d, n in enumerate(kernel))
    taps = ", ".join(f"r{d}" for d in range(rank))
    return Program.parse(
        f"input x[2, 3, {', '.join(map(str, shape))}]; input k[4, 3, {', '.join(map(str, kernel))}]\n"
        f"y[n: 2, o: 4, {', '.join(places)}] = "
        f"sum[c: 3, {sums}] x[n, c, {', '.join(indices)}] * k[o, c, {taps}]\nreturn y"
    )


@settings(deadline=None, max_examples=150)
@given(windows())
def test_pytorch_convolves_with_taps_in_either_direction(program: Program) -> None:
    inputs = random_inputs(program)
    expected = program.interpret(inputs)["y"]
    text = program.text() + _core.emit_pytorch(program)
    np.testing.assert_allclose(torch_outputs(program, inputs)[0], expected, atol=1e-9, err_msg=text)


def test_pytorch_convolves_for_the_gradient_of_a_convolution() -> None:
    program = Program.parse(
        "input g[2, 4, 6, 5]; input k[4, 3, 3, 3]\n"
        "dx[n: 2, c: 3, h: 6, w: 5] = sum[o: 4, r: 3, s: 3] g[n, o, h - r + 1, w - 2*s + 2] * k[o, c, r, s]\nreturn dx"
    )
    text = _core.emit_pytorch(program)
    assert "F.conv2d(g, k.permute(1, 0, 2, 3).flip(2, 3), padding=(1, 2), dilation=(1, 2))" in text


def members_of_modules() -> list[str]:
    torch = pytest.importorskip("torch")
    return [n for n in [*dir(torch.nn.Module()), "like_", "place_1"] if not n.startswith("__")]


def test_pytorch_modules_may_have_weights_called_like_their_members() -> None:
    names = members_of_modules()
    assert {"half", "training", "to", "_parameters", "T_destination"} <= set(names)
    for name in names:
        program = Program.parse(
            f"y[i] = sum[j] x[i+j] * {name}[j]; z[i] = y[i] * {name}[1]",
            shapes={"x": [6], name: [3]},
            sizes={"i": 4},
        )
        inputs = random_inputs(program)
        expected = program.interpret(inputs)
        for output, got in zip(program.outputs, torch_outputs(program, inputs), strict=True):
            np.testing.assert_allclose(got, expected[output], atol=1e-9, err_msg=name)


def test_pytorch_modules_take_any_batch_and_are_differentiable() -> None:
    torch = pytest.importorskip("torch")
    namespace: dict[str, object] = {}
    exec(_core.emit_pytorch(program_of("convolution"), "Conv"), namespace)
    module = namespace["Conv"](dtype=torch.float64)  # type: ignore[operator]
    x = torch.randn(5, 3, 5, 4, dtype=torch.float64, requires_grad=True)
    y = module(x)
    assert y.shape == (5, 4, 5, 4)
    torch.testing.assert_close(y, torch.nn.functional.conv2d(x, module.k, padding=1))
    y.sum().backward()
    assert x.grad is not None
    assert module.k.grad is not None


def test_pytorch_refuses_what_cannot_be_a_class_or_has_no_sizes() -> None:
    with pytest.raises(_core.ShapeError, match="class"):
        _core.emit_pytorch(program_of("matmul"), "no name")
    symbolic = Program.parse("size n : primary = 3, 4\ninput x[n]\ny[i: n] = x[i] + x[i]\nreturn y")
    with pytest.raises(_core.ShapeError, match="2 valuations"):
        _core.emit_pytorch(symbolic)


# ---- C ----


@pytest.mark.parametrize("double", [False, True], ids=["float", "double"])
def test_c_checks_itself(tmp_path: Path, double: bool) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    for number, (name, program) in enumerate(all_programs().items()):
        source, binary = tmp_path / f"{number}.c", tmp_path / f"{number}"
        source.write_text(_core.emit_c(program, double_precision=double))
        command = [compiler, "-std=c11", "-Wall", "-Werror", str(source), "-o", str(binary), "-lm"]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        assert built.returncode == 0, f"{name}: {built.stderr}\n{source.read_text()}"
        ran = subprocess.run([str(binary)], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{name}: {ran.stdout}\n{source.read_text()}"
        assert ran.stdout.startswith("ok: ")


def test_c_notices_a_wrong_result(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler is installed")
    text = _core.emit_c(program_of("matmul"))
    wrong = text.replace(" += ", " -= ")
    assert wrong != text
    source, binary = tmp_path / "wrong.c", tmp_path / "wrong"
    source.write_text(wrong)
    command = [compiler, "-std=c11", str(source), "-o", str(binary), "-lm"]
    subprocess.run(command, check=True)
    ran = subprocess.run([str(binary)], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "WRONG" in ran.stdout


# ---- TVM ----


def tvm_interpreter() -> str:
    """The Python that has TVM: this one, or the one named by SYNO_TVM_PYTHON."""
    if importlib.util.find_spec("tvm") is not None:
        return sys.executable
    named = os.environ.get("SYNO_TVM_PYTHON")
    if not named:
        pytest.skip("TVM is not installed here and SYNO_TVM_PYTHON names no Python that has it")
    return named


def test_te_computes_the_program() -> None:
    interpreter = tvm_interpreter()
    lines, expected = [], []
    for name, program in all_programs().items():
        inputs = random_inputs(program)
        case = {
            "text": _core.emit_te(program, dtype="float64"),
            "inputs": [
                {"shape": list(v.shape), "data": v.ravel().tolist()} for v in inputs.values()
            ],
            "outputs": [program.shape(o) for o in program.outputs],
        }
        lines.append(json.dumps(case))
        outputs = program.interpret(inputs)
        expected.append((name, case["text"], [outputs[o].ravel() for o in program.outputs]))
    runner = str(Path(__file__).with_name("te_runner.py"))
    ran = subprocess.run(
        [interpreter, runner], input="\n".join(lines), capture_output=True, text=True, check=False
    )
    results = [json.loads(line) for line in ran.stdout.splitlines()]
    at = expected[len(results)][:2] if len(results) < len(expected) else ("", "")
    assert ran.returncode == 0, f"{at[0]}\n{at[1]}\n{ran.stderr[-3000:]}"
    for (name, text, wanted), got in zip(expected, results, strict=True):
        for a, b in zip(got, wanted, strict=True):
            # TVM's erf is a single-precision approximation
            np.testing.assert_allclose(a, b, atol=1e-5, err_msg=f"{name}\n{text}")


def test_te_names_the_dtypes_it_knows() -> None:
    with pytest.raises(_core.UnknownName, match="float32"):
        _core.emit_te(program_of("matmul"), dtype="float31")


# ---- Graphviz ----


def test_graphviz_draws_every_tensor_and_scope() -> None:
    text = _core.emit_graphviz(program_of("softmax"))
    assert text.startswith("digraph program {")
    assert text.count("shape=box") == 5
    assert text.count("shape=ellipse") == 4
    assert "max over j: 5" in text
