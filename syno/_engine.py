"""What is said where the engine cannot be loaded: one sentence, in the place of the dynamic linker's."""

from __future__ import annotations

import importlib.machinery
import os
import platform
import re
import sys
from collections.abc import Sequence
from types import ModuleType

NAME = "syno._core"
ENOUGH = "Debian 12, Ubuntu 22.04 and RHEL 9 will do, Debian 11 and RHEL 8 will not"


def why_not(linker: str, machine: str, libc: str) -> str:
    """One sentence on why the engine does not load here, and what to do.

    Args:
        linker: what the dynamic linker said.
        machine: of the CPU, such as ``"x86_64"``.
        libc: name and version of the C library, such as ``"glibc 2.31"``; empty where it is not glibc.
    """
    if machine.lower() not in ("x86_64", "amd64"):
        return f"syno's engine runs on x86-64 CPUs, and this is {machine}; it compiles kernels for AArch64 there (target=)"
    if not libc:
        return (
            "syno's engine needs glibc, and this system has another C library, such as Alpine's musl; "
            f"use a system with glibc: {ENOUGH}"
        )
    if found := re.search(r"`GLIBC_([\d.]+)' not found", linker):
        return (
            f"syno's engine needs glibc {found[1]} or newer, and this system has {libc}: {ENOUGH}"
        )
    if found := re.search(r"([\w.+-]+): cannot open shared object file", linker):
        return f"syno's engine needs the library {found[1]}, which is not installed"
    return f"syno's engine cannot be loaded ({linker}); install syno again, or build it: 'pip install .' in the sources' folder"


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


class CannotLoad(ImportError):
    """The engine is there and does not load; the message is a sentence."""


class _Loader(importlib.machinery.ExtensionFileLoader):
    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        try:
            return super().create_module(spec)
        except ImportError as error:
            text = why_not(str(error), platform.machine(), _libc())
            raise CannotLoad(text, name=spec.name, path=spec.origin) from error


class _Finder:
    """Finds the engine as Python does, and nothing else."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != NAME:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec and isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """From now on a failed import of the engine says what is the matter."""
    if not any(finder is _Finder for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder)
