"""Reports say what was measured and claim nothing beyond the uncertainty."""

from __future__ import annotations

import base64
import csv
import io
import sys
from pathlib import Path

import msgspec
import pytest

from syno.errors import FormatError
from syno.report import (
    Comparison,
    Entry,
    Report,
    read_report,
    rows,
    to_csv,
    to_html,
    to_markdown,
    write_report,
)
from syno.support.machine import describe_machine


def entry(name: str, accuracy: float | None, latency_us: float | None, **more: object) -> Entry:
    return Entry(
        id=name,
        expr=f"y[n] = {name} < & | x[n]",
        state="done",
        accuracy=accuracy,
        accuracy_stderr=0.004,
        latency_us=latency_us,
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture
def report() -> Report:
    best = entry(
        "c2", 0.88, 400.0, verified=True, max_rel_err=2e-7, seeds_count=3, accuracy_std=0.001
    )
    return Report(
        title="Search <demo>",
        task="a task",
        metric="accuracy",
        higher_is_better=True,
        machine=describe_machine(),
        threads=1,
        batch=1,
        seeds=[0, 1, 2],
        command="syno demo --seed 0",
        baseline=entry("original", 0.882, 800.0),
        candidates=[entry("c1", 0.7, 500.0), best, entry("c3", None, None, reason="a|b")],
        best="c2",
        comparison=Comparison(
            id="c2", speedup=2.0, accuracy_difference=-0.002, uncertainty=0.01, verdict="as good"
        ),
        conclusion="Twice as fast.",
        pictures={"c2": "<svg></svg>"},
        loops={"c2": "for i < 3"},
    )


def test_json_is_read_back_equal(report: Report, tmp_path: Path) -> None:
    write_report(report, tmp_path / "report.json")
    assert read_report(tmp_path / "report.json") == report


def test_html_is_self_contained_and_escapes_what_it_shows(report: Report) -> None:
    page = to_html(report)
    assert "Search &lt;demo&gt;" in page
    assert "c2 &lt; &amp; | x[n]" in page
    assert base64.b64encode(b"<svg></svg>").decode() in page
    assert "http://" not in page.replace("http://www.w3.org", "").replace(
        "http://purl.org", ""
    ).replace("http://creativecommons.org", "")
    assert page.count("<script") == 2 and "<link" not in page  # the plot and its data
    assert 'src="http' not in page and "fetch(" not in page and "import(" not in page


def test_html_draws_formulas_and_runs_nothing_of_a_stranger_s_report(report: Report) -> None:
    evil = "<script>alert(1)</script>"
    made = msgspec.structs.replace(
        report,
        formulas={
            "c2": {"": r"y[n] = \sum_{k} x[n, k]", "conv2d": rf"\text{{{evil}}}"},
            evil: {evil: evil},
        },
        words={"c2": evil},
        finalists={"c2": evil},
        recipe={evil: evil},
        notes=[evil],
        pictures={"c2": f"<svg>{evil}</svg>", evil: evil},
    )
    page = to_html(made)
    assert page.count("<math") == 2 and "∑" in page
    assert evil not in page and page.count("<script") == 2  # the plot and its data


def test_every_column_of_the_table_has_its_name_where_the_page_is_narrow(report: Report) -> None:
    page = to_html(report)
    for part in page.split("<h2>All networks</h2>")[1].split("</table>")[0].split("<td")[1:]:
        assert 'data-name="' in part.split(">")[0]
    assert "a|b" in page  # the reason of c3, beside its formula


def test_markdown_and_csv_hold_every_network(report: Report) -> None:
    text = to_markdown(report)
    assert "**c2**" in text and "a\\|b" in text
    parsed = list(csv.DictReader(io.StringIO(to_csv(report))))
    assert [row["id"] for row in parsed] == ["original", "c1", "c2", "c3"]
    assert float(parsed[2]["latency_us"]) == 400.0


def test_the_original_is_the_first_row_and_missing_numbers_are_dashes(report: Report) -> None:
    table = rows(report)
    assert [row["id"] for row in table] == ["original", "c2", "c1", "c3"]
    assert table[-1]["accuracy"] == "–"


@pytest.mark.parametrize("suffix", [".html", ".md", ".csv", ".json", ".png", ".svg"])
def test_every_format_is_written(report: Report, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "deep" / f"report{suffix}"
    write_report(report, path)
    assert path.stat().st_size > 100


def test_an_unknown_suffix_names_the_valid_ones(report: Report, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"\.html, \.md"):
        write_report(report, tmp_path / "report.docx")


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"format": "other"}', b"\xff\xfe", b"[1,2]"])
def test_a_damaged_report_is_refused_with_a_sentence(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(damage)
    with pytest.raises(FormatError, match="is not a syno report"):
        read_report(path)


def test_a_newer_report_is_refused(report: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(report, version=2)))
    with pytest.raises(FormatError, match="version 2"):
        read_report(path)


def test_a_report_and_its_plot_show_themselves_in_notebooks(report: Report) -> None:
    shown = report._repr_html_()
    assert "<svg" in shown and "<table" in shown
    assert "Twice as fast." in shown and "88.00 %" in shown
    assert "c2 &lt; &amp; | x[n]" in shown and "<html" not in shown


def test_a_metric_of_any_unit_keeps_its_digits_and_its_direction(report: Report) -> None:
    small = msgspec.structs.replace(report.baseline, accuracy=3.25e-5, accuracy_stderr=4.1e-6)
    worse = msgspec.structs.replace(report.candidates[1], accuracy=5e-5, accuracy_stderr=4e-6)
    better = msgspec.structs.replace(report.candidates[0], accuracy=2e-5, accuracy_stderr=4e-6)
    made = msgspec.structs.replace(
        report, metric="mse", higher_is_better=False, baseline=small, candidates=[worse, better]
    )
    table = rows(made)
    assert table[0]["accuracy"] == "0.00003250 ± 0.0000041"
    assert [row["id"] for row in table] == ["original", better.id, worse.id]
    text = to_markdown(made)
    assert "| mse |" in text and "accuracy" not in text
    assert "mse (lower is better)" in to_html(made)


def test_without_matplotlib_a_report_lacks_its_plot_and_no_more(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    write_report(report, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Twice as fast." in page and "syno[plot]" in page
    with pytest.raises(FormatError, match=r"pip install .syno\[plot\]"):
        write_report(report, tmp_path / "report.png")


def test_candidates_without_accuracy_stand_in_the_order_of_their_numbers(report: Report) -> None:
    ids = ["c10", "c3", "c1", "c20"]
    untrained = [msgspec.structs.replace(report.candidates[0], id=i, accuracy=None) for i in ids]
    table = rows(msgspec.structs.replace(report, candidates=untrained))
    assert [row["id"] for row in table[1:]] == ["c1", "c3", "c10", "c20"]
