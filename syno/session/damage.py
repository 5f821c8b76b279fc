"""What is said where a session's database cannot be read: whether it is damaged, or the system does not give it now."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from syno.errors import SessionError

#: What a query raises beside its result. SQLite's own words hold names as they lie in a damaged file: where those are
#: no text, Python cannot make a message of them. A record whose length is damaged asks for memory that is not there.
FAILURES = (sqlite3.Error, UnicodeDecodeError, MemoryError)

_DAMAGE_CODES = (11, 26)  # SQLITE_CORRUPT, SQLITE_NOTADB
_DAMAGE = (
    "malformed",
    "not a database",
    "no such",
    "it is empty",
    "it is damaged",
    "could not decode",
    "unsupported file format",
)


def is_damage(error: Exception) -> bool:
    """Whether the database itself is wrong, rather than what the system gives it now."""
    if isinstance(error, UnicodeDecodeError):
        return True
    code = getattr(error, "sqlite_errorcode", None)  # Python 3.11
    if code is not None and code & 0xFF in _DAMAGE_CODES:
        return True
    text = str(error).lower()
    return isinstance(error, sqlite3.Error) and any(words in text for words in _DAMAGE)


def explained(path: Path, error: Exception, *, writing: bool = False) -> SessionError:
    """What is wrong with a database, and what to do; never to give up one that is whole."""
    if is_damage(error):
        return SessionError(
            f"{path} cannot be read as a session's database: {error}",
            fix="restore it from a copy, or start a new session; operators/ and weights/ are still readable",
            code="R005",
        )
    words = error.strerror if isinstance(error, OSError) else str(error)
    if isinstance(error, MemoryError):
        words = "there is not enough memory"
    if writing:
        return SessionError(
            f"{path.parent} cannot be written: {words}",
            fix="free space on the disk or make it writable, then run again: the session goes on",
            code="R009",
        )
    return SessionError(
        f"{path} cannot be opened now: {words}",
        fix="free space on the disk, or make the directory and its files readable, then try again: nothing "
        "says that the session is damaged",
        code="R016",
    )
