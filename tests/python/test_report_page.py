"""A report's page in a browser: the plot answers to pointer and keyboard, in light and dark, on a phone, without a network, and runs
nothing that a report holds.

Skipped where no Chromium is installed (Debian's package `chromium`), but for what needs none.
"""

from __future__ import annotations

import json
import random
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from browser import dom_of, screenshot

from syno.report import Entry, Report, to_html
from syno.report.front import embedded, policy, script
from syno.support.machine import describe_machine

SVG = "<svg xmlns='http://www.w3.org/2000/svg' width='40' height='20'><rect width='40' height='20'/></svg>"


def entry(number: int, random: random.Random) -> Entry:
    value = random.gauss(0.84, 0.02)
    judged = {"test": value - 0.004, "test_stderr": 0.003, "seeds": [0, 1]} if number < 6 else {}
    return Entry(
        id=f"c{number}",
        expr=f"y[n] = x[n] < {number} & more",
        state="done",
        accuracy=value,
        validation=value,
        validation_stderr=0.004,
        latency_us=random.lognormvariate(6.0, 0.5),
        flops=random.randint(10**5, 10**7),
        origin="known: grouped(g=4)" if number % 4 == 0 else "found",
        front=number in (1, 2, 3),
        front_test=number == 2,
        **judged,  # type: ignore[arg-type]
    )


