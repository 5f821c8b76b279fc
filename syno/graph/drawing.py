"""A compiled network as a picture: its steps one below the other as they run, what flows past some of them at the left,
how long each takes at the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from syno.graph.stages import Stage
from syno.support.files import write_output
from syno.support.pictures import shortened, style

if TYPE_CHECKING:
    from syno.graph.compiled import CompiledNetwork
    from syno.graph.loaded import NetworkFolder

_ROW, _BOX, _WIDTH, _LANE, _BAR, _MARGIN = 46, 32, 430, 11, 200, 20
_LETTERS = 58
"""Of a name that fit a box."""
_FEW_ENDS = 6
"""Names of inputs or outputs that are written out."""

_STYLE = style(
    """
.kernel{fill:#ddf4ff;stroke:#54aeff}.view{fill:#f6f8fa;stroke:#d1d9e0}
.engine{fill:#dafbe1;stroke:#4ac26b}.host{fill:#fff1e5;stroke:#fb8f44}
.bar{fill:#0969da;stroke:none;rx:2px}
""",
    """
.kernel{fill:#0c2d6b;stroke:#388bfd}.view{fill:#151b23;stroke:#3d444d}
.engine{fill:#04260f;stroke:#2ea043}.host{fill:#3d1300;stroke:#db6d28}.bar{fill:#4493f8}
""",
)


@dataclass(frozen=True)
class Edge:
    """A tensor on its way from one row to another further down; `lane` 0 goes straight to the next row."""

    source: int
    target: int
    lane: int


def edges_of(stages: Sequence[Stage], inputs: Sequence[str], outputs: Sequence[str]) -> list[Edge]:
    """Rows that read what others make. Row 0 are the inputs, then the steps, then the outputs; weights are in no row.

    Those that pass rows get lanes of their own: no two that share a lane overlap.
    """
    made = dict.fromkeys(inputs, 0)
    pairs: dict[tuple[int, int], None] = {}
    for row, stage in enumerate(stages, 1):
        for name in stage.inputs:
            if name in made:
                pairs[made[name], row] = None
        made.update(dict.fromkeys(stage.outputs, row))
    for name in outputs:
        if name in made:
            pairs[made[name], len(stages) + 1] = None
    busy: list[int] = []  # by lane, the row where it is free again
    edges = []
    for source, target in sorted(pairs):
        lane = 0
        if target > source + 1:
            lane = next((i for i, free in enumerate(busy) if free <= source), len(busy)) + 1
            busy[lane - 1 : lane] = [target]
        edges.append(Edge(source, target, lane))
    return edges


def to_svg(
    network: CompiledNetwork | NetworkFolder,
    path: str | Path | None,
    times_us: Mapping[str, float] | None,
) -> str:
    """A network's picture; written to a file, too."""
    graph, stages = network.graph, network.stages
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    shapes = {}
    for name in (*inputs, *outputs, *(made for stage in stages for made in stage.outputs)):
        shape, dtype, _ = graph.tensor(name)
        layout = graph.layout(name)[0]
        shapes[name] = f"{dtype}{list(shape)}" + (f" by {layout}" if layout else "")
    text = drawn(
        stages, inputs, outputs, name=str(graph.name), shapes=shapes, times_us=times_us
    )  # fmt: skip
    if path is not None:
        write_output(Path(path), text, "network")
    return text


def drawn(
    stages: Sequence[Stage],
    inputs: Sequence[str],
    outputs: Sequence[str],
    *,
    name: str,
    shapes: Mapping[str, str],
    times_us: Mapping[str, float] | None = None,
) -> str:
    """SVG, in light and dark.

    Args:
        shapes: of tensors, as they are shown.
        times_us: of the steps, where they were measured; else the predicted ones are drawn.
    """
    edges = edges_of(stages, inputs, outputs)
    left = _MARGIN + _LANE * (1 + max((edge.lane for edge in edges), default=0))
    times = [_time(stage, times_us) for stage in stages]
    longest, total = max(times, default=0.0) or 1.0, sum(times)
    height = 2 * _MARGIN + _ROW * (len(stages) + 2)
    width = left + _WIDTH + _BAR + 3 * _MARGIN
    what = f"{name}: {len(stages)} steps, {total:,.1f} us {'measured' if times_us else 'predicted'}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label={quoteattr(what)}><title>{escape(what)}</title><style>{_STYLE}</style>'
    ]
    lines += [_path(edge, left) for edge in edges]
    lines.append(_end(left, 0, inputs, shapes))
    for row, (stage, time) in enumerate(zip(stages, times, strict=True), 1):
        lines.append(_box(left, row, stage, shapes))
        if time > 0:
            part = f"{time:,.1f} us, {100 * time / total:.1f} %"
            lines.append(_bar(left + _WIDTH + _MARGIN, row, time / longest, part))
    lines.append(_end(left, len(stages) + 1, outputs, shapes))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _time(stage: Stage, times_us: Mapping[str, float] | None) -> float:
    return stage.predicted_us if times_us is None else times_us.get(stage.name, 0.0)


def _y(row: int) -> int:
    return _MARGIN + _ROW * row


def _path(edge: Edge, left: int) -> str:
    top, bottom = _y(edge.source) + _BOX, _y(edge.target)
    if edge.lane == 0:
        return f'<path d="M{left + 24} {top}V{bottom}"/>'
    x = left - _LANE * edge.lane
    top, bottom = top - _BOX // 2, bottom + _BOX // 2
    return f'<path d="M{left} {top}H{x + 5}q-5 0 -5 5V{bottom - 5}q0 5 5 5H{left}"/>'


def _box(left: int, row: int, stage: Stage, shapes: Mapping[str, str]) -> str:
    made = ", ".join(shapes.get(name, "") for name in stage.outputs)
    tip = "\n".join(part for part in (stage.name, stage.what, stage.reason, stage.derived) if part)
    kind = f"PyTorch: {stage.what}" if stage.kind == "host" else stage.limit or stage.kind
    return (
        f'<g><title>{escape(tip)}</title><rect class="{stage.kind}" x="{left}" y="{_y(row)}" width="{_WIDTH}" '
        f'height="{_BOX}"/><text x="{left + 8}" y="{_y(row) + 14}">{escape(shortened(stage.name, _LETTERS))}</text>'
        f'<text class="small" x="{left + 8}" y="{_y(row) + 27}">{escape(shortened(f"{made}  {kind}", 66))}</text></g>'
    )


def _end(left: int, row: int, names: Sequence[str], shapes: Mapping[str, str]) -> str:
    shown = [f"{name} {shapes.get(name, '')}".strip() for name in names[:_FEW_ENDS]]
    shown += [f"and {len(names) - _FEW_ENDS} more"] * (len(names) > _FEW_ENDS)
    text = ", ".join(shown)
    return (
        f'<g><title>{escape(text)}</title><rect class="end" x="{left}" y="{_y(row)}" width="{_WIDTH}" height="{_BOX}"/>'
        f'<text x="{left + 8}" y="{_y(row) + 20}">{escape(shortened(text, _LETTERS))}</text></g>'
    )


def _bar(x: int, row: int, part: float, text: str) -> str:
    y = _y(row)
    return (
        f'<rect class="bar" x="{x}" y="{y + 4}" width="{max(1.0, part * _BAR):.1f}" height="9"/>'
        f'<text class="small" x="{x}" y="{y + 27}">{escape(text)}</text>'
    )
