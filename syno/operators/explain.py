"""How an operator comes about in the search, as data, text and a drawing.

>>> from syno import _core
>>> spec = _core.spec_named("resnet18")
>>> way = explain.explain(_core.named_operator("conv1x1", spec), spec)
>>> way.legal
True
"""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syno import _core
from syno.errors import SpecError, UnknownName, require_unicode, shown
from syno.operators.operator import Operator
from syno.support.files import read_input
from syno.support.notebook import Printed

_ROW, _LEFT, _GAUGE, _BAR = 92, 470, 150, 430
_COLOURS = {"kept": "#4f8f4f", "distance": "#3f74ad", "order": "#9aa5b1"}
_RULE, _BUDGET = "#c9a227", "#b5543c"


@dataclass(frozen=True, repr=False)
class Explanation(Printed):
    """The derivation of one operator; prints as text, draws as SVG.

    ``steps`` are dicts as :func:`syno._core.derivation` gives them, the first one the output.
    """

    title: str
    steps: list[dict[str, Any]]
    finished_by: str
    legal: bool
    text: str
    pgraph_svg: str

    @property
    def verdict(self) -> str:
        """Whether the search may find the operator, in a sentence."""
        if self.legal:
            return "kept: rules, budgets and distance allow every step"
        if self.finished_by:
            return f"refused as a finished operator by {self.finished_by}"
        return "refused on the way"

    def to_dict(self) -> dict[str, Any]:
        """All of it but the drawings, for JSON."""
        return {
            "title": self.title,
            "legal": self.legal,
            "verdict": self.verdict,
            "finished_by": self.finished_by,
            "steps": self.steps,
        }

    def to_svg(self) -> str:
        """A self-contained drawing: one row a step with its frontier, the distance and what was pruned."""
        return _Drawing(self).svg()

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Explanation of {self.title} in {len(self.steps) - 1} steps: {self.verdict}>"

    def _repr_svg_(self) -> str:
        return self.to_svg()


def explain(
    operator: Operator | _core.PGraph, spec: _core.Spec, *, neighbours: int = 0, title: str = ""
) -> Explanation:
    """Replays an operator in a spec's search.

    Args:
        operator: with a pGraph; one read from a formula has none.
        neighbours: how many steps of each kind are listed beside every step taken: of those that may
            follow, and of those that each rule, each budget, the distance and the order of commuting
            steps prune, with the reason.
    Raises:
        SpecError: the operator's signature is not the spec's, or it has no pGraph.
    """
    if isinstance(operator, Operator):
        title = title or operator.expr
        if operator.pgraph is None:
            raise SpecError(
                f"[explain] {operator.expr} was written as a formula: it has no derivation. Give an "
                "operator that a search found, or one of syno._core.named_operators()"
            )
        graph = operator.pgraph
    else:
        graph = operator
    if not 0 <= neighbours <= 10**9:
        raise SpecError(f"[explain] neighbours={shown(neighbours)} must be from 0 to 1000000000")
    way = _core.derivation(spec, graph, neighbours)
    return Explanation(
        title=title or str(graph.one_scope().short_text()),
        steps=list(way["steps"]),
        finished_by=str(way["finished_by"]),
        legal=bool(way["legal"]),
        text=str(_core.explain(spec, graph, neighbours)),
        pgraph_svg=str(graph.to_svg()),
    )


def read_spec(text: str) -> _core.Spec:
    """A spec by name, or from a JSON file.

    Raises:
        UnknownName: neither a name nor a file.
        FormatError, SpecError: the file is no spec.
    """
    if text in _core.spec_names():
        return _core.spec_named(text)
    path = Path(text)
    if not path.is_file():
        names = ", ".join(sorted(_core.spec_names()))
        raise UnknownName(f"[spec] {shown(text)} is neither a file nor one of the specs: {names}")
    return _core.Spec.from_json(read_input(path, "spec"))


def read_operator(text: str, spec: _core.Spec, sizes: Mapping[str, str]) -> Operator:
    """An operator file, or a named operator built for the spec with these sizes.

    Raises:
        UnknownName: neither a file nor a name; or a size or variable that does not exist.
        SpecError: the spec's signature does not fit the operator.
    """
    if Path(text).is_file():
        return Operator.load(text)
    known = _core.named_operators()
    if text not in known:
        raise UnknownName(
            f"[explain] {shown(text)} is no session, no operator file, and none of the named operators: "
            + ", ".join(sorted(known))
        )
    require_unicode("explain", *sizes, *sizes.values())
    return Operator.from_pgraph(_core.named_operator(text, spec, _fitting(spec, sizes)))


def _fitting(spec: _core.Spec, sizes: Mapping[str, str]) -> dict[str, str]:
    """The sizes asked for; beside them the window, groups and shrinking that the spec has variables for."""
    names = {v["name"] for v in json.loads(spec.to_json())["variables"]}
    candidates = {"kernel": ("k", "k_1"), "groups": ("g", "s", "s_1"), "shrink": ("s", "s_1", "g")}
    chosen = {
        what: next(name for name in options if name in names)
        for what, options in candidates.items()
        if names & set(options)
    }
    return {**chosen, **sizes}


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


