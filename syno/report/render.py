"""Renders a report as self-contained HTML, Markdown or CSV."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence
from pathlib import Path

import msgspec

from syno.errors import FormatError
from syno.operators.mathematics import mathml
from syno.report.front import embedded, picture_url, points, policy, script
from syno.report.model import Entry, Report
from syno.support.files import not_a_file, write_output
from syno.support.numbers import significant

TEMPLATES = Path(__file__).with_name("templates")
#: Of the files that a report can be written as.
SUFFIXES = (".html", ".md", ".csv", ".json", ".png", ".svg")


def _percent(report: Report, value: float | None, digits: int = 2) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.{digits}f} %" if report.metric == "accuracy" else significant(value, 4)


def _spread(report: Report, value: float) -> str:
    return f"{100 * value:.2f}" if report.metric == "accuracy" else significant(value, 2)


def accuracy_text(report: Report, entry: Entry) -> str:
    """``88.31 % ± 0.35`` with the standard error, and the seeds' deviation where there are several."""
    text = _percent(report, entry.accuracy)
    if entry.accuracy is not None and entry.accuracy_stderr is not None:
        text += f" ± {_spread(report, entry.accuracy_stderr)}"
    if entry.accuracy_std is not None and entry.seeds_count > 1:
        text += f" (sd {_spread(report, entry.accuracy_std)}, {entry.seeds_count} seeds)"
    return text


def _part_text(
    report: Report, value: float | None, stderr: float | None, seeds: Sequence[int] = ()
) -> str:
    text = _percent(report, value)
    if value is not None and stderr is not None:
        text += f" ± {_spread(report, stderr)}"
    if seeds:
        text += (
            f" (seeds {', '.join(map(str, seeds))})" if len(seeds) > 1 else f" (seed {seeds[0]})"
        )
    return text


def _latency_text(entry: Entry) -> str:
    if entry.latency_us is None or not entry.latency_iqr_us:
        return _number(entry.latency_us, "µs")
    return f"{significant(entry.latency_us)} ± {significant(entry.latency_iqr_us / 2, 2)} µs"


def parts_of(report: Report) -> list[str]:
    """The columns of the metric: validation and test apart, where the report knows them apart."""
    entries = [report.baseline, *report.candidates]
    if all(e.validation is None and e.test is None for e in entries):
        return ["accuracy"]
    return ["validation", "test"] if any(e.test is not None for e in entries) else ["validation"]


def columns_of(report: Report, *left_out: str) -> dict[str, str]:
    """The columns of :func:`rows` that a table shows, with their heads."""
    hidden = {"accuracy", "validation", "test"} - set(parts_of(report)) | set(left_out)
    heads = {n: f"{report.metric}, {n}" for n in ("validation", "test")}
    heads |= {"accuracy": report.metric, "id": ""}
    return {name: heads.get(name, name) for name in rows(report)[0] if name not in hidden}


def _number(value: float | int | None, unit: str = "") -> str:
    if value is None:
        return "–"
    text = f"{value:,}" if isinstance(value, int) else significant(value)
    return f"{text} {unit}".strip()


def rows(report: Report) -> list[dict[str, str]]:
    """The table of a report, one row a network: the original first, then by accuracy."""
    sign = -1.0 if report.higher_is_better else 1.0
    ordered = sorted(
        report.candidates,
        key=lambda e: (e.accuracy is None, sign * (e.accuracy or 0.0), len(e.id), e.id),
    )
    table = []
    for entry in [report.baseline, *ordered]:
        table.append(
            {
                "id": entry.id,
                "mark": "best" if entry.id == report.best else "",
                "front": "●" * entry.front + "◆" * entry.front_test,
                "origin": entry.origin,
                "accuracy": accuracy_text(report, entry),
                "validation": _part_text(report, entry.validation, entry.validation_stderr),
                "test": _part_text(report, entry.test, entry.test_stderr, entry.seeds),
                "latency": _latency_text(entry),
                **{
                    f"{name} latency": _number(entry.targets_us.get(name), "µs")
                    for name in report.targets
                },
                "op latency": _number(entry.op_latency_us, "µs"),
                "FLOPs": _number(entry.flops),
                "params": _number(entry.params),
                "verified": _verified_text(entry),
                "state": entry.state + (f": {entry.reason}" if entry.reason else ""),
                "formula": entry.expr,
            }
        )
    return table


def _verified_text(entry: Entry) -> str:
    if not entry.verified:
        return "–" if entry.origin == "original" else "no"  # it has no operators to verify
    return "yes" if entry.max_rel_err is None else f"yes, {entry.max_rel_err:.1e}"


def original_text(report: Report) -> str:
    """The original's times by who ran it."""
    return ", ".join(f"{name} {significant(us)} µs" for name, us in report.original_us.items())


