"""`import syno` in a folder of sources gives the installed package, or says what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

import syno
from syno import _checkout, _core

ROOT = Path(__file__).resolve().parents[2]


def copied(target: Path, *, engine: bool) -> Path:
    """A `syno` package under `target`, with the engine or without."""
    package = Path(syno.__file__).parent
    skipped = shutil.ignore_patterns("_core*.so", "__pycache__")
    shutil.copytree(package, target / "syno", ignore=skipped)
    if engine:
        built = Path(str(_core.__file__))
        (target / "syno" / built.name).symlink_to(built)
    return target


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout in which nothing was built."""
    root = copied(tmp_path / "clone", engine=False)
    (root / "cpp" / "bindings").mkdir(parents=True)
    (root / "CMakeLists.txt").touch()
    return root


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """What an installation leaves."""
    return copied(tmp_path / "site", engine=True)


def python(
    *arguments: str, cwd: Path, path: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


WHERE = "import syno, syno.operators.operator, syno._core; print(*(m.__file__ for m in (syno, syno.operators.operator, syno._core)))"


@pytest.mark.parametrize(
    "code",
    [
        WHERE,
        "from syno.operators.operator import Operator; " + WHERE,
        "import syno.cli.main; " + WHERE,
        "import sys; sys.path[:0] = ['']; " + WHERE,  # twice on the path
    ],
)
def test_the_installed_package_is_imported_in_the_clones_root(
    clone: Path, site: Path, code: str
) -> None:
    done = python("-c", code, cwd=clone, path=site)
    assert done.returncode == 0, done.stderr
    for file in done.stdout.split():
        assert Path(file).is_relative_to(site), file


def test_the_command_runs_as_a_module_in_the_clones_root(clone: Path, site: Path) -> None:
    done = python("-m", "syno", "--version", cwd=clone, path=site)
    assert done.returncode == 0, done.stderr
    assert syno.__version__ in done.stdout


def test_sources_that_differ_from_what_is_installed_are_named(clone: Path, site: Path) -> None:
    with (clone / "syno" / "kernel.py").open("a") as file:
        file.write("\nNEW = 1\n")
    done = python("-c", "import syno", cwd=clone, path=site)
    assert done.returncode == 0, done.stderr
    assert f"the sources in {clone} differ from it and are not used" in done.stderr
    assert "pip install ." in done.stderr


def test_without_an_installed_package_a_sentence_says_what_to_do(clone: Path) -> None:
    done = python("-S", "-c", "import syno", cwd=clone)
    assert done.returncode == 1
    assert "holds sources only" in done.stderr and "scripts/setup" in done.stderr
    (clone / "syno" / "_core.cpython-27-x86_64-linux-gnu.so").touch()
    done = python("-S", "-c", "import syno", cwd=clone)
    assert "_core.cpython-27-x86_64-linux-gnu.so" in done.stderr
    assert sys.implementation.cache_tag in done.stderr


def test_an_engine_of_other_sources_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checkout, "is_checkout", lambda: True)
    monkeypatch.setattr(_checkout, "ROOT", ROOT)
    monkeypatch.setattr(
        _core, "source_digest", lambda: _checkout.source_digest(ROOT), raising=False
    )
    _checkout.check()
    monkeypatch.setattr(_core, "source_digest", lambda: "of other sources")
    with pytest.warns(RuntimeWarning, match="built from other C"):
        _checkout.check()


def test_both_halves_make_the_same_digest(tmp_path: Path) -> None:
    cmake = shutil.which("cmake") or shutil.which("cmake", path=Path(sys.executable).parent)
    if cmake is None:
        pytest.skip("needs cmake")
    for name, content in {
        "b.cpp": "int x;",
        "a/b.hpp": "",
        "a/c.hpp": "// c",
        "n.txt": "no",
    }.items():
        (tmp_path / "cpp" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cpp" / name).write_text(content)
    header, script = tmp_path / "digest.hpp", ROOT / "cmake" / "source_digest.cmake"
    for root in (tmp_path, ROOT):
        command = [cmake, f"-DROOT={root}", f"-DOUTPUT={header}", "-P", str(script)]
        subprocess.run(command, check=True, timeout=PATIENCE_S)
        assert f'"{_checkout.source_digest(root)}"' in header.read_text()


def test_an_engine_without_a_digest_is_an_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checkout, "is_checkout", lambda: True)
    monkeypatch.setattr(_checkout, "ROOT", ROOT)
    monkeypatch.delattr(_core, "source_digest", raising=False)
    with pytest.warns(RuntimeWarning, match="build it again"):
        _checkout.check()


@pytest.mark.parametrize("arguments", [["tune", "y[i] = x[i]", "-s", "i=3"], ["doctor"]])
def test_a_command_with_another_versions_engine_says_so(
    arguments: list[str], tmp_path: Path
) -> None:
    code = (
        "import sys, syno._core as engine; del engine.LoopCode; "
        "from syno.cli.main import main; sys.argv[1:] = " + repr(arguments) + "; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "engine is of another version" in done.stderr and "build it again" in done.stderr
    assert "Traceback" not in done.stderr
