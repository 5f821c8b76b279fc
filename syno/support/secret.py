"""A random secret of this user, by which files that this user's syno wrote are told from those of others.

It lies outside sessions and caches, in the user's configuration directory, readable by nobody else.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

from syno.errors import TrustError

BYTES = 32
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def secret_path() -> Path:
    """Where it is kept: ``secret.key`` in the user's configuration directory (``~/.config/syno``)."""
    return _path(os.environ.get("XDG_CONFIG_HOME"), os.environ.get("HOME"))


@functools.lru_cache(maxsize=8)
def _path(_config: str | None, _home: str | None) -> Path:
    # Asked for with every kernel that is loaded: finding it takes ten times as long as the digest.
    from platformdirs import user_config_dir

    return Path(user_config_dir("syno")) / "secret.key"


def derived(purpose: str) -> bytes:
    """32 bytes for one purpose; the secret itself is used for nothing else.

    Raises:
        TrustError: the secret can be neither read nor made, or others could know it.
    """
    return hashlib.blake2b(purpose.encode(), key=_secret(secret_path()), digest_size=32).digest()


def tag(purpose: str, *parts: bytes) -> str:
    """A keyed digest (BLAKE2b) of the parts, 64 hexadecimal digits; parts cannot be moved into one another.

    Raises:
        TrustError: as for :func:`derived`.
    """
    made = hashlib.blake2b(key=derived(purpose), digest_size=32)
    for part in parts:
        made.update(len(part).to_bytes(8, "little"))
        made.update(part)
    return made.hexdigest()


def same(one: str, other: str) -> bool:
    """Whether two tags are equal; takes as long wherever they differ."""
    return hmac.compare_digest(one.encode(), other.encode())


@functools.lru_cache(maxsize=8)
def _secret(path: Path) -> bytes:
    try:
        with contextlib.suppress(FileExistsError):
            if not path.exists():
                _create(path)
        return _read(path)
    except OSError as error:
        raise TrustError(
            f"the secret {path} can be neither read nor made: {error.strerror}",
            fix="let your user write there, or set XDG_CONFIG_HOME to a directory of yours",
            code="A001",
        ) from error


def _read(path: Path) -> bytes:
    number = os.open(path, os.O_RDONLY | _FLAGS)
    try:
        status = os.fstat(number)
        content = os.read(number, BYTES + 1) if stat.S_ISREG(status.st_mode) else b""
    finally:
        os.close(number)
    mode = stat.S_IMODE(status.st_mode)
    wrong = ""
    if not stat.S_ISREG(status.st_mode):
        wrong = "is no file"
    elif status.st_uid != os.geteuid():
        wrong = f"belongs to user {status.st_uid}, not to you ({os.geteuid()})"
    elif mode & 0o077:
        wrong = f"has mode {mode:04o}, so that others can read or change it"
    elif len(content) != BYTES:
        wrong = f"does not hold {BYTES} bytes"
    if wrong:
        raise TrustError(
            f"the secret {path} {wrong}",
            fix=f"delete it and a new one is made (sessions of before then want --trust once): rm {path}",
            code="A001",
        )
    return content


def _create(path: Path) -> None:
    """A whole file or none; of two processes the first one's counts. Raises FileExistsError, OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    number = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
    try:
        try:
            os.write(number, secrets.token_bytes(BYTES))
            os.fsync(number)
        finally:
            os.close(number)
        os.link(part, path)
    finally:
        part.unlink(missing_ok=True)
