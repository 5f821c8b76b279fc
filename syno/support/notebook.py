"""How results show themselves in notebooks where they have no table or picture of their own."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping


class Printed:
    """Shows in a notebook what it prints."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def facts(rows: Mapping[str, object]) -> str:
    """A table of names and values; empty ones are left out."""
    body = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in rows.items()
        if value not in (None, "", (), [])
    )
    return f"<table>{body}</table>"


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table with a head."""

    def cells(tag: str, row: Iterable[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in row) + "</tr>"

    body = "".join(cells("td", row) for row in rows)
    return f"<table><thead>{cells('th', columns)}</thead><tbody>{body}</tbody></table>"
