"""Whether a session may name what is imported: a session's files say which functions to call.

``session.trust`` holds a keyed digest, made with the user's secret (:mod:`syno.support.secret`), of every reference, its
options (names of tasks among them) and all code in the session's directory. Whoever does not have the secret can
neither make one nor change what it covers. Reading a session needs none: only what imports asks.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from syno.errors import TrustError
from syno.session.config import Component, SessionConfig, without_none
from syno.support.files import write_whole
from syno.support.secret import same, tag

FILE = "session.trust"
_PURPOSE = "session components, version 1"
#: What Python runs or loads when it imports.
_CODE = (".py", ".pyc", ".pyd", ".pyw", ".pth", ".so", ".zip")
_LARGEST_CODE = 64 << 20
_REFERENCE = re.compile(r"[\w./~+-]+:[A-Za-z_]\w*")


def components(config: SessionConfig) -> list[tuple[str, Component]]:
    """Every part that a session names, after the setting that names it."""
    found = [(f"stage {stage.name}", stage.proposer) for stage in config.stages]
    found.append(("evaluator", config.evaluator))
    if config.measurer is not None:
        found.append(("measurer", config.measurer))
    found.append(("reward", config.reward))
    return found


def imports(directory: Path, config: SessionConfig) -> list[str]:
    """What would be imported, for people: references, names of tasks in their options, code of the session."""
    found: dict[str, None] = {}
    for _, part in components(config):
        found[part.reference] = None
        found.update(dict.fromkeys(_references(part.options)))
    found.update((f"{name} (in the session)", None) for name, _ in _sources(directory))
    return list(found)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _references(item)
    elif isinstance(value, str) and _REFERENCE.fullmatch(value):
        yield value


def _sources(directory: Path) -> list[tuple[str, str]]:
    """Code in a session's directory: path and digest of each file, links included."""
    found = []
    for folder, folders, files in os.walk(directory):
        code = [name for name in files if name.endswith(_CODE)]
        for name in (*code, *(f for f in folders if os.path.islink(os.path.join(folder, f)))):
            path = Path(folder, name)
            try:
                size = path.stat().st_size
                readable = path.is_file() and size <= _LARGEST_CODE
                digest = hashlib.sha256(path.read_bytes()).hexdigest() if readable else "no file"
            except OSError:
                digest = "not readable"
            if path.is_symlink():
                digest += f" by {os.readlink(path)}"
            found.append((path.relative_to(directory).as_posix(), digest))
    return sorted(found)


def signature(directory: Path, config: SessionConfig) -> str:
    """The keyed digest of what a session may import.

    Raises:
        TrustError: there is no secret to make it with.
    """
    parts = [
        (where, part.reference, without_none(msgspec.to_builtins(part.options)))
        for where, part in components(config)
    ]
    content = json.dumps([parts, _sources(directory)], sort_keys=True, default=str)
    return tag(_PURPOSE, content.encode())


def sign(directory: Path, config: SessionConfig) -> None:
    """Marks a session as this user's own: who resumes it need not say so.

    Raises:
        OSError: the directory cannot be written.
    """
    with contextlib.suppress(TrustError):  # without a secret, the next process asks for --trust
        write_whole(directory / FILE, signature(directory, config) + "\n")


def is_signed(directory: Path, config: SessionConfig) -> bool:
    """Whether this user's syno wrote what the session may import.

    Raises:
        TrustError: the secret is not safe.
    """
    path = directory / FILE
    if not path.is_file():  # a pipe would be waited for
        return False
    try:
        with path.open("rb") as file:
            written = file.read(200).decode("ascii", errors="replace").strip()
    except OSError:
        return False
    return same(written, signature(directory, config))


def check_trust(directory: Path, config: SessionConfig, *, trust: bool = False) -> None:
    """Before anything is imported that a session names.

    Args:
        trust: the user says so: what is going to be imported is printed, and the session is signed.
    Raises:
        TrustError: it is not signed by this user, or was changed since.
    """
    try:
        if is_signed(directory, config):
            return
    except TrustError:
        if not trust:
            raise
    named = ", ".join(imports(directory, config))
    if not trust:
        raise TrustError(
            f"{directory} was made by somebody else, by a syno before sessions were signed, or was changed "
            f"since; it would import and call {named}",
            fix="if you know where it comes from, say so once: --trust on the command line, trust=True in "
            "Python",
            code="A002",
        )
    print(f"trusting {directory}: it imports and calls {named}", file=sys.stderr)
    with contextlib.suppress(OSError):  # a session that cannot be written is trusted this time
        sign(directory, config)