def side_by_side(report: Report) -> list[dict[str, str]]:
    """The original, the best known operator and the best that was found, of those that were judged on the test part;
    empty where one of the three is missing."""
    judged = [e for e in report.candidates if e.test is not None and e.latency_us is not None]
    known = _first_of(report, [e for e in judged if e.known])
    found = _first_of(report, [e for e in judged if not e.known])
    base = report.baseline
    if known is None or found is None or base.test is None or base.latency_us is None:
        return []
    return [
        {
            "network": entry.id,
            "operator": entry.origin,
            "verdict": _held(report, entry),
            f"{report.metric}, test": _part_text(report, entry.test, entry.test_stderr),
            "latency": _latency_text(entry),
            "speed": f"{base.latency_us / (entry.latency_us or base.latency_us):.2f}×",
            "multiply-adds": _number(entry.flops),
            "parameters": _number(entry.params),
        }
        for entry in (base, known, found)
    ]


def _first_of(report: Report, entries: Sequence[Entry]) -> Entry | None:
    """The one that leads: as the verdict orders them, else the most accurate."""
    verdict = report.verdict
    judged = [] if verdict is None else verdict.judged
    order = {"proven": 0, "undecided": 1, "worse": 2, "implausible": 3}
    ranks = {one.id: (order[one.held], i) for i, one in enumerate(judged)}
    sign = -1.0 if report.higher_is_better else 1.0
    if verdict is not None and verdict.leader is not None:
        ranks[verdict.leader] = (order["undecided"], -1)
    rows = [(ranks.get(e.id, (4, 0)), sign * (e.test or 0.0), i, e) for i, e in enumerate(entries)]
    return min(rows, key=lambda row: row[:3])[3] if rows else None


def _held(report: Report, entry: Entry) -> str:
    """What the verdict says of a network, in a word or two."""
    if entry is report.baseline:
        return ""
    if entry.id == report.best:
        return "winner"
    judged = [] if report.verdict is None else report.verdict.judged
    return next((one.held for one in judged if one.id == entry.id), "not faster")


def layer_rows(report: Report) -> dict[str, list[dict[str, str]]]:
    """By finalist: a row for each replaced layer, before → after."""

    def pair(before: float | int | None, after: float | int | None) -> str:
        return f"{_number(before)} → {_number(after)}"

    return {
        id: [
            {
                "site": one.site,
                "layer": one.layer,
                "µs": pair(one.before_us, one.after_us),
                "multiply-adds": pair(one.before_flops, one.after_flops),
                "parameters": pair(one.before_params, one.after_params),
            }
            for one in layers
        ]
        for id, layers in report.replaced.items()
    }


def given_text(report: Report) -> str:
    """``97.98 % ± 0.31 on 2,000 examples of validation; …``; empty where the model was not judged as it was handed in."""
    return "; ".join(
        f"{_percent(report, one.value)} ± {_spread(report, one.stderr)} on {one.count:,} examples of {part}"
        for part, one in report.given.items()
    )


