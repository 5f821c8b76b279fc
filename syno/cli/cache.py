"""``syno cache``: the compiled kernels on disk, and carrying them to another machine."""

from __future__ import annotations

import re
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

from syno import _core
from syno.config import cache_directory
from syno.errors import FormatError, KernelError, SynoError, TrustError
from syno.kernels.cache import any_body, own_body, read_entry, share_secret, write_entry
from syno.support.files import not_a_file, read_regular, remove, write_output, write_over
from syno.support.secret import derived

# The engine names every entry by its 128-bit key; nothing else is read from or written to the cache.
_ENTRY = re.compile(r"[0-9a-f]{32}\.(kernel|schedule|verified)")
# Archives hold no derivations: they are found again, and measured, where they are used.
_OWN = re.compile(r"[0-9a-f]{32}\.(kernel|schedule|verified|derived|joined)")
_LARGEST = 256 << 20
_LARGEST_ARCHIVE = 4 << 30


def _entries(directory: Path | None) -> list[Path]:
    """Of whatever kind: a directory in the place of an entry is cleared away, too."""
    if directory is None or not directory.is_dir():
        return []
    return sorted(p for p in directory.iterdir() if _OWN.fullmatch(p.name))


def _kernels(names: list[str]) -> int:
    return sum(name.endswith(".kernel") for name in names)


def _usable() -> Path:
    directory = cache_directory()
    if directory is None:
        raise KernelError("[cache] there is no cache: SYNO_CACHE is empty; name a directory")
    derived("any")  # raises where there is no secret
    share_secret()
    return directory


def info() -> dict[str, Any]:
    """Directory (empty where there is none), number of kernels and size in bytes."""
    directory = cache_directory()
    entries = _entries(directory)
    return {
        "directory": str(directory or ""),
        "kernels": _kernels([p.name for p in entries]),
        "bytes": sum(p.lstat().st_size for p in entries),
    }


def clear() -> int:
    """Removes all entries; returns how many kernels there were.

    Raises:
        FormatError: one cannot be removed.
    """
    entries = _entries(cache_directory())
    for path in entries:
        try:
            remove(path)
        except OSError as error:
            raise FormatError(f"[cache] {path} cannot be removed: {error.strerror}") from error
    return _kernels([p.name for p in entries])


def pack(archive: Path) -> int:
    """Writes the kernels and schedules that this user's syno made into a zip; returns the number of kernels.

    What is damaged, or somebody else's, stays out. So do the checks: each kernel is checked where it is used.

    Raises:
        FormatError: the zip cannot be written; what was there before is still there.
        TrustError: there is no secret that tells whose entries are.
    """
    names = []
    entries = _entries(cache_directory())
    if cache_directory() is not None:
        _usable()
    with tempfile.SpooledTemporaryFile(_LARGEST) as whole:
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as out:
            for path in entries:
                content = read_regular(path, _LARGEST) or b""
                if path.suffix == ".kernel":
                    good = _core.cache_entry_key(content) == path.stem
                else:
                    good = path.suffix == ".schedule" and own_body(path.name, content) is not None
                if good:
                    out.writestr(path.name, content)
                    names.append(path.name)
        whole.seek(0)
        write_output(archive, whole.read(), "cache")
    return _kernels(names)


def unpack(archive: Path, *, trust: bool = False) -> int:
    """Copies the entries of a zip made by :func:`pack` into the cache; each kernel is checked when it is first used.

    Entries already there are kept. Checks in the archive are left out.

    Args:
        trust: kernels are taken though another user's syno made them, or on another machine: they are
            machine code, which runs with this user's rights.
    Returns:
        How many kernels the archive holds.
    Raises:
        FormatError: not a zip, or it holds something that is no kernel; nothing was imported.
        TrustError: it holds machine code of somebody else, and `trust` is not given; nothing was imported.
        KernelError: there is no cache to copy into.
    """
    directory = _usable()
    if kind := not_a_file(archive):
        raise FormatError(
            f"[cache] cannot read {archive}: it is {kind}; give a zip that 'syno cache export' wrote"
        )
    try:
        with zipfile.ZipFile(archive) as source:
            items = source.infolist()
            for item in items:
                if not _ENTRY.fullmatch(item.filename) or item.file_size > _LARGEST:
                    raise FormatError(
                        f"[cache] {archive} holds '{item.filename[:100]}' ({item.file_size} bytes), "
                        "which is no kernel; nothing was imported"
                    )
            total = sum(item.file_size for item in items)
            if total > _LARGEST_ARCHIVE:
                raise FormatError(
                    f"[cache] {archive} holds {total} bytes; at most {_LARGEST_ARCHIVE} are imported"
                )
            for write in (False, True):  # all is looked at before anything is written
                for item in items:
                    _take(directory / item.filename, source, item, trust=trust, write=write)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,
        RuntimeError,
        OSError,
    ) as error:
        if isinstance(error, SynoError):
            raise
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise FormatError(
            f"[cache] cannot read {archive}: {why}; give a zip that 'syno cache export' wrote"
        ) from error
    return _kernels([item.filename for item in items])


def _take(
    target: Path, source: zipfile.ZipFile, item: zipfile.ZipInfo, *, trust: bool, write: bool
) -> None:
    if target.suffix == ".verified":
        return
    content = source.read(item)
    foreign = TrustError(
        f"{source.filename} holds machine code that your syno did not make on this machine; nothing was "
        "imported",
        fix="if you know where it comes from, give --trust: it runs with your rights",
        code="A003",
    )
    if target.suffix == ".schedule":
        body = own_body(target.name, content)
        if body is None and not trust:
            raise foreign
        body = any_body(content) if body is None else body
        _core.Schedule.from_json(body.decode(errors="replace"))
        if write and read_entry(target) is None:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_entry(target, body)
        return
    if _core.cache_entry_key(content) != target.stem:
        adopted = _core.adopt_cache_entry(content)
        if _core.cache_entry_key(adopted) != target.stem:
            raise FormatError(
                f"[cache] {source.filename} holds '{item.filename}', which is no kernel; nothing was imported"
            )
        if not trust:
            raise foreign
        content = adopted
    if write and _core.cache_entry_key(read_regular(target, _LARGEST) or b"") != target.stem:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_over(target, content)
