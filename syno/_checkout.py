"""What ``import syno`` means in a folder of sources: the working directory comes first on Python's path.

A checkout holds the Python half of the package and, unless someone built it there, not the compiled engine. Then
the *installed* package is what was meant, both halves of one build, and :func:`hand_over` imports that. Where
the sources are used with an engine (built in place, or an editable install), :func:`check` compares it with them.
"""

from __future__ import annotations

import filecmp
import hashlib
import importlib.machinery
import importlib.util
import sys
import warnings
from pathlib import Path
from types import ModuleType

#: The package's folder, and what holds it: in a checkout the root, with the engine's sources beside.
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ENGINE = "syno._core"
AGAIN = "build it again: 'scripts/setup', or 'pip install .' in the sources' folder"


def is_checkout() -> bool:
    """Whether this package lies among its sources."""
    return (ROOT / "cpp" / "bindings").is_dir() and (ROOT / "CMakeLists.txt").is_file()


def installed() -> importlib.machinery.ModuleSpec | None:
    """The first package of this name elsewhere on Python's path that has an engine for this Python."""
    for entry in sys.path:
        if Path(entry or ".").resolve() == ROOT:
            continue
        spec = importlib.machinery.PathFinder.find_spec("syno", [entry])
        if spec is None or spec.loader is None or not spec.submodule_search_locations:
            continue
        if importlib.machinery.PathFinder.find_spec(ENGINE, spec.submodule_search_locations):
            return spec
    return None


def hand_over() -> ModuleType | None:
    """Puts the installed package in the place of this folder's; None where this folder has an engine.

    Raises:
        ImportError: there is no engine for this Python, here or installed.
    """
    if importlib.util.find_spec(ENGINE) is not None:
        return None
    spec = installed()
    if spec is None:
        others = sorted(path.name for path in HERE.glob("_core*.so"))
        raise ImportError(
            f"syno's engine is not built for this Python ({sys.implementation.cache_tag}, {sys.executable}): "
            + (f"{HERE} has {', '.join(others)}" if others else f"{HERE} holds sources only")
            + ". Run 'scripts/setup' and use .venv/bin/python, or 'pip install .' in the sources' folder"
        )
    module = importlib.util.module_from_spec(spec)
    # Python gives whoever imports what is found here in the end.
    sys.modules["syno"] = module
    del sys.modules[__name__]
    assert spec.loader is not None, "only packages with a loader are found"
    spec.loader.exec_module(module)
    if is_checkout() and spec.origin and _differs(Path(spec.origin).parent):
        warnings.warn(
            f"syno is imported from {Path(spec.origin).parent}; the sources in {ROOT} differ from it and are "
            "not used. To use them, run 'scripts/setup', or 'pip install .' in their folder",
            RuntimeWarning,
            stacklevel=2,
        )
    return module


def _differs(other: Path) -> bool:
    names = {path.relative_to(HERE) for path in HERE.rglob("*.py")}
    if names != {path.relative_to(other) for path in other.rglob("*.py")}:
        return True
    if any(not filecmp.cmp(HERE / name, other / name, shallow=False) for name in names):
        return True
    return _stale()


def _stale() -> bool:
    """Whether the engine was built from other C++ than lies here."""
    from syno import _core

    digest = getattr(_core, "source_digest", None)
    return digest is None or digest() != source_digest(ROOT)  # engines older than that have none


def source_digest(root: Path) -> str:
    """A digest of the engine's sources, as ``cmake/source_digest.cmake`` writes it into the engine."""
    lines = [
        f"{path.relative_to(root).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n"
        for path in (root / "cpp").rglob("*.[ch]pp")
    ]
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def check() -> None:
    """Warns where the engine in use was built from other C++ than lies beside this package."""
    if is_checkout() and _stale():
        warnings.warn(
            f"syno's engine was built from other C++ than {ROOT / 'cpp'} holds now; {AGAIN}",
            RuntimeWarning,
            stacklevel=2,
        )
