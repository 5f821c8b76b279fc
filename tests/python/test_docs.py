"""The documentation: every block of code runs, every public name is in the reference, the site is whole and needs no network.

What trains takes a minute: `scripts/test docs` runs it (SYNO_TEST_DOCS=all), other runs leave it out.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from document_blocks import DOCS, PAGES, ROOT, SHOWN, UNRUN, blocks, run_page
from patience import PATIENCE_S

import syno

pytest.importorskip("torch")
SLOW = os.environ.get("SYNO_TEST_DOCS") == "all"


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.filterwarnings("ignore")
def test_every_block_of_a_page_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DOCS / name).read_text(encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        run_page(text, name, tmp_path, slow=SLOW)


def test_pages_with_results_are_tested_as_examples() -> None:
    shown = [name for name in PAGES if ">>> " in (DOCS / name).read_text(encoding="utf-8")]
    assert shown == ["expressions.md"], "test_expressions.py runs that one"


@pytest.mark.parametrize("name", PAGES)
def test_every_block_says_what_it_is_and_why_it_is_not_run(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    found = blocks(text)
    assert text.count("\n```") + text.startswith("```") == 2 * len(found), "a block has no end"
    for block in found:
        assert block.language in SHOWN | {"python", "bash"}, f"{name}:{block.line}"
        if block.language == "":  # formulas
            assert "=" in block.text and "import" not in block.text
        if block.remark == "not run":
            lines = [line for line in block.text.splitlines() if line]
            assert all(line.startswith(UNRUN[block.reason]) for line in lines), (
                f"{name}:{block.line}"
            )
        if block.language == "cpp":
            assert name.endswith("derivation_rule.md")


def test_a_block_that_fails_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run_page("```python\n1 / 0\n```\n", "p.md", tmp_path, slow=False)
    with pytest.raises(AssertionError, match=r"p\.md:2 ended with 3"):
        run_page("```bash\nexit 3\n```\n", "p.md", tmp_path, slow=False)
    assert (
        run_page("<!-- slow: trains -->\n```python\n1 / 0\n```\n", "p.md", tmp_path, slow=False)
        == 0
    )


def test_commands_of_pages_exist() -> None:
    from syno.cli.main import app

    commands = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    commands |= {group.name for group in app.registered_groups}
    for name in PAGES:
        text = (DOCS / name).read_text(encoding="utf-8")
        for found in re.findall(r"(?:`|^)syno ([a-z]+)", text, re.MULTILINE):
            assert found in commands, f"{name}: syno {found}"


def test_folders_and_files_that_pages_name_are_there() -> None:
    from test_contributing import missing_paths

    for name in PAGES:
        text = (DOCS / name).read_text(encoding="utf-8")
        assert missing_paths(re.sub(r"\]\([\w./-]+\)", "]", text)) == [], name


# --- the site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with warnings as errors."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "PYTHONPATH": str(Path(syno.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, ModuleType]]:
    pytest.importorskip("mkdocs")
    pytest.importorskip("griffe")
    sys.path.insert(0, str(DOCS / "made"))
    try:
        yield {name: importlib.import_module(name) for name in ("levels", "reference", "results")}
    finally:
        sys.path.pop(0)


def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for name in PAGES:
        assert (site / name).with_suffix(".html").is_file(), name
    loading = re.compile(
        r"""(?:src|href)=["']?(https?:)?//[^"' >]+|url\(["']?(https?:)?//|@import"""
    )
    for page in [*site.rglob("*.html"), *(site / "assets").rglob("*.css")]:
        text = page.read_text(encoding="utf-8")
        loaded = [m[0] for m in loading.finditer(text) if "w3.org" not in m[0]]
        links = [m for m in loaded if not re.search(rf"<a [^>]*{re.escape(m)}", text)]
        assert links == [], f"{page.name} loads {links[:3]}"


def test_search_works_from_a_disk(site: Path, tmp_path: Path) -> None:
    from browser import dom_of

    for words, least in (("winograd", 1), ("zzzxyzzy", 0)):
        page = dom_of(site / "index.html", tmp_path, query=f"q={words}")
        found = re.search(r"md-search-result__meta[^>]*>([^<]*)", page)
        assert found, "there is no search"
        count = re.search(r"(\d+|No) matching", found[1])
        assert count and (int(count[1]) if count[1] != "No" else 0) >= least, found[1]
        assert (count[1] == "No") == (least == 0), found[1]


