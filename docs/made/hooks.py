"""What mkdocs calls while it builds the site: pages that are made, and parts of pages that are drawn."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

sys.path.insert(0, str(Path(__file__).parent))

import levels
import reference
import results

#: What the theme's plugin `offline` would fetch, and what stands in for it.
FETCHED = "https://unpkg.com/iframe-worker/shim"
SHIM = "assets/javascripts/file_search.js"
#: Of ``{{ drawn.program }}`` and ``{{ performance.networks }}``.
MADE = re.compile(r"^\{\{ (\w+)\.(\w+) \}\}$", re.MULTILINE)
PAGES: dict[str, Callable[[], str]] = {
    "reference/cli.md": reference.command_line,
    "reference/environment.md": reference.environment,
    **{
        f"reference/{name}.md": lambda name=name: reference.python(name) for name in reference.AREAS
    },
}


@cache
def made(source: str) -> dict[str, str]:
    """All parts of a source, by name."""
    if source == "drawn":
        return levels.drawn()
    if source == "performance":
        return {name: table() for name, table in results.TABLES.items()}
    raise KeyError(f"{source!r}; there are drawn and performance")


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that nobody writes."""
    for name, page in PAGES.items():
        files.append(File.generated(config, name, content=page()))
    shim = Path(__file__).with_name("file_search.js").read_text(encoding="utf-8")
    files.append(File.generated(config, SHIM, content=shim))
    for name, picture in levels.pictures().items():
        files.append(File.generated(config, f"concepts/{name}", content=picture))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Puts in what is made. KeyError names what there is not."""
    return MADE.sub(lambda found: made(found[1])[found[2]], markdown)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Lets search work from a disk without fetching anything."""
    return output.replace(FETCHED, get_relative_url(SHIM, page.url))


def on_post_template(output: str, **_: Any) -> str:
    """The same in pages that are not in the navigation."""
    return output.replace(FETCHED, SHIM)
