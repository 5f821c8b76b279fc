"""Exports run where they are taken: in C, in PyTorch without syno, in ONNX Runtime."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import syno  # noqa: E402
import syno.export.linking as linking  # noqa: E402
from syno.errors import FormatError, ShapeError, UnknownName  # noqa: E402
from syno.export.safetensors_file import load as load_safetensors  # noqa: E402
from syno.kernels.kernel import DTYPES  # noqa: E402
from syno.operators.operator import Operator  # noqa: E402
from syno.torch import Op, replace, sites  # noqa: E402

needs_compiler = pytest.mark.skipif(linking.c_compiler() is None, reason="no C compiler")
OPERATOR = Operator.parse(
    "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]", n=1, o=6, c=4, h=7, w=5, r=3, s=3
)
SEPARABLE = Operator.parse(
    "t[n,c,h,w] = sum[r,s] x[n,c,h+r-1,w+s-1] * k[c,r,s]; y[n,o,h,w] = sum[c] t[n,c,h,w] * p[o,c]",
    n=2, o=6, c=4, h=6, w=6, r=3, s=3,
)  # fmt: skip


def network():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1),
        nn.Flatten(), nn.Linear(6 * 36, 5),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 6, 6)
    return replace(model, {sites(model, x, repeats=1)["2"]: SEPARABLE}), model, x


@needs_compiler
def test_c_export_compiles_and_runs(tmp_path):
    done = syno.export(OPERATOR, tmp_path / "c", format="c")
    assert {"main.c", "op.h", "op.o", "libop.so", "test_vector.bin", "op.json"} == set(done.files)
    assert "compiled by" in done.checked and done.max_abs_err < 1e-4
    # What the header promises works from a program of the user's own, in C++ as well.
    for compiler, name in (("cc", "own.c"), ("c++", "own.cpp")):
        if shutil.which(compiler) is None:
            continue
        (done.path / name).write_text(
            '#include <stdio.h>\n#include "op.h"\n'
            "static float x[140], k[216], y[210];\n"
            "int main(void) { for (int i = 0; i < 140; ++i) x[i] = 1; for (int i = 0; i < 216; ++i) k[i] = 1;\n"
            '  if (syno_op(x, k, y)) return 1; printf("%g %g\\n", y[0], y[6]); return 0; }\n'
        )
        subprocess.run([compiler, name, "op.o", "-o", "own"], cwd=done.path, check=True)
        text = subprocess.run(["./own"], cwd=done.path, capture_output=True, text=True, check=True)
        assert text.stdout.split() == [
            "16",
            "36",
        ]  # 4 taps x 4 channels in the corner, 9 x 4 inside


@needs_compiler
def test_a_c_export_of_bfloat16_brings_its_conversions(tmp_path):
    done = syno.export(OPERATOR, tmp_path / "c", format="c", dtype="bfloat16")
    assert "compiled by" in done.checked
    assert "int syno_op(const uint16_t* x, const uint16_t* k, uint16_t* y)" in (
        done.path / "op.h"
    ).read_text("utf-8")
    for compiler, name in (("cc", "own.c"), ("c++", "own.cpp")):
        if shutil.which(compiler) is None:
            continue
        (done.path / name).write_text(
            '#include <stdio.h>\n#include "op.h"\n'
            "static uint16_t x[140], k[216], y[210];\n"
            "int main(void) { for (int i = 0; i < 140; ++i) x[i] = syno_to_bfloat16(0.1f);\n"
            "  for (int i = 0; i < 216; ++i) k[i] = syno_to_bfloat16(1);\n"
            "  if (syno_op(x, k, y)) return 1;\n"
            '  printf("%g %g\\n", syno_from_bfloat16(y[0]), syno_from_bfloat16(y[6])); return 0; }\n'
        )
        subprocess.run([compiler, "-Wall", name, "op.o", "-o", "own"], cwd=done.path, check=True)
        text = subprocess.run(["./own"], cwd=done.path, capture_output=True, text=True, check=True)
        tenth = np.float32(0.1).astype(DTYPES["bfloat16"]).astype(np.float32)
        expected = [(n * tenth).astype(DTYPES["bfloat16"]) for n in (16, 36)]
        assert [float(v) for v in text.stdout.split()] == pytest.approx(
            [float(v) for v in expected], rel=1e-5
        )


@needs_compiler
@pytest.mark.parametrize("dtype", [pytest.param("float64", marks=pytest.mark.nightly), "bfloat16"])
def test_a_torch_bundle_keeps_the_dtype(tmp_path, dtype):
    done = syno.export(OPERATOR, tmp_path / "operator", dtype=dtype)
    manifest = json.loads((done.path / "manifest.json").read_text("utf-8"))
    assert [kernel["dtype"] for kernel in manifest["kernels"]] == [dtype]
    model, _, x = network()
    to = getattr(torch, dtype)
    done = syno.export(model.to(to), tmp_path / "model", example=x.to(to))
    assert "without syno" in done.checked
    manifest = json.loads((done.path / "manifest.json").read_text("utf-8"))
    assert [kernel["dtype"] for kernel in manifest["kernels"]] == [dtype]


def test_dtypes_that_cannot_be_exported_get_a_sentence(tmp_path):
    with pytest.raises(UnknownName, match="bfloat16"):
        syno.export(OPERATOR, tmp_path / "a", dtype="int8")
    model, _, x = network()
    with pytest.raises(FormatError, match="a module is exported as it is"):
        syno.export(model, tmp_path / "a", example=x, dtype="bfloat16")
    with pytest.raises(FormatError, match="few ONNX operations in bfloat16"):
        syno.export(OPERATOR, tmp_path / "a", format="onnx", dtype="bfloat16")
    assert list(tmp_path.iterdir()) == []


@needs_compiler
def test_a_wrong_c_export_is_not_kept(tmp_path, monkeypatch):
    import syno.export.c_source as c_source

    original = c_source._write_vector

    def tampering(operator, kernel, path):
        result = original(operator, kernel, path)
        data = np.fromfile(path, np.float32)
        data[-1] += 1
        data.tofile(path)
        return result

    monkeypatch.setattr(c_source, "_write_vector", tampering)
    with pytest.raises(FormatError, match="disagrees: max_abs_err"):
        syno.export(OPERATOR, tmp_path / "c", format="c")
    assert list(tmp_path.iterdir()) == []


def test_c_export_without_a_compiler_checks_the_kernel_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(linking, "c_compiler", lambda: None)
    done = syno.export(OPERATOR, tmp_path / "c", format="c")
    assert "no C compiler" in done.checked
    assert "libop.so" not in done.files


@needs_compiler
@pytest.mark.parametrize("what", ["operator", "model"])
def test_a_torch_bundle_runs_without_syno(tmp_path, what):
    if what == "operator":
        exported, x = OPERATOR, None
    else:
        exported, _, x = network()
    done = syno.export(exported, tmp_path / "bundle", example=x)
    assert {"loader.py", "manifest.json", "model.pt2", "weights.safetensors"} <= set(done.files)
    assert any(name.endswith(".so") for name in done.files)
    assert "without syno" in done.checked
    if what == "operator":
        return
    script = (
        "import sys; sys.modules['syno'] = None; sys.path.insert(0, sys.argv[1]); import loader, torch\n"
        "f = loader.load(); v = loader.read_safetensors(sys.argv[1] + '/test_vector.safetensors')\n"
        "f(v['input0'])\n"
        "try: f(v['input0'][:, :1])\n"
        "except Exception as e: print(type(e).__name__)\n"
        "assert not any(m.startswith('syno') and sys.modules[m] for m in sys.modules)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(done.path)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "Error" in run.stdout


@needs_compiler
@pytest.mark.parametrize(
    ("dtype", "format"),
    [
        (torch.float32, torch.channels_last),
        (torch.bfloat16, torch.contiguous_format),
        *(
            pytest.param(dtype, format, marks=pytest.mark.nightly)
            for dtype, format in [
                (torch.float32, torch.contiguous_format),
                (torch.bfloat16, torch.channels_last),
                (torch.float64, torch.contiguous_format),
                (torch.float64, torch.channels_last),
                (torch.float16, torch.contiguous_format),
                (torch.float16, torch.channels_last),
            ]
        ),
    ],
)
def test_a_bundle_keeps_dtypes_and_memory_formats(tmp_path, dtype, format):
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.op = Op(OPERATOR, dtype=dtype)

        def forward(self, x):
            y = self.op(x).permute(0, 2, 3, 1)
            return y.reshape(-1, 6) + 1 if format == torch.contiguous_format else y.view(-1, 6) + 1

    x = torch.randn(1, 4, 7, 5, dtype=dtype).to(memory_format=format)
    done = syno.export(Flat(), tmp_path / "bundle", example=x)
    kernels = json.loads((done.path / "manifest.json").read_text())["kernels"]
    taken = torch.float32 if dtype == torch.float16 else dtype
    assert [k["dtype"] for k in kernels] == [str(taken).removeprefix("torch.")]
    assert done.max_abs_err <= 32 * torch.finfo(dtype).eps


@needs_compiler
@pytest.mark.parametrize("format", ["torch", "c", "safetensors"])
def test_a_full_disk_gets_a_sentence_and_nothing_is_left(tmp_path, format):
    # Files of this process may not become larger than this, as on a disk that is full.
    script = (
        "import resource, signal, sys, syno, syno.export\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "op = syno.Operator.parse('y[m,n] = sum[k] a[m,k] * b[k,n]', m=9, n=130, k=120)\n"
        "op.compile()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try: syno.export(op, sys.argv[1], format=sys.argv[2])\n"
        "except syno.SynoError as error: print(type(error).__name__, error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "out"), format],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("FormatError [export]"), run.stdout + run.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_without_a_compiler_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(linking, "c_compiler", lambda: None)
    with pytest.raises(FormatError, match="apt-get install gcc"):
        syno.export(OPERATOR, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_onnx_holds_the_operator_as_a_function(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    model, _, x = network()
    done = syno.export(model, tmp_path / "onnx", format="onnx", example=x)
    proto = onnx.load(done.path / "model.onnx")
    assert [f.domain for f in proto.functions] == ["ai.syno"]
    assert sum(node.domain == "ai.syno" for node in proto.graph.node) == 1
    assert all(node.domain == "" for node in proto.functions[0].node)
    onnx.checker.check_model(proto)
    done = syno.export(OPERATOR, tmp_path / "one", format="onnx")
    assert done.max_abs_err < 1e-4


def test_safetensors_bring_weights_and_operators_back(tmp_path):
    model, original, x = network()
    done = syno.export(model, tmp_path / "st", format="safetensors", example=x)
    assert done.max_abs_err == 0
    loaded = load_safetensors(done.path / "model.safetensors", original)
    assert isinstance(loaded[2], Op)
    assert loaded[2].operator == model[2].operator
    torch.testing.assert_close(loaded(x), model(x))


def test_damaged_safetensors_get_a_sentence(tmp_path):
    model, original, x = network()
    path = syno.export(model, tmp_path / "st", format="safetensors", example=x).path
    file = path / "model.safetensors"
    other = nn.Sequential(*(nn.Identity() for _ in range(5)))
    with pytest.raises(FormatError, match=r"another network|no place"):
        load_safetensors(file, other)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(FormatError, match="cannot be read"):
        load_safetensors(file, original)
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(1)}, file)
    with pytest.raises(FormatError, match="no syno model"):
        load_safetensors(file, original)
    header = json.dumps({"format": "syno-model", "version": 9})
    save_file({"a": torch.zeros(1)}, file, metadata={"syno": header})
    with pytest.raises(FormatError, match="version 9"):
        load_safetensors(file, original)


@pytest.mark.parametrize(
    ("what", "options", "error", "message"),
    [
        (OPERATOR, {"format": "zip"}, UnknownName, r"zip.*c, onnx, safetensors, torch"),
        (nn.Linear(2, 2), {}, ShapeError, "example=x"),
        (nn.Linear(2, 2), {"format": "c", "example": 1}, ShapeError, "holds no tensor"),
        (nn.Linear(2, 2), {"format": "torch", "example": (1, 2)}, ShapeError, "is a shape"),
        (nn.Linear(2, 2), {"format": "c", "example": torch.ones(1, 2)}, FormatError, "no operator"),
    ],
)
def test_wrong_requests_get_a_sentence(tmp_path, what, options, error, message):
    with pytest.raises(error, match=message):
        syno.export(what, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_use_is_not_touched(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(FormatError, match="not an empty directory"):
        syno.export(OPERATOR, tmp_path, format="safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    (tmp_path / "file").write_text("")
    with pytest.raises(FormatError, match="cannot be written"):
        syno.export(OPERATOR, tmp_path / "file" / "x", format="safetensors")


@needs_compiler
def test_a_bundle_says_what_it_is_for_and_refuses_the_rest(tmp_path):
    model, _, x = network()
    done = syno.export(model, tmp_path / "b", example=x)
    assert "float32 [2, 3, 6, 6] only, the batch included" in str(done)
    assert done.cpu in str(done) and done.to_dict()["cpu"] == done.cpu
    manifest = json.loads((done.path / "manifest.json").read_text("utf-8"))
    assert manifest["inputs"] == [
        {"dtype": "float32", "shape": [2, 3, 6, 6], "format": "contiguous_format"}
    ]
    assert manifest["cpu"]["name"] in done.cpu and "sse4_2" in manifest["cpu"]["needs"]
    script = (
        "import sys; sys.modules['syno'] = None; sys.path.insert(0, sys.argv[1]); import loader, torch, json, pathlib\n"
        "f = loader.load(); f(torch.zeros(2, 3, 6, 6))\n"
        "for x in (torch.zeros(5, 3, 6, 6), torch.zeros(2, 3, 6, 6).double(), torch.zeros(2, 3)):\n"
        "    try: f(x)\n"
        "    except ValueError as e: print(e)\n"
        "m = json.loads((loader.HERE / 'manifest.json').read_text()); m['cpu']['needs'].append('avx9')\n"
        "(loader.HERE / 'manifest.json').write_text(json.dumps(m))\n"
        "try: loader.load()\n"
        "except RuntimeError as e: print(e)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(done.path)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 4
    assert all("float32 [2, 3, 6, 6] only, the batch included" in line for line in lines[:3])
    assert "float32 [5, 3, 6, 6]" in lines[0] and "float64" in lines[1]
    assert "machine code" in lines[3] and "has no avx9" in lines[3]


class Branches(nn.Module):
    """Two inputs, one by name, and a number."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.op = Op(OPERATOR)

    def forward(self, x, times=1, shift=None):
        y = self.op(x) * times
        return y if shift is None else (y + shift, y)


@needs_compiler
@pytest.mark.parametrize("format", ["torch", "c", "onnx", "safetensors"])
def test_inputs_of_any_structure_are_exported(tmp_path, format):
    if format == "onnx":
        pytest.importorskip("onnxscript")
    x = torch.randn(1, 4, 7, 5)
    example = (
        {"x": x, "shift": torch.ones(1)}
        if format != "torch"
        else {"x": x, "times": 3, "shift": torch.ones(1)}
    )
    done = syno.export(Branches(), tmp_path / "out", format=format, example=example)
    assert done.max_abs_err < 1e-3 and "the model Branches" in str(done)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names of x86-64")
def test_a_bundle_for_a_named_cpu_says_what_it_needs(monkeypatch):
    monkeypatch.setenv("SYNO_CPU", "x86-64-v3")
    assert {"avx2", "fma", "bmi2"} <= set(linking.instructions())
    assert "avx512f" not in linking.instructions()
