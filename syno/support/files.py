"""Files that other processes read while they are written, and files that a user names."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes beside the target and renames: nobody reads half a file, and the last of two writers wins.

    Raises:
        OSError: it cannot be written; what was there before is still there, and nothing beside it.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with temporary.open("xb") as out:
            out.write(data)
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None  # what was asked for
        raise


def write_output(path: Path, content: str | bytes, what: str) -> None:
    """Writes a file that a user asked for, whole or not at all; its directories are made.

    Raises:
        FormatError: it cannot be written; what was there before is still there.
    """
    from syno.errors import FormatError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise FormatError(
            f"[{what}] {path} cannot be written: {words}; choose another place, or make room there"
        ) from error


def read_input(path: Path, what: str, largest: int = 64 << 20) -> str:
    """The text of a file that a user named.

    Raises:
        FormatError: it cannot be read, is no text in UTF-8, or has more than ``largest`` bytes.
    """
    from syno.errors import FormatError

    if not_a_file(path) == "a named pipe":
        raise FormatError(f"[{what}] {path} cannot be read: it is a named pipe; give a file")
    try:
        with path.open("rb") as file:
            data = file.read(largest + 1)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise FormatError(f"[{what}] {path} cannot be read: {words}") from error
    if len(data) > largest:
        raise FormatError(f"[{what}] {path} has more than {largest} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(
            f"[{what}] {path} is no text: byte {error.start} is no UTF-8; give another file"
        ) from error


def write_over(path: Path, content: str | bytes) -> None:
    """:func:`write_whole` in the place of whatever lies there: a directory makes way, too.

    Raises:
        OSError: it cannot be written.
    """
    try:
        write_whole(path, content)
    except IsADirectoryError:
        remove(path)
        write_whole(path, content)


def remove(path: Path) -> None:
    """Removes a file, link, pipe or directory; nothing that a link points to.

    Raises:
        OSError: it cannot be removed.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def not_a_file(path: Path) -> str:
    """What lies at a path, links followed, where that is no file: opening a pipe would wait for whoever writes it.

    Empty for a file, for a pipe without a name, as the shell's ``<(…)``, which has its writer, and where there is
    nothing, or nobody may look: opening it says so.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return ""
    if stat.S_ISREG(mode) or (stat.S_ISFIFO(mode) and not os.path.exists(os.path.realpath(path))):
        return ""
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")


def read_regular(path: Path, largest: int, *, links: bool = False) -> bytes | None:
    """Content of a file; None where there is none, or a directory, a pipe, more than `largest` bytes, or (unless
    `links`) a link."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)
    try:
        number = os.open(path, flags)
    except OSError:
        return None
    try:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode) or status.st_size > largest:
            return None
        with open(number, "rb", closefd=False) as file:
            return file.read(largest + 1)
    except OSError:
        return None
    finally:
        os.close(number)
