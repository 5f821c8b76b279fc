"""The plot of a report's page: its data for the page's one script, and the policy that lets no other run."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import msgspec

from syno.report.model import Report

SCRIPT = Path(__file__).with_name("templates") / "front.js"


def script() -> str:
    """The page's script."""
    return SCRIPT.read_text(encoding="utf-8")


def policy() -> str:
    """A Content-Security-Policy: the page's own script by its digest, its own styles and pictures, and nothing from anywhere else."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()
    return f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def points(report: Report, numbers: dict[str, list[tuple[str, str]]]) -> dict[str, Any]:
    """Every network that has a latency and a value, once for each part it was judged on.

    Args:
        numbers: by id, names and texts that are shown of a network that is pointed at.
    """
    scale = 100.0 if report.metric == "accuracy" else 1.0
    everyone = [report.baseline, *report.candidates]
    apart = any(e.validation is not None or e.test is not None for e in everyone)
    parts = ("validation", "test") if apart else ("accuracy",)
    entries, found = [], []
    for entry in everyone:
        latency = entry.latency_us
        values = {part: getattr(entry, part) for part in parts}
        if latency is None or all(value is None for value in values.values()):
            continue
        picture = report.drawings.get(entry.id, "")
        entries.append(
            {
                "id": entry.id,
                "origin": "" if entry is report.baseline else entry.origin,
                "expr": entry.expr,
                "numbers": numbers[entry.id],
                "picture": picture_url(picture) if picture else "",
            }
        )
        kind = "original" if entry is report.baseline else "known" if entry.known else "found"
        found += [
            {
                "entry": len(entries) - 1,
                "part": part,
                "kind": kind,
                "x": latency,
                "y": scale * value,
                "err": scale * (getattr(entry, f"{part}_stderr") or 0.0),
                "best": entry.id == report.best,
                "front": entry.front_test if part == "test" else entry.front,
            }
            for part, value in values.items()
            if value is not None
        ]
    unit = f"{report.metric}, %" if scale == 100.0 else report.metric
    return {
        "metric": report.metric,
        "x": f"latency of the network, µs (batch {report.batch}, {report.threads} thread)",
        "y": unit if report.higher_is_better else f"{unit} (lower is better)",
        "entries": entries,
        "points": found,
    }


def embedded(data: dict[str, Any]) -> str:
    """JSON that ends no element of the page, whatever names are in it."""
    text = msgspec.json.encode(data).decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def picture_url(svg: str) -> str:
    """As an image, in which nothing runs: a report may have been read from a stranger's file."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
