"""Files that other processes read while they are written."""

from __future__ import annotations

import os
import secrets
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
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