def to_html(report: Report) -> str:
    """One HTML file with no outside references."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined
    )
    best = next((e for e in report.candidates if e.id == report.best), None)
    table = rows(report)
    told = columns_of(report, "id", "mark", "origin", "formula", "front", "state")
    numbers = {
        row["id"]: [(head, row[name]) for name, head in told.items() if row[name] != "–"]
        for row in table
    }
    return environment.get_template("report.html").render(
        report=report,
        rows=[
            row | {"state": state, "reason": reason}
            for row in table
            for state, _, reason in [row["state"].partition(": ")]
        ],
        columns=columns_of(report, "mark", "formula") | {"op latency": "sites"},
        best=best,
        best_accuracy=accuracy_text(report, best) if best else "",
        baseline_accuracy=accuracy_text(report, report.baseline),
        given=given_text(report),
        original=original_text(report),
        detailed=[e for e in report.candidates if e.id in {*report.finalists, *report.words}],
        layers=layer_rows(report),
        formulas={
            id: {name: mathml(latex) for name, latex in found.items()}
            for id, found in report.formulas.items()
        },
        picture_url=picture_url,
        us=significant,
        plot=_plot(report),
        points=embedded(points(report, numbers)),
        script=script(),
        policy=policy(),
        beside=side_by_side(report),
    )


def _plot(report: Report) -> str:
    """The Pareto plot as SVG; a sentence in its place where matplotlib is not installed."""
    from syno.report.plot import figure_svg, pareto_figure

    try:
        return figure_svg(pareto_figure(report))
    except FormatError as error:
        return f"<p>{html.escape(str(error))}</p>"


def to_fragment(report: Report) -> str:
    """What a notebook shows: conclusion, plot and table, as HTML to stand inside a page."""
    table = rows(report)
    columns = list(columns_of(report, "mark"))
    heads = list(columns_of(report, "mark").values())
    lines = [f"<h3>{html.escape(report.title)}</h3><p>{html.escape(report.conclusion)}</p>"]
    lines.append(_plot(report))
    lines.append(f"<table><tr>{''.join(f'<th>{html.escape(h)}</th>' for h in heads)}</tr>")
    for row in table:
        style = " style='font-weight:bold'" if row["mark"] else ""
        cells = "".join(f"<td>{html.escape(row[c])}</td>" for c in columns)
        lines.append(f"<tr{style}>{cells}</tr>")
    return "\n".join(lines) + "</table>"


def to_markdown(report: Report) -> str:
    """A Markdown page: conclusion, table, conditions."""
    table = rows(report)
    columns = list(columns_of(report, "mark", "front"))
    heads = ["id" if c == "id" else h for c, h in columns_of(report, "mark", "front").items()]
    lines = [f"# {report.title}", "", report.conclusion, ""]
    if beside := side_by_side(report):
        lines += ["| " + " | ".join(beside[0]) + " |", "|" + "---|" * len(beside[0])]
        lines += ["| " + " | ".join(row.values()) + " |" for row in beside] + [""]
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(columns)]
    for row in table:
        cells = [row[c].replace("|", "\\|") for c in columns]
        if row["mark"]:
            cells[0] = f"**{cells[0]}**"
        cells[-1] = f"`{cells[-1]}`"
        lines.append("| " + " | ".join(cells) + " |")
    for id in dict.fromkeys([*report.finalists, *report.words]):
        lines += ["", f"## {id}", ""]
        if id in report.words:
            lines += [report.words[id]]
        if id in report.finalists:
            lines += [f"A finalist: {report.finalists[id]}."]
        if layers := layer_rows(report).get(id):
            lines += ["", "| " + " | ".join(layers[0]) + " |", "|" + "---|" * len(layers[0])]
            lines += ["| " + " | ".join(row.values()) + " |" for row in layers]
    if report.code:
        lines += ["", "```python", report.code, "```"]
    lines += ["", f"Machine: {report.machine}; measured {report.machine.measured_at}."]
    lines += [
        f"Latency: batch {report.batch}, {report.threads} thread(s), median ± half the interquartile range, in turns with the original"
        + (f"; networks {report.runner}." if report.runner else ".")
    ]
    if len(report.original_us) > 1:
        lines += [f"The original: {original_text(report)}."]
    if report.given:
        lines += [f"The model as it was handed in: {report.metric} {given_text(report)}."]
    if report.recipe:
        lines += ["Recipe: " + "; ".join(f"{k}: {v}" for k, v in report.recipe.items()) + "."]
    lines += [f"Seeds: {', '.join(map(str, report.seeds))}. Again: `{report.command}`"]
    lines += [f"- {note}" for note in report.notes]
    return "\n".join(lines) + "\n"


def to_csv(report: Report) -> str:
    """One line a network, raw numbers."""
    buffer = io.StringIO()
    fields = [f.name for f in msgspec.structs.fields(Entry)]
    writer = csv.DictWriter(buffer, fields)
    writer.writeheader()
    for entry in [report.baseline, *report.candidates]:
        writer.writerow({name: getattr(entry, name) for name in fields})
    return buffer.getvalue()


def write_report(report: Report, path: Path) -> None:
    """Writes ``path`` in the format its suffix names: .html, .md, .csv, .json, .png or .svg.

    Raises:
        FormatError: another suffix, or it cannot be written.
    """
    suffix = path.suffix.lower()
    text: str | bytes
    if suffix in (".png", ".svg"):
        from syno.report.plot import pareto_figure

        drawn = io.BytesIO()
        pareto_figure(report).savefig(drawn, format=suffix[1:], dpi=150)
        text = drawn.getvalue()
    elif suffix == ".html":
        text = to_html(report)
    elif suffix == ".md":
        text = to_markdown(report)
    elif suffix == ".csv":
        text = to_csv(report)
    elif suffix == ".json":
        text = msgspec.json.format(msgspec.json.encode(report), indent=1).decode() + "\n"
    else:
        raise FormatError(
            f"[report] cannot write '{path.name}': the suffix must be one of {', '.join(SUFFIXES)}"
        )
    write_output(path, text, "report")


def read_report(path: Path) -> Report:
    """Reads ``report.json``; FormatError when it is something else or newer."""
    if kind := not_a_file(path):
        raise FormatError(f"[report] {path} is not a syno report: it is {kind}")
    try:
        report = msgspec.json.decode(path.read_bytes(), type=Report)
    except msgspec.MsgspecError as error:
        raise FormatError(f"[report] {path} is not a syno report: {error}") from error
    if report.format != "syno-report" or report.version > 1:
        raise FormatError(
            f"[report] {path} has format {report.format!r} version {report.version}; "
            "this syno reads 'syno-report' version 1"
        )
    return report
