"""One writer a session: a lock that dies with its process, and says who holds it."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

from syno.errors import SessionError
from syno.support.files import not_a_file

try:
    import fcntl
except ImportError:  # pragma: no cover - systems without flock
    fcntl = None  # type: ignore[assignment]

# File systems on which neither flock nor SQLite's WAL can be trusted.
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs", "lustre"})


class SessionLock:
    """Held from construction to :meth:`release`, or to the end of the process."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / ".lock"
        kind = file_system(directory)
        if kind in _NETWORK:
            raise SessionError(
                f"{directory} is on a network file system ({kind}), which cannot keep a session whole",
                fix="choose a directory on a local disk",
                code="R006",
            )
        if kind := not_a_file(self._path):
            raise SessionError(
                f"{self._path} cannot be locked: it is {kind}",
                fix="remove it: it is made anew",
                code="R002",
            )
        try:
            self._file = open(self._path, "a+", encoding="utf-8", errors="replace")  # noqa: SIM115
        except OSError as error:
            raise SessionError(
                f"{directory} cannot be written: {error.strerror}",
                fix="choose a directory you may write to; reading a session works without",
                code="R002",
            ) from None
        if not self._acquire():
            self._file.seek(0)
            holder = self._file.read(200).strip() or "another process"
            self._file.close()
            raise SessionError(
                f"{directory} is in use by {holder}",
                fix="wait for it, or stop it; 'status' and 'report' work meanwhile",
                code="R001",
            )
        # Who it is, for people; a full disk must not keep a session from being read and mended.
        with contextlib.suppress(OSError):
            os.ftruncate(self._file.fileno(), 0)
            words = f"process {os.getpid()} on {socket.gethostname()}\n"
            os.pwrite(self._file.fileno(), words.encode(), 0)

    def _acquire(self) -> bool:
        if fcntl is None:
            return True
        # A reader that asks whether the session runs holds the lock for an instant.
        for _ in range(20):
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(0.02)
            else:
                return True
        return False

    def release(self) -> None:
        """Lets the next writer in."""
        self._file.close()


def locked(directory: Path) -> bool:
    """Whether some process is writing the session now."""
    if fcntl is None or not_a_file(directory / ".lock"):
        return False
    try:
        with open(directory / ".lock", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
            return False
    except OSError:
        return False


def file_system(directory: Path) -> str:
    """Type of the file system that holds ``directory``; empty where the system does not tell."""
    best, kind = "", ""
    try:
        target = str(directory.resolve())
        for line in Path("/proc/self/mounts").read_text().splitlines():
            _, point, found, *_ = line.split(" ")
            point = point.replace("\\040", " ")
            inside = target == point or target.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, found
    except OSError:
        return ""
    return kind
