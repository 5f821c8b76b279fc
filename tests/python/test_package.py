"""The package as installed: light imports, one exported symbol, stubs that match the extension."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

import syno
from syno import _core

HEAVY = ["torch", "matplotlib", "onnx", "sklearn", "pandas", "jinja2"]


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["syno", "syno.cli.main", "syno.session", "syno._core"])
def test_importing_does_not_load_heavy_packages(module: str) -> None:
    code = f"import {module}, sys, json; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(run_python(code)))
    assert not loaded & set(HEAVY)


def test_reading_a_session_loads_nothing_that_fills_one() -> None:
    """`syno status` begins in the time that its imports take."""
    code = "import syno.cli.inspect, sys, json; print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(run_python(code)))
    assert not loaded & set(HEAVY)
    rooms = {name.split(".")[1] for name in loaded if name.startswith("syno.")}
    assert not rooms & {
        "training",
        "searching",
        "executors",
        "torch",
        "graph",
        "tuning",
        "policies",
    }
    modules = ("session", "asking", "loop", "executors", "worker", "futures", "remote", "pruning")
    assert not loaded & {f"syno.session.{name}" for name in modules}


@pytest.mark.parametrize("package", ["syno.session", "syno.report"])
def test_names_that_are_imported_late_are_what_their_modules_have(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        found = getattr(module, name)
        assert found.__name__ == name and found.__module__.startswith(f"{package}.")
        assert vars(module)[name] is found  # looked up once
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Sesion'"):
        _ = module.Sesion
    late = run_python(f"from {package} import *; print(len(dir()))")
    assert int(late) >= len(module.__all__)


def test_every_public_name_resolves() -> None:
    for name in syno.__all__:
        assert getattr(syno, name) is not None
    assert syno.nn.Op is syno.torch.Op


def test_an_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(AttributeError, match=r"it has .*Operator"):
        _ = syno.Operater  # type: ignore[attr-defined]


def test_functions_stay_functions_after_their_neighbours_are_imported() -> None:
    code = (
        "import importlib, pkgutil, syno\n"
        "for m in pkgutil.iter_modules(syno.__path__):\n"
        "    if m.name not in ('__main__',): importlib.import_module('syno.' + m.name)\n"
        "assert callable(syno.bench) and callable(syno.export) and callable(syno.search)\n"
        "assert callable(syno.sites) and callable(syno.compile) and callable(syno.load)\n"
    )
    run_python(code)


def test_the_extension_exports_its_entry_and_what_debuggers_look_for() -> None:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", str(_core.__file__)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert sorted(line.split()[-1] for line in listing.splitlines()) == [
        "PyInit__core",
        "__jit_debug_descriptor",
        "__jit_debug_register_code",
    ]


def test_the_extension_needs_only_system_libraries() -> None:
    listing = subprocess.run(
        ["readelf", "-d", str(_core.__file__)], capture_output=True, text=True, check=True
    ).stdout
    needed = [line.split("[")[1].rstrip("]") for line in listing.splitlines() if "(NEEDED)" in line]
    assert not [name for name in needed if "LLVM" in name or "gomp" in name], needed


KERNEL = (
    "op = syno.Operator.parse('y[i,j] = sum[k] a[i,k] * b[k,j]', i=5, j=7, k=9);"
    "assert op.compile().verify();"
)


@pytest.mark.parametrize(
    "imports", ["import syno, torch", "import torch, syno", "import torch, onnxruntime, syno"]
)
def test_kernels_work_beside_torch_in_either_order(imports: str) -> None:
    run_python(
        f"{imports}; {KERNEL} torch.ones(3) @ torch.ones(3); "
        "torch.nn.functional.conv2d(torch.ones(1,1,4,4), torch.ones(1,1,3,3))"
    )


def test_help_loads_neither_torch_nor_the_engine() -> None:
    out = run_python(
        "import sys\nsys.argv = ['syno', '--help']\nfrom syno.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'numpy', 'syno._core', 'matplotlib'} & set(sys.modules)))"
    )
    assert out.rstrip().endswith("[]")
    for command in ("doctor", "demo", "sites", "search", "status", "show", "explain", "report"):
        assert command in out


def test_the_stubs_are_those_of_the_extension(tmp_path: Path) -> None:
    committed = Path(__file__).parents[2] / "syno" / "_core.pyi"
    subprocess.run(
        [sys.executable, "-m", "pybind11_stubgen", "syno._core", "-o", str(tmp_path)],
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    generated = (tmp_path / "syno" / "_core.pyi").read_text()
    assert generated == committed.read_text(), (
        "syno/_core.pyi differs from the extension; make it again with scripts/stubs"
    )
