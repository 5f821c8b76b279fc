"""What comes with the package: licences of all that is in it, and extras that have what they are named for."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
from patience import PATIENCE_S

from syno import _core

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SYSTEM_LIBRARIES = ("libc.so", "libm.so", "libstdc++.so", "libgcc_s.so", "ld-linux")
STANDARD_HEADERS = re.compile(r"[a-z_0-9]+|sys/[a-z_0-9]+\.h|[a-z_0-9]+\.h")


@pytest.fixture(scope="module")
def third_party() -> ModuleType:
    loader = SourceFileLoader("third_party", str(ROOT / "scripts" / "third_party"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def test_the_licence_is_named_where_people_and_tools_look() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text and "END OF TERMS AND CONDITIONS" in text
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["license-files"] == ["LICENSE", "THIRD_PARTY"]
    assert "LICENSE" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_third_party_is_what_its_script_writes() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "third_party"), "--check"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr


def test_every_foreign_header_is_of_a_third_party(third_party: ModuleType) -> None:
    known = ("pybind11/", *(h for c in third_party.COMPONENTS for h in c.headers))
    for path in (ROOT / "cpp").rglob("*.[ch]pp"):
        for name in re.findall(r"#include <([^>]+)>", path.read_text(encoding="utf-8")):
            if name.startswith(known):
                continue
            assert STANDARD_HEADERS.fullmatch(name) and name != "xxhash.h", (
                f"{path} includes {name}"
            )


def test_every_library_loaded_is_of_the_system_or_a_third_party(third_party: ModuleType) -> None:
    listing = subprocess.run(
        ["readelf", "-d", str(_core.__file__)], capture_output=True, text=True, check=True
    ).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", listing)
    known = (*SYSTEM_LIBRARIES, *(c.loaded for c in third_party.COMPONENTS if c.loaded))
    assert needed
    assert all(name.startswith(known) for name in needed), needed


# --- extras

#: Import -> the distribution that has it, where the names differ.
DISTRIBUTIONS = {"mlflow": "mlflow-skinny", "sklearn": "scikit-learn", "PIL": "pillow"}
#: What each extra is named for must be able to import.
PURPOSES = {
    "torch": {"torch", "safetensors"},
    "plot": {"matplotlib"},
    "table": {"pandas"},
    "tune": {"scikit-learn", "scipy", "networkx"},
    "images": {"torch", "safetensors", "pillow"},
    "onnx": {"torch", "onnx", "onnxscript", "onnxruntime"},
    "demo": {"torch", "safetensors", "matplotlib", "scikit-learn"},
    "ray": {"ray", "grpcio"},
    "slurm": {"submitit"},
    "notebook": {
        "torch",
        "safetensors",
        "matplotlib",
        "scikit-learn",
        "ipykernel",
        "nbclient",
        "jupytext",
    },
}


def required(extra: str) -> set[str]:
    """The distributions of an extra, those of the extras it names included."""
    found: set[str] = set()
    for requirement in PROJECT["optional-dependencies"][extra]:
        if own := re.fullmatch(r"syno\[(.*)\]", requirement):
            found |= {name for part in own[1].split(",") for name in required(part.strip())}
        else:
            found.add(re.split(r"[<>=;! \[]", requirement)[0].lower())
    return found


@pytest.mark.parametrize("extra", sorted(PURPOSES))
def test_an_extra_has_what_it_is_named_for(extra: str) -> None:
    assert required(extra) >= PURPOSES[extra]
    assert required("all") >= required(extra)


def test_every_package_that_is_imported_can_be_installed() -> None:
    core = {
        re.split(r"[<>=;! \[]", r)[0].lower().replace("_", "-") for r in PROJECT["dependencies"]
    }
    known = core | {name.replace("_", "-") for name in required("all")}
    files = [*(ROOT / "syno").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    own = {"syno", "loader"}  # the template of a bundle names itself
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                if top in sys.stdlib_module_names or top in own:
                    continue
                distribution = DISTRIBUTIONS.get(top, top).lower().replace("_", "-")
                # A notebook has the one, torch brings the other.
                allowed = known | {"ipython", "typing-extensions"}
                assert distribution in allowed, f"{path} imports {name}"
