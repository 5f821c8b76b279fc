"""``syno cache``: the compiled kernels on disk, and carrying them to another machine."""

from __future__ import annotations

import contextlib
import re
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from syno.config import cache_directory
from syno.errors import FormatError, KernelError
from syno.files import write_output, write_whole

# The engine names every entry by its 128-bit key; nothing else is read from or written to the cache.
_ENTRY = re.compile(r"[0-9a-f]{32}\.[a-z]+")
_LARGEST = 64 << 20


def _entries(directory: Path | None) -> list[Path]:
    if directory is None or not directory.is_dir():
        return []
    return sorted(p for p in directory.iterdir() if p.is_file() and _ENTRY.fullmatch(p.name))


def _kernels(names: list[str]) -> int:
    return len({name.split(".")[0] for name in names})


def info() -> dict[str, Any]:
    """Directory (empty where there is none), number of kernels and size in bytes."""
    directory = cache_directory()
    entries = _entries(directory)
    return {
        "directory": str(directory or ""),
        "kernels": _kernels([p.name for p in entries]),
        "bytes": sum(p.stat().st_size for p in entries),
    }


def clear() -> int:
    """Removes all entries; returns how many kernels there were."""
    entries = _entries(cache_directory())
    for path in entries:
        path.unlink(missing_ok=True)
    return _kernels([p.name for p in entries])


def pack(archive: Path) -> int:
    """Writes all entries into a zip; returns the number of kernels.

    Raises:
        FormatError: it cannot be written; what was there before is still there.
    """
    entries = _entries(cache_directory())
    packed = []
    with tempfile.SpooledTemporaryFile(_LARGEST) as content:
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as out:
            for path in entries:
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                    out.write(path, path.name)
                    packed.append(path.name)
        content.seek(0)
        write_output(archive, content.read(), "cache")
    return _kernels(packed)


def unpack(archive: Path) -> int:
    """Copies the entries of a zip made by :func:`pack` into the cache.

    Entries already there are kept. The engine compares key text and checksum when it first uses one.

    Raises:
        FormatError: not a zip, or it holds something that is no kernel.
        KernelError: there is no cache to copy into.
    """
    directory = cache_directory()
    if directory is None:
        raise KernelError("[cache] there is no cache: SYNO_CACHE is empty; name a directory")
    try:
        with zipfile.ZipFile(archive) as source:
            for item in source.infolist():
                if not _ENTRY.fullmatch(item.filename) or item.file_size > _LARGEST:
                    raise FormatError(
                        f"[cache] {archive} holds '{item.filename}' ({item.file_size} bytes), "
                        "which is no kernel; nothing was imported"
                    )
            directory.mkdir(parents=True, exist_ok=True)
            names = [item.filename for item in source.infolist()]
            for name in names:
                target = directory / name
                if not target.exists():
                    write_whole(target, source.read(name))
    except (zipfile.BadZipFile, OSError) as error:
        raise FormatError(f"[cache] cannot read {archive}: {error}") from error
    return _kernels(names)