def report_of(count: int, **changes: Any) -> Report:
    drawn = random.Random(0)
    original = Entry(
        id="original", expr="the original layers", state="done", validation=0.86, validation_stderr=0.003,
        test=0.855, test_stderr=0.003, accuracy=0.86, latency_us=800.0, origin="original",
    )  # fmt: skip
    made = Report(
        title="Search digits", task="digits", metric="accuracy", higher_is_better=True, machine=describe_machine(),
        threads=1, batch=1, seeds=[0], command="syno search digits -o runs/a", baseline=original,
        candidates=[entry(i, drawn) for i in range(1, count + 1)], best="c2", comparison=None,
        conclusion="Twice as fast.", drawings={"c2": SVG}, pictures={"c2": SVG},
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def page(folder: Path, report: Report, after: str = "") -> Path:
    """The page; with a script of the test's own after it, for which the policy is taken away."""
    text = to_html(report)
    if after:
        text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
        text = text.replace("</body>", f"<script>{after}</script></body>")
    path = folder / "report.html"
    path.write_text(text, encoding="utf-8")
    return path


def points(report: Report) -> dict[str, Any]:
    found = re.search(
        r'<script type="application/json" id="points">(.*?)</script>', to_html(report)
    )
    assert found
    return dict(json.loads(found[1]))


# --- without a browser


def test_the_plot_has_every_network_with_its_numbers() -> None:
    report = report_of(12)
    data = points(report)
    assert [e["id"] for e in data["entries"]] == ["original", *(f"c{i}" for i in range(1, 13))]
    assert len(data["points"]) == 13 + 6  # validation of all, test of those that were judged
    second = data["entries"][2]
    assert second["picture"].startswith("data:image/svg+xml;base64,")
    assert ["FLOPs", f"{report.candidates[1].flops:,}"] in second["numbers"]
    kinds = [p["kind"] for p in data["points"] if p["part"] == "validation"]
    assert kinds.count("known") == 3 and kinds.count("original") == 1


def test_names_end_no_element_of_the_page() -> None:
    evil = "</script><script>alert(1)</script>"
    assert "<" not in embedded({"a": evil}) and json.loads(embedded({"a": evil})) == {"a": evil}
    report = report_of(3)
    report.candidates[0].expr = evil
    assert to_html(report).count("<script") == 2


def test_the_policy_allows_the_page_s_own_script_alone() -> None:
    text = to_html(report_of(1))
    assert policy().replace("'", "&#39;") in text or policy() in text
    assert "default-src 'none'" in policy() and "unsafe-eval" not in policy()
    assert "script-src 'sha256-" in policy() and f"<script>{script()}</script>" in text
    assert "innerHTML" not in script() and "eval" not in script()


def test_pictures_and_tables_have_words() -> None:
    text = to_html(report_of(3))
    assert all('alt="' in image for image in re.findall(r"<img [^>]*>", text))
    assert 'role="img" aria-label="' in text and '<html lang="en">' in text and "<main>" in text
    assert "<th>" not in text and 'scope="col"' in text


# --- in a browser


def test_the_plot_is_drawn_by_the_page_itself(tmp_path: Path) -> None:
    dom = dom_of(page(tmp_path, report_of(12)), tmp_path / "p")
    assert dom.count('class="mark ') == 19
    assert dom.count('class="mark known') == 3 + 1 and dom.count('class="step ') == 2
    assert re.search(r'<div class="still"[^>]* hidden', dom)
    assert dom.count("aria-pressed") - dom.count("button[aria-pressed") >= 6


def test_nothing_of_a_stranger_runs(tmp_path: Path) -> None:
    made = report_of(3)
    text = to_html(made).replace(
        "</main>",
        "<script>document.title = 'ran'</script><img src=x onerror=\"document.title = 'ran'\"></main>",
    )
    path = tmp_path / "evil.html"
    path.write_text(text, encoding="utf-8")
    dom = dom_of(path, tmp_path / "p")
    assert "<title>Search digits</title>" in dom
    assert 'class="mark ' in dom  # its own did


ASK = """
const key = (name) => document.querySelector('.asks > svg').dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true}));
const press = (name) => [...document.querySelectorAll('.toggles button')].find((b) => b.textContent === name).click();
const said = (name) => document.body.setAttribute('data-' + name, document.querySelector('.asked').textContent + '|' +
    document.querySelectorAll('.mark').length + '|' + document.querySelectorAll('.asked img').length);
"""


def told(dom: str, name: str) -> tuple[str, int, int]:
    found = re.search(rf'data-{name}="(.*?)\|(\d+)\|(\d+)"', dom, re.S)
    assert found, name
    return found[1], int(found[2]), int(found[3])


def test_arrow_keys_pointer_and_toggles_answer(tmp_path: Path) -> None:
    report = report_of(12)
    steps = (
        ASK
        + "key('ArrowRight'); said('first'); key('End'); said('last'); key('Escape'); said('none');"
        "const c2 = [...document.querySelectorAll('.mark')].find((m) => m.querySelector('title').textContent === 'c2');"
        "c2.dispatchEvent(new PointerEvent('pointerenter')); said('pointed');"
        "press('known'); said('unknown'); press('test'); press('log latency'); said('less');"
        "press('found'); press('validation'); press('known'); said('least');"
    )
    dom = dom_of(page(tmp_path, report, steps), tmp_path / "p")
    timed = sorted([report.baseline, *report.candidates], key=lambda e: e.latency_us or 0.0)
    assert told(dom, "first")[0].startswith(timed[0].id)
    assert told(dom, "last")[0].startswith(timed[-1].id)
    assert "Point at a network" in told(dom, "none")[0]
    text, marks, pictures = told(dom, "pointed")
    assert (
        text.startswith("c2: found") and "y[n] = x[n] &lt; 2 &amp; more" in text and "FLOPs" in text
    )
    assert (marks, pictures) == (19, 1)
    assert told(dom, "unknown")[1] == 15
    assert told(dom, "less")[1] == 11  # no test but the original's
    assert told(dom, "least")[1] == 2  # the original


@pytest.mark.parametrize(
    "changes", [{"candidates": []}, {"metric": "loss", "higher_is_better": False}]
)
def test_few_networks_and_other_metrics_are_drawn(tmp_path: Path, changes: dict[str, Any]) -> None:
    dom = dom_of(page(tmp_path, report_of(5, **changes)), tmp_path / "p")
    assert 'class="mark original' in dom and "NaN" not in dom.split("<script")[0]
    assert ("lower is better" in dom) == ("metric" in changes)


def pixels(path: Path) -> tuple[int, int, bytes]:
    """Width, height and the first pixel of a PNG without interlacing, as browsers write it."""
    data = path.read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    body, at = b"", 8
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        if kind == b"IDAT":
            body += data[at + 8 : at + 8 + length]
        at += 12 + length
    return width, height, zlib.decompress(body)[1:4]


@pytest.mark.parametrize("count", [12, 800])
@pytest.mark.parametrize("dark", [False, True])
def test_screenshots_in_light_and_dark_of_a_small_and_a_large_session(
    tmp_path: Path, count: int, dark: bool
) -> None:
    path = page(tmp_path, report_of(count))
    shot = screenshot(path, tmp_path / "p", tmp_path / "shot.png", width=1200, dark=dark)
    width, height, corner = pixels(shot)
    assert (width, height) == (1200, 900)
    assert max(corner) < 60 if dark else min(corner) > 240
    assert shot.stat().st_size > 20_000  # something is drawn


WIDTH = "document.body.setAttribute('data-width', document.documentElement.scrollWidth + '|' + innerWidth);"


def test_nothing_is_wider_than_a_phone(tmp_path: Path) -> None:
    long = {"c2": "for i < 3: " + "x" * 400}
    path = page(tmp_path, report_of(12, loops=long, command="syno " + "y" * 300), WIDTH)
    found = re.search(r'data-width="(\d+)\|(\d+)"', dom_of(path, tmp_path / "p", width=500))
    assert found and int(found[1]) <= int(found[2]), "the page scrolls sideways"