def test_nothing_that_was_to_be_made_is_left(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert "{{ " not in page.read_text(encoding="utf-8"), page.name


def test_the_site_shows_one_operator_at_every_level(site: Path) -> None:
    page = (site / "concepts" / "one_operator.html").read_text(encoding="utf-8")
    for words in ("<math", "unfold", "split y", "for k in", "define", "vfmadd", "verified"):
        assert words in re.sub(r"<span[^>]*>|</span>", "", page), words
    for name in ("pgraph", "derivation"):
        assert f'src="{name}.svg"' in page
        assert (site / "concepts" / f"{name}.svg").read_text(encoding="utf-8").count("<") > 50
    for picture in re.findall(r"<img [^>]*>", page):
        assert re.search(r'alt="[^"]{20,}"', picture), picture


def test_the_operator_s_levels_are_the_same_every_time(made: dict[str, ModuleType]) -> None:
    first = made["levels"].drawn()
    assert made["levels"].drawn() == first
    assert "kernel_y" in first["llvm"] and len(first) == 11


def test_every_public_name_and_variable_is_in_the_reference(
    made: dict[str, ModuleType], site: Path
) -> None:
    reference = made["reference"]
    assert reference.missing() == set()
    assert reference.undescribed() == []
    pages = {
        name: (site / "reference" / f"{name}.html").read_text("utf-8") for name in reference.AREAS
    }
    for area, (_, _, names) in reference.AREAS.items():
        for name in names:
            assert f'id="{reference.where(name)}"' in pages[area], name
    variables = (site / "reference" / "environment.html").read_text("utf-8")
    from syno._environment import VARIABLES

    assert all(f"<code>{name}</code>" in variables for name in VARIABLES)


def test_the_reference_says_what_every_parameter_is(made: dict[str, ModuleType]) -> None:
    reference = made["reference"]
    assert len(reference.entries()) > 400
    assert reference.unnamed_parameters() == {}


def test_what_is_checked_of_parameters_is_what_the_pages_show(
    made: dict[str, ModuleType], site: Path
) -> None:
    heading = re.compile(r'doc-(?:function|class)">\s*<h\d id="([^"]+)"')
    pages = [(site / "reference" / f"{name}.html") for name in made["reference"].AREAS]
    shown = {name for page in pages for name in heading.findall(page.read_text("utf-8"))}
    assert shown == set(made["reference"].entries())


PARAMETERS = '''
from dataclasses import dataclass

def whole(a: int, *b: int, c: int = 0, zero: int = 0) -> None:
    """Adds.

    Args:
        a, b: numbers.
        c: another.
    Raises:
        KernelError: the sum is not ``zero``.
    """

def told(a: int, c: int) -> None:
    """Adds ``a`` to the c of :func:`whole`; ``path/to/c`` is no word of it."""

def alike(a: int, *, c: int) -> None:
    """Numbers as :func:`whole` takes them."""

class Made:
    """Made by :func:`whole`."""
    def __init__(self, a: int) -> None: ...
    def method(self, a: int) -> None:
        """Something."""

@dataclass
class Row:
    """Made by :func:`whole`."""
    a: int
    b: int
    """A number."""
'''


def test_a_parameter_without_a_word_is_noticed(made: dict[str, ModuleType]) -> None:
    import griffe

    reference = made["reference"]
    extensions = griffe.load_extensions(reference.Sections())
    with griffe.temporary_visited_package(
        "few", {"__init__.py": PARAMETERS}, extensions=extensions
    ) as package:
        shown: dict[str, object] = {}
        reference._collect(package, "few", shown)
    assert reference.unnamed_parameters(shown) == {
        "few.whole": ["zero"],
        "few.told": ["c"],
        "few.Made.method": ["a"],
        "few.Row": ["a"],
    }


def test_every_command_and_option_is_in_the_reference(made: dict[str, ModuleType]) -> None:
    from test_cli_usage import options

    page = made["reference"].command_line()
    for command, name, _, _ in options():
        shown = {"compile_network": "compile"}.get(command, command)
        section = page.split(f"## `syno {shown}`", 1)[1].split("\n## ")[0]
        flag = name.replace("_", "-")
        assert f"--{flag}" in section or "--set" in section or "--rule" in section, (
            f"{command} {name}"
        )


def test_tables_of_results_name_machine_date_and_command(made: dict[str, ModuleType]) -> None:
    results = made["results"]
    for name, table in results.TABLES.items():
        text = table()
        assert re.search(r"Measured on .*2026-\d\d-\d\d", text), name
        assert "python benchmarks/" in text and "| --- |" in text, name
        widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
        assert len(widths) == 1, f"{name}: rows of different widths"


def test_a_table_shows_the_numbers_of_its_file(
    made: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = made["results"]
    found = json.loads((results.RESULTS / "networks.json").read_text("utf-8"))
    found["networks"] = found["networks"][:1]
    found["networks"][0]["us"] = 123456.0
    (tmp_path / "networks.json").write_text(json.dumps(found), encoding="utf-8")
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    assert "| 123.5 |" in results.networks()
