"""Blocks of code in the pages of docs/: what they are, and running those of one page from top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
#: A block, with the remark that may stand before it.
FENCE = re.compile(
    r"(?:<!-- (not run|slow): ([^>]+?) -->\n)?^```(\S*)[^\n]*\n(.*?)^```$", re.S | re.M
)
#: Languages of blocks that are shown and not run.
SHOWN = {"", "text", "toml", "json", "cpp", "console"}
#: Why a block may stay unrun, and what its lines then begin with.
UNRUN = {
    "installs": ("bash ", "pip ", "git "),
    "needs a session": ("syno ",),
    "needs a cluster": ("syno ",),
    "needs a model file": ("net = syno.load_onnx(",),
}


@dataclass(frozen=True)
class Block:
    """One block: its language, its text, the line it begins at, and whether it is run, slow or not run."""

    language: str
    text: str
    line: int
    remark: str
    reason: str


def blocks(text: str) -> list[Block]:
    """The blocks of a page, in order.

    >>> [b.language for b in blocks("```python\\n1\\n```\\n<!-- slow: trains -->\\n```bash\\nls\\n```\\n")]
    ['python', 'bash']
    """
    return [
        Block(
            found[3],
            found[4],
            text[: found.start(3)].count("\n") + 2,
            found[1] or "",
            found[2] or "",
        )
        for found in FENCE.finditer(text)
    ]


def run_page(text: str, name: str, folder: Path, *, slow: bool) -> int:
    """Runs a page's blocks in ``folder``, Python's in one namespace; how many were run.

    Raises what a block raises, with the page's name and line; AssertionError where a command fails.
    """
    names: dict[str, Any] = {"__name__": f"page_{Path(name).stem}"}
    done = 0
    for block in blocks(text):
        if block.language in SHOWN or block.remark == "not run" or ">>> " in block.text:
            continue
        if block.remark == "slow" and not slow:
            continue
        if block.language == "python":
            source = "\n" * (block.line - 1) + block.text
            exec(compile(source, name, "exec"), names)
        else:
            assert block.language == "bash", f"{name}:{block.line}: a block of {block.language!r}"
            run_shell(block.text, f"{name}:{block.line}", folder)
        done += 1
    return done


def run_shell(text: str, where: str, folder: Path) -> None:
    """Runs a shell block; its commands are those beside this Python."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env={**os.environ, "PATH": path, "SOURCES": str(ROOT), "SYNO_PROGRESS": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{where} ended with {done.returncode}\n{done.stdout}{done.stderr}"
