"""Files of this machine that machines elsewhere need: packed once, unpacked once on each, in a folder of their hash."""

from __future__ import annotations

import contextlib
import getpass
import hashlib
import io
import os
import secrets
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from syno.errors import SessionError

_DATE = (1980, 1, 1, 0, 0, 0)  # the same files, the same bytes


def packed(paths: Iterable[str | Path], below: Path | None = None) -> bytes:
    """Files, and all files in folders, by their names below the working directory, as an archive.

    Raises:
        SessionError: one is not there, lies elsewhere, or cannot be read.
    """
    root = (below or Path.cwd()).resolve()
    files: dict[str, Path] = {}
    for given in paths:
        path = (root / given).resolve()
        if not path.is_relative_to(root) or path == root:
            raise SessionError(
                f"{given} cannot be shipped: it does not lie below {root}",
                fix="run in a folder above what is to be shipped, or name data by a path that each machine has",
                code="R023",
            )
        if not path.exists():
            raise SessionError(
                f"{given} cannot be shipped: it is not there", fix="correct the name", code="R023"
            )
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        files |= {p.relative_to(root).as_posix(): p for p in inside if p.is_file()}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name in sorted(files):
            try:
                content = files[name].read_bytes()
            except OSError as error:
                raise SessionError(
                    f"{name} cannot be shipped: {error.strerror}",
                    fix="make it readable, or leave it out",
                    code="R023",
                ) from None
            archive.writestr(zipfile.ZipInfo(name, _DATE), content)
    return made.getvalue()


def digest(archive: bytes) -> str:
    """What an archive's folder is called."""
    return hashlib.blake2b(archive, digest_size=16).hexdigest()


def unpacked(name: str, fetch: Callable[[], bytes]) -> Path:
    """The folder of the archive with that digest on this machine; fetched where it is not there yet.

    Raises:
        OSError: the disk is full, or the place is somebody else's.
    """
    root = Path(tempfile.gettempdir()) / f"syno-shipped-{getpass.getuser()}"
    root.mkdir(mode=0o700, exist_ok=True)
    status = root.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or root.is_symlink():
        raise PermissionError(13, "others may write there", str(root))
    whole = root / name
    if whole.is_dir():
        return whole
    part = root / f"{name}.{os.getpid()}-{secrets.token_hex(4)}.part"
    try:
        with zipfile.ZipFile(io.BytesIO(fetch())) as archive:
            archive.extractall(part)  # which leaves out what would lead elsewhere
        with contextlib.suppress(FileExistsError, OSError):
            part.rename(whole)  # unless another process was first
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return whole