class _Drawing:
    """Rows from the output at the top to the input at the bottom, below the pGraph."""

    def __init__(self, way: Explanation) -> None:
        self.way = way
        self.parts: list[str] = []
        rules = {row["name"] for row in _core.rules()}
        self.rules = rules
        self.most = max((s["steps_left"] for s in way.steps), default=0)

    def text(self, x: float, y: float, words: str, **style: Any) -> None:
        attributes = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in style.items())
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}"{attributes}>{html.escape(words)}</text>')

    def box(self, x: float, y: float, w: float, h: float, fill: str, title: str = "") -> None:
        tip = f"<title>{html.escape(title)}</title>" if title else ""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="3" fill="{fill}">{tip}</rect>'
        )

    def colour(self, reason: str) -> str:
        return _COLOURS.get(reason) or (_RULE if reason in self.rules else _BUDGET)

    def svg(self) -> str:
        self.text(20, 28, _short(self.way.title, 125), font_size=15, font_weight="bold")
        self.text(20, 50, self.way.verdict, fill="#3b4552")
        legend = [("may follow", _COLOURS["kept"]), ("pruned by a rule", _RULE)]
        legend += [("by a budget", _BUDGET), ("by shape distance", _COLOURS["distance"])]
        legend += [("reached by another order", _COLOURS["order"])]
        x = 20.0
        for words, colour in legend:
            self.box(x, 64, 10, 10, colour)
            self.text(x + 14, 73, words, font_size=11)
            x += 26 + 6.2 * len(words)
        y = 88.0
        for number, step in enumerate(self.way.steps):
            self.row(y, number, step)
            y += _ROW
        drawing, graph_width, height = self.graph(y + 10)
        self.parts.append(drawing)
        body = "\n".join(self.parts)
        width = max(_LEFT + _GAUGE + _BAR + 40, graph_width + 40)
        total = y + 20 + height
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {total:.0f}" '
            f'width="{width:.0f}" height="{total:.0f}" font-family="system-ui, sans-serif" font-size="13" '
            f'role="img" aria-label="derivation">\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
            f"{body}\n</svg>\n"
        )

    def graph(self, y: float) -> tuple[str, float, float]:
        """The pGraph's own drawing, placed; and its width and height."""
        svg = self.way.pgraph_svg
        width, height = (
            float(svg.split(f' {side}="', 1)[1].split('"', 1)[0]) for side in ("width", "height")
        )
        return svg.replace("<svg ", f'<svg x="20" y="{y:.0f}" ', 1), width, height

    def row(self, y: float, number: int, step: dict[str, Any]) -> None:
        refused = step["removed_by"]
        label = f"{number}. {step['step']}" if number else "the output's coordinates"
        if refused:
            label += f"   [refused by {refused}]"
        self.text(
            20,
            y + 20,
            _short(label, 68),
            font_weight="600",
            fill="#8a1f11" if refused else "#1d2733",
        )
        x = 20.0
        for extent in step["frontier"]:
            w = 12 + 6.6 * len(extent)
            if x + w > _LEFT - 10:
                self.text(x, y + 45, "…")
                break
            self.box(x, y + 32, w, 20, "#dbe7f6")
            self.text(x + 6, y + 46, extent, font_size=11)
            x += w + 5
        self.gauge(y + 34, step)
        self.bar(y + 12, step)
        line = y + _ROW - 12
        self.parts.append(f'<path d="M20 {line:.0f} H{_LEFT + _GAUGE + _BAR}" stroke="#e3e7eb"/>')

    def gauge(self, y: float, step: dict[str, Any]) -> None:
        """One square a step that is left, those filled that the distance says are needed."""
        distance, left = step["distance"], step["steps_left"]
        side = min(11.0, (_GAUGE - 20) / max(1, self.most) - 2)
        for k in range(left):
            fill = _COLOURS["distance"] if 0 <= k < distance else "#e3e7eb"
            self.box(_LEFT + k * (side + 2), y, side, side, fill)
        words = "out of reach" if distance < 0 else f"distance {distance}, {left} steps left"
        self.text(_LEFT, y - 8, words, font_size=11)

    def bar(self, y: float, step: dict[str, Any]) -> None:
        """What became of the neighbours, each kind as long as its share of them."""
        parts = [("kept", step["kept"])] if step["kept"] else []
        parts += sorted(step["pruned"].items(), key=lambda part: (-part[1], part[0]))
        total = sum(count for _, count in parts)
        if not total:
            return
        x = float(_LEFT + _GAUGE)
        for reason, count in parts:
            w = _BAR * count / total
            self.box(x, y, max(w - 1, 0.5), 18, self.colour(reason), self.tip(step, reason, count))
            x += w
        words = f"{step['kept']} may follow"
        words += "".join(f", {name} {count}" for name, count in parts if name != "kept")
        lines = textwrap.wrap(words, 78, break_on_hyphens=False)
        if len(lines) > 3:
            lines = [*lines[:2], lines[2] + " …"]
        for line, piece in enumerate(lines):
            self.text(_LEFT + _GAUGE, y + 32 + 13 * line, piece, font_size=11, fill="#3b4552")

    def tip(self, step: dict[str, Any], reason: str, count: int) -> str:
        wanted = "" if reason == "kept" else reason
        lines = [f"{reason}: {count}"]
        for other in step["neighbours"]:
            if other["pruned_by"] == wanted:
                lines.append(other["step"] + (f": {other['why']}" if other["why"] else ""))
        return "\n".join(lines)
