"""Compiled networks as C: what the program computes is what Python does, and what it refuses."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_network_bundle import MODELS, compiled, sealed
from typer.testing import CliRunner

import syno
from syno.cli.main import app
from syno.errors import ArgumentError, FormatError
from syno.export import network_c
from syno.export.linking import c_compiler
from syno.graph import bundle
from syno.graph.building import DTYPES, Builder
from syno.graph.compile import compile_network

pytestmark = pytest.mark.skipif(c_compiler() is None, reason="no C compiler")

STRICT = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Werror"]
OTHER_FILE, OTHER_CPU, BAD_INDEX = 2, 3, 5


def compiler(*arguments: str, folder: Path) -> str:
    done = subprocess.run(
        [str(c_compiler()), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


class Shared:
    """The C program as a library in this process."""

    def __init__(self, folder: Path, network: Any) -> None:
        compiler(
            *STRICT, "-O1", "-shared", "-fPIC", "network.c", network_c.LIBRARY, "-o", "network.so", folder=folder
        )  # fmt: skip
        self.library = ctypes.CDLL(str(folder / "network.so"))
        self.library.syno_message.restype = ctypes.c_char_p
        self.network = network
        self.handle = ctypes.c_void_p()
        weights = str(folder / "weights.bin").encode()
        assert self.library.syno_open(weights, ctypes.byref(self.handle)) == 0

    def __call__(self, inputs: list[Any]) -> tuple[int, list[Any]]:
        held = [np.ascontiguousarray(array) for array in inputs]
        made = [np.empty(s, DTYPES[d]) for s, d in self.network.outputs.values()]
        given = (ctypes.c_void_p * (len(held) + 1))(*[each.ctypes.data for each in held])
        results = (ctypes.c_void_p * (len(made) + 1))(*[each.ctypes.data for each in made])
        return self.library.syno_run(self.handle, given, results, None), made


@pytest.mark.parametrize("name", MODELS)
def test_a_program_computes_what_the_network_does(name: str, tmp_path: Path) -> None:
    fast, example = compiled(name)
    written = syno.export(fast, tmp_path / "c", format="c", example=example)
    assert (
        written.format == "c" and "main.c" in written.checked and network_c.LIBRARY in written.files
    )
    folder = tmp_path / "c"
    for source in ([network_c.LIBRARY], ["network.c", network_c.LIBRARY]):
        compiler(*STRICT, "-O2", "main.c", *source, "-lm", "-o", "main", folder=folder)
        done = subprocess.run(["./main"], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("max_abs_err") == len(fast.network.outputs) + 1
    shared = Shared(folder, fast.network)
    for seed in range(3):
        inputs = fast.network.example(seed)
        status, made = shared(inputs)
        assert status == 0
        for ours, theirs in zip(made, fast.network.run(inputs), strict=True):
            assert ours.tobytes() == theirs.tobytes()


def test_the_header_names_inputs_and_is_cplusplus_too(tmp_path: Path) -> None:
    fast, _ = compiled("branches")
    syno.export(fast, tmp_path / "c", format="c")
    folder = tmp_path / "c"
    if shutil.which("g++"):
        (folder / "of.cpp").write_text(
            '#include "network.h"\nint main() { return SYNO_INPUTS - 3; }\n'
        )
        done = subprocess.run(["g++", "-Wall", "-Wextra", "-Werror", "-pedantic", "of.cpp"], cwd=folder, check=False)  # fmt: skip
        assert done.returncode == 0
    shared = Shared(folder, fast.network).library
    names = list(fast.network.inputs)
    assert [shared.syno_input_named(name.encode()) for name in names] == list(range(len(names)))
    assert shared.syno_input_named(b"nothing") == -1 and shared.syno_output_named(b"") == -1


SPECIAL = {
    "f": [0.0, -0.0, 0.5, -1.5, 2.5, 127.5, -128.5, 255.9, 300.0, -40000.0, 70000.0, 3e9, -3e9, 1e19, -1e19, 1e-8,
          6e-8, 65519.0, 65520.0, 1e38, np.inf, -np.inf, np.nan],
    "i": [0, 1, -1, 2, 127, -128, 128, 255, 256, -129, 32767, 32768, 65535, 2**31 - 1, 2**31, -(2**31), 2**53 + 1,
          2**63 - 1, -(2**63), 5, 6, 7, 8],
}  # fmt: skip


def test_functions_of_the_engine_compute_the_same_for_every_type(tmp_path: Path) -> None:
    """Casts between all pairs of types, the greatest of each, rows from both ends: on numbers at all edges."""
    count = len(SPECIAL["f"])
    build = Builder("types")
    given = {name: build.input(f"of {name}?", (count,), name) for name in DTYPES}
    indices = {name: build.input(name, (3,), name) for name in ("int32", "int64")}
    outputs = []
    for name, value in given.items():
        outputs += [build.cast(value, other) for other in DTYPES if other != name]
        for axis in ("null", "-1"):
            shape = () if axis == "null" else (1,)
            keep = "false" if axis == "null" else "true"
            attributes = f'{{"axis": {axis}, "keepdim": {keep}}}'
            outputs += build.call("argmax", [value], [(shape, "int64")], attributes=attributes)
    for negative in ("true", "false"):
        for index in indices.values():
            attributes = f'{{"negative": {negative}}}'
            kind = [((3,), "float32")]
            outputs += build.call("gather", [given["float32"], index], kind, attributes=attributes)
    for name in DTYPES:
        for reduce in ("set", "add", "mul", "max", "min") if name != "bool" else ("set",):
            index = indices["int32" if reduce in ("add", "set") else "int64"]
            rows_of = build.call(
                "gather", [given[name], index], [((3,), name)], attributes='{"negative": true}'
            )
            attributes = f'{{"negative": true, "reduce": "{reduce}"}}'
            kind = [((count,), name)]
            outputs += build.call(
                "scatter", [given[name], index, *rows_of], kind, attributes=attributes
            )
    # PyTorch agrees where no number is at an edge.
    plain = [
        np.arange(count) == 4 if n == "bool" else np.arange(count).astype(DTYPES[n]) for n in DTYPES
    ]
    plain += [np.array([0, 22, 5], name) for name in indices]
    network, _ = compile_network(build.network(outputs), plain)
    syno.export(network, tmp_path / "net.syno", example=plain)
    loaded = syno.load(tmp_path / "net.syno")
    syno.export(loaded, tmp_path / "c", format="c")
    shared = Shared(tmp_path / "c", loaded)
    rows: list[Any] = []
    for name in DTYPES:
        kind = "f" if name.endswith(("32", "64", "16")) and "int" not in name else "i"
        with np.errstate(all="ignore"):
            if name == "bool":
                rows.append(np.arange(count) % 3 == 1)
            elif kind == "f":
                rows.append(np.array(SPECIAL["f"]).astype(DTYPES[name]))
            else:
                bits = 8 * DTYPES[name].itemsize
                whole = np.array([v % 2**bits for v in SPECIAL["i"]], np.uint64)
                rows.append(whole.astype(f"uint{bits}").view(DTYPES[name]))
    picked = [np.array([0, 22, 5]), np.array([-1, 0, -23])]
    for chosen, fails in ((picked[0], False), (picked[1], True)):
        inputs = [*rows, chosen.astype(np.int32), chosen.astype(np.int64)]
        status, made = shared(inputs)
        assert status == (BAD_INDEX if fails else 0)
        if fails:
            assert b"row" in shared.library.syno_message(status)
            continue
        for (name, _), ours, theirs in zip(
            loaded.outputs.items(), made, loaded.run(inputs), strict=True
        ):
            if ours.dtype.kind not in "biu":
                ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
            assert np.array_equal(ours, theirs, equal_nan=ours.dtype.kind == "f"), name


def test_rows_elements_and_samples_are_those_of_the_engine(tmp_path: Path) -> None:
    """Of any dimension, along any axis, and between elements."""
    build = Builder("picked")
    x, picture = build.input("x", (3, 4, 5)), build.input("picture", (2, 3, 5, 4))
    rows, along = build.input("rows", (2, 3), "int64"), build.input("along", (2, 6, 5), "int32")
    grid = build.input("grid", (2, 7, 3, 2))
    outputs = []
    for dim in range(3):
        shape = [*x.shape[:dim], 2, 3, *x.shape[dim + 1 :]]
        said = json.dumps({"dim": dim, "negative": True})
        outputs += build.call("gather", [x, rows], [(shape, "float32")], attributes=said)
    said = json.dumps({"axis": 1, "negative": True})
    outputs += build.call("gather", [x, along], [(along.shape, "float32")], attributes=said)
    for mode in ("nearest", "bilinear", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for align in (False, True):
                said = json.dumps({"mode": mode, "padding": padding, "align": align})
                made = [((2, 3, 7, 3), "float32")]
                outputs += build.call("sample", [picture, grid], made, attributes=said)
    rng = np.random.default_rng(0)
    given = [
        rng.standard_normal((3, 4, 5)).astype(np.float32),
        rng.standard_normal((2, 3, 5, 4)).astype(np.float32),
        rng.integers(-3, 3, (2, 3)),
        rng.integers(-4, 4, (2, 6, 5)).astype(np.int32),
        rng.uniform(-1.6, 1.6, (2, 7, 3, 2)).astype(np.float32),
    ]
    network, _ = compile_network(build.network(outputs), given)
    syno.export(network, tmp_path / "net.syno", example=given)
    loaded = syno.load(tmp_path / "net.syno")
    syno.export(loaded, tmp_path / "c", format="c")
    shared = Shared(tmp_path / "c", loaded)
    status, made = shared(given)
    assert status == 0
    for ours, theirs in zip(made, loaded.run(given), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    given[2][0, 0] = 5
    assert shared(given)[0] == BAD_INDEX


def test_functions_without_a_form_in_c_are_named(tmp_path: Path) -> None:
    build = Builder("running")
    x = build.input("x", (3, 4))
    made = build.call("scan", [x], [((3, 4), "float32")], attributes='{"axis": 1}')
    example = [np.ones((3, 4), np.float32)]
    network, _ = compile_network(build.network(made), example)
    syno.export(network, tmp_path / "net.syno", example=example)
    with pytest.raises(FormatError, match="scan has no form in C"):
        syno.export(syno.load(tmp_path / "net.syno"), tmp_path / "c", format="c")


def test_other_weights_are_refused(tmp_path: Path) -> None:
    for name in ("doubles", "attending"):
        syno.export(compiled(name)[0], tmp_path / name, format="c")
    folder = tmp_path / "doubles"
    compiler("main.c", network_c.LIBRARY, "-lm", "-o", "main", folder=folder)
    own = (folder / "weights.bin").read_bytes()
    other = (tmp_path / "attending" / "weights.bin").read_bytes()
    for content, words in [
        (other, "not the one"),
        (own[:-1], "not the one"),
        (b"", "not the one"),
        (b"x" + own[1:], "not the one"),
        (own[:64] + own[72:80] + own[64:72] + own[80:], "damaged"),
        *(
            (own[:at] + bytes([own[at] ^ 1 << bit]) + own[at + 1 :], "damaged")
            for at, bit in ((64, 0), (71, 7), (len(own) // 2, 3), (len(own) - 1, 7))
        ),
        (None, "cannot be read"),
    ]:
        (folder / "weights.bin").unlink(missing_ok=True)
        if content is not None:
            (folder / "weights.bin").write_bytes(content)
        done = subprocess.run(["./main"], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and words in done.stderr


def test_another_cpu_is_refused_by_the_program(tmp_path: Path) -> None:
    syno.export(compiled("doubles")[0], tmp_path / "net.syno")
    made_for = bundle.read_manifest(tmp_path / "net.syno").made_for
    missing = sorted(network_c._SUPPORTED - set(made_for.needs))
    if not made_for.triple.startswith("x86_64") or not missing:
        pytest.skip("this CPU has all that is asked for")
    syno.export(syno.load(tmp_path / "net.syno"), tmp_path / "c", format="c")
    folder = tmp_path / "c"
    check, _ = network_c.cpu_check(
        bundle.MadeFor(made_for.triple, "", made_for.vector_bits, 0, missing[:1])
    )
    text = (folder / "network.c").read_text()
    own, _ = network_c.cpu_check(made_for)
    assert own in text
    (folder / "network.c").write_text(text.replace(own, check))
    compiler("main.c", "network.c", network_c.LIBRARY, "-lm", "-o", "main", folder=folder)
    done = subprocess.run(["./main"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "this CPU has not the instructions" in done.stderr


def test_odd_names_are_no_c(tmp_path: Path) -> None:
    build = Builder('a */ "name" \\ %s ??/')
    value = build.input('x"; system("true"); //', (2,), "float32")
    network, _ = compile_network(
        build.network(list(build.call("copy", [value], [((2,), "float32")], name="*/ é\n")))
    )
    syno.export(network, tmp_path / "c", format="c", about="*/ #error")
    shared = Shared(tmp_path / "c", network)
    assert shared.library.syno_input_named(b'x"; system("true"); //') == 0
    status, made = shared([np.array([1, 2], np.float32)])
    assert status == 0 and made[0].tolist() == [1, 2]


# On the command line


def test_compile_explain_and_export_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "made_model.py").write_text(
        "import torch\ndef make():\n    torch.manual_seed(0)\n    return torch.nn.Linear(3, 4)\n"
    )
    net, run = tmp_path / "net.syno", CliRunner()
    model = f"{tmp_path / 'made_model.py'}:make"
    done = run.invoke(app, ["compile", model, "--example", "2,3", "-o", str(net), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["exported"]["path"] == str(net)
    again = run.invoke(app, ["compile", model, "--example", "2,3", "-o", str(net)])
    assert again.exit_code == 2 and "not an empty" in " ".join(again.output.split())
    done = run.invoke(app, ["explain", str(net)])
    assert done.exit_code == 0 and "machine code for" in done.output and "kernel" in done.output
    facts = json.loads(run.invoke(app, ["explain", str(net), "--json"]).stdout)
    assert facts["inputs"] and facts["vector_bits"] and facts["cpu"]
    # What another CPU needs is shown, too, and nothing of it is run.
    shutil.copytree(net, tmp_path / "other")
    sealed(tmp_path / "other", lambda m: m["made_for"].update(name="odd", needs=["avx512odd"]))
    assert "odd" in run.invoke(app, ["explain", str(tmp_path / "other")]).output
    done = run.invoke(app, ["export", str(net), "--format", "c", "-o", str(tmp_path / "c")])
    assert done.exit_code == 0 and (tmp_path / "c" / "network.h").is_file(), done.output
    with torch.no_grad():
        x = torch.ones(2, 3)
        torch.manual_seed(0)
        torch.testing.assert_close(syno.load(net)(x), torch.nn.Linear(3, 4)(x))
    for arguments, words in [
        ([str(net), "--format", "onnx"], "Valid: bundle, c"),
        ([str(net), "--format", "bundle"], "bundle already"),
        ([str(net), "--format", "c", "--seed", "1"], "--seed is of a session"),
        ([str(tmp_path), "--format", "c"], "no candidate is named"),
    ]:
        done = run.invoke(app, ["export", *arguments, "-o", str(tmp_path / "d")])
        assert done.exit_code != 0 and words in " ".join(done.output.split()), done.output
        assert not (tmp_path / "d").exists()


def test_what_cannot_be_exported_is_said(tmp_path: Path) -> None:
    fast, _ = compiled("doubles")
    for what, format, words in [
        (fast, "bundle", "compile and export it there"),
        (fast, "c", "there"),
    ]:
        with pytest.raises(FormatError, match=words):
            syno.export(what, tmp_path / "n", format=format, target="aarch64-linux-gnu")
    operator = syno.Operator.parse("y[i] = 2 * x[i]", i=4)
    with pytest.raises(FormatError, match="no network"):
        syno.export(operator, tmp_path / "n", format="bundle")
    with pytest.raises(ArgumentError):
        syno.load(3)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
