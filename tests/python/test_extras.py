"""Extras are complete: what each is named for runs where nothing else is installed.

Here everything else is *hidden* from one process; `scripts/test extras` installs each extra alone and runs the same programs.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from extra_commands import HERE, PROGRAMS
from packaging.requirements import Requirement
from patience import PATIENCE_S

import syno

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
#: Groups of others, whose parts are tested.
GROUPS = {"all", "test"}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(requirements: list[str], seen: set[str]) -> set[str]:
    """The distributions that requirements bring, with all that those require; PackageNotFoundError names one that is absent."""
    for text in requirements:
        wanted = Requirement(text)
        if wanted.name == "syno":
            for extra in wanted.extras:
                needed(EXTRAS[extra], seen)
            continue
        extras = {"extra": ""} if not wanted.extras else {}
        if wanted.marker and not wanted.marker.evaluate({"extra": "", **extras}):
            continue
        key = plain(wanted.name)
        if key in seen and not wanted.extras:
            continue
        seen.add(key)
        of_it = importlib.metadata.requires(wanted.name) or []
        for each in of_it:
            marker = Requirement(each).marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in (*wanted.extras, "")):
                needed([each.split(";")[0].strip()], seen)
    return seen


def hidden(extra: str) -> list[str]:
    """Modules that are installed here and would not be with this extra alone."""
    allowed = needed(PROJECT["dependencies"], set()) | needed(EXTRAS.get(extra, []), set())
    found = importlib.metadata.packages_distributions()
    return sorted(
        module
        for module, owners in found.items()
        if module != "syno" and not any(plain(owner) in allowed for owner in owners)
    )


HIDE = """
import sys, sysconfig
SITES = tuple(sysconfig.get_path(kind) + "/" for kind in ("purelib", "platlib"))
class Hiding:
    names = frozenset({names})
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        found = self.finder.find_spec(name, path, target)
        if found is None or name.partition(".")[0] not in self.names:
            return found
        where = found.origin or next(iter(found.submodule_search_locations or [""]))
        # What a package of the extra carries inside itself stays.
        return None if any(where.startswith(site + name.partition(".")[0]) for site in SITES) else found
sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
"""


def run_alone(extra: str, program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    names = [n for n in hidden(extra) if n not in sys.stdlib_module_names]
    return subprocess.run(
        [sys.executable, "-c", HIDE.format(names=json.dumps(names)) + program],
        cwd=folder,
        env={
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": f"{Path(syno.__file__).parents[1]}:{HERE}",
            "HOME": str(folder),
            "SYNO_CACHE": "",
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_every_extra_has_a_program() -> None:
    assert set(PROGRAMS) == {"", *EXTRAS} - GROUPS


def test_the_documentation_lists_every_extra() -> None:
    page = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    table = "".join(re.findall(r"^\| (`[^|]*)\|", page, re.MULTILINE))
    assert set(re.findall(r"`([a-z]+)`", table)) == set(EXTRAS) - {"test"}


@pytest.mark.parametrize(
    "extra",
    [e if e == "torch" else pytest.param(e, marks=pytest.mark.nightly) for e in sorted(PROGRAMS)],
)
def test_an_extra_alone_does_what_it_is_named_for(extra: str, tmp_path: Path) -> None:
    try:
        hidden(extra)
    except importlib.metadata.PackageNotFoundError as absent:
        pytest.skip(f"{absent.name} is not installed here")
    done = run_alone(extra, PROGRAMS[extra], tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]


def test_an_extra_that_lacks_something_is_noticed(tmp_path: Path) -> None:
    done = run_alone("", PROGRAMS["plot"], tmp_path)
    assert done.returncode == 1 and "syno[plot]" in done.stderr
    done = run_alone("plot", PROGRAMS["table"], tmp_path)
    assert done.returncode == 1 and "pandas" in done.stderr


def test_what_is_found_by_cmake_is_used() -> None:
    text = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "CMakeLists.txt", *sorted((ROOT / "cmake").glob("*.cmake")))
    )
    packages = set(re.findall(r"find_package\((\w+)", text))
    included = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "cpp").rglob("*.[ch]pp")
    )
    headers = {
        "nlohmann_json": "nlohmann/",
        "fmt": "fmt/",
        "LLVM": "llvm/",
        "pybind11": "pybind11/",
    }
    assert packages == {*headers, "Threads", "GTest", "Python"}
    assert all(f"#include <{header}" in included for header in headers.values())
    assert (
        "eigen" not in text.lower() and "Eigen" not in included
    )  # docs/concepts/design_notes.md says why
