"""A derivation as a picture: its steps one below the other, what each makes, how much work and traffic are left after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from syno.support.files import write_output
from syno.support.pictures import shortened, style

if TYPE_CHECKING:
    from syno.deriving.derivations import Derived

_MARGIN, _WIDTH, _BAR, _HEAD, _LINE, _GAP = 20, 760, 160, 40, 15, 22
_LETTERS = 118
"""Of a scope that fit a row."""
_SCOPES = 5
"""New ones of a step that are written out; the tip of the row has all."""

_STYLE = style(
    """
.exact{fill:#ddf4ff;stroke:#54aeff}.real{fill:#fff1e5;stroke:#fb8f44}
.work{fill:#0969da;stroke:none;rx:2px}.traffic{fill:#8250df;stroke:none;rx:2px}
""",
    """
.exact{fill:#0c2d6b;stroke:#388bfd}.real{fill:#3d1300;stroke:#db6d28}
.work{fill:#4493f8}.traffic{fill:#ab7df8}
""",
)


@dataclass(frozen=True)
class _Row:
    kind: str
    head: str
    below: str
    scopes: Sequence[str]
    multiply_adds: int
    bytes: int

    @property
    def shown(self) -> list[str]:
        more = len(self.scopes) - _SCOPES
        return [*self.scopes[:_SCOPES], *[f"and {more} more"] * (more > 0)]

    @property
    def height(self) -> int:
        return _HEAD + _LINE * len(self.shown)


def to_svg(derived: Derived, path: str | Path | None = None) -> str:
    """SVG of the steps of a derivation, in light and dark; written to a file, too.

    Args:
        derived: blue steps are exact, orange ones equal over the reals, for finite data.
        path: where it goes, if anywhere.
    Raises:
        SynoError: the file cannot be written.
    """
    text = _drawn(_rows(derived), _result(derived))
    if path is not None:
        write_output(Path(path), text, "derive")
    return text


def _rows(derived: Derived) -> list[_Row]:
    cost = derived.original.program.cost(0)
    given = str(derived.original.expr).split("; ")
    rows = [_Row("end", "the original", "", given, int(cost.flops), int(cost.bytes))]
    for step in derived.steps:
        kind = "exact" if step.exact else "real"
        head = f"{step.rule} at {step.where}"
        work, traffic = step.multiply_adds[1], step.bytes[1]
        rows.append(_Row(kind, head, step.statement, step.after, work, traffic))
    return rows


def _result(derived: Derived) -> str:
    said = [f"{len(derived.rules)} steps"]
    if derived.measured_us is not None:
        said.append(f"{derived.measured_us:,.1f} us")
    elif derived.predicted_us is not None:
        said.append(f"{derived.predicted_us:,.1f} us predicted")
    if derived.max_rel_err is not None:
        said.append(f"error {derived.max_rel_err:.1e}")
    return ", ".join([*said, *filter(None, (derived.label, derived.note))])


def _drawn(rows: Sequence[_Row], result: str) -> str:
    height = 2 * _MARGIN + sum(row.height + _GAP for row in rows)
    width = 3 * _MARGIN + _WIDTH + _BAR
    most_work = max(1, *(row.multiply_adds for row in rows))
    most_traffic = max(1, *(row.bytes for row in rows))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label={quoteattr(result)}><title>{escape(result)}</title><style>{_STYLE}</style>'
    ]
    y = _MARGIN
    for number, row in enumerate(rows):
        if number:
            lines.append(f'<path d="M{_MARGIN + 24} {y - _GAP}V{y}"/>')
        lines.append(_box(row, y))
        parts = row.multiply_adds / most_work, row.bytes / most_traffic
        lines.append(_bars(row, y, *parts))
        y += row.height + _GAP
    lines.append(f'<text class="small" x="{_MARGIN}" y="{y}">{escape(result)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _box(row: _Row, y: int) -> str:
    tip = "\n".join(filter(None, (row.head, row.below, *row.scopes)))
    x = _MARGIN + 8
    lines = [
        f'<g><title>{escape(tip)}</title><rect class="{row.kind}" x="{_MARGIN}" y="{y}" width="{_WIDTH}" '
        f'height="{row.height}"/><text x="{x}" y="{y + 16}">{escape(shortened(row.head, 98))}</text>',
        f'<text class="small" x="{x}" y="{y + 30}">{escape(shortened(row.below, _LETTERS))}</text>',
    ]
    lines += [
        f'<text class="small" x="{x}" y="{y + _HEAD + 5 + _LINE * number}">{escape(shortened(text, _LETTERS))}</text>'
        for number, text in enumerate(row.shown)
    ]
    return "".join([*lines, "</g>"])


def _bars(row: _Row, y: int, work: float, traffic: float) -> str:
    x = 2 * _MARGIN + _WIDTH
    return (
        f'<rect class="work" x="{x}" y="{y + 4}" width="{max(1.0, work * _BAR):.1f}" height="8"/>'
        f'<text class="small" x="{x}" y="{y + 23}">{row.multiply_adds:,} multiply-adds</text>'
        f'<rect class="traffic" x="{x}" y="{y + 28}" width="{max(1.0, traffic * _BAR):.1f}" height="8"/>'
        f'<text class="small" x="{x}" y="{y + 47}">{row.bytes:,} bytes</text>'
    )
