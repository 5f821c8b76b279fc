"""The files around the package say what is so: security, citation, hooks before commits, templates of issues."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import syno

yaml = pytest.importorskip("yaml")

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TEMPLATES = ROOT / ".github" / "ISSUE_TEMPLATE"


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_citation_is_of_this_version_with_its_date() -> None:
    cited = read("CITATION.cff")
    assert cited["cff-version"] == "1.2.0" and cited["message"] and cited["authors"]
    assert cited["version"] == syno.__version__ == PROJECT["project"]["version"]
    assert cited["license"] == PROJECT["project"]["license"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{cited['version']}] – {cited['date-released']}" in changes


def test_the_citation_names_the_five_papers() -> None:
    titles = " ".join(each["title"] for each in read("CITATION.cff")["references"])
    assert all(name in titles for name in ("Syno", "EINNET", "Gensor", "ETO", "ALT"))
    for each in read("CITATION.cff")["references"]:
        assert all(a["family-names"] and a["given-names"] for a in each["authors"])


def hooks() -> dict[str, dict[str, Any]]:
    found = {}
    for repo in read(".pre-commit-config.yaml")["repos"]:
        assert repo["repo"] == "local", "hooks of elsewhere have versions of their own"
        found |= {hook["id"]: hook for hook in repo["hooks"]}
    return found


def test_hooks_are_the_linters_that_all_tests_run() -> None:
    linted = (ROOT / "scripts" / "test").read_text(encoding="utf-8")
    entries = {id: hook["entry"].removeprefix(".venv/bin/") for id, hook in hooks().items()}
    assert set(entries) == {"ruff-check", "ruff-format", "clang-format", "mypy"}
    for entry in entries.values():
        command = " ".join(word for word in entry.split() if not word.startswith("-"))
        assert command in linted, entry
    tools = " ".join(PROJECT["project"]["optional-dependencies"]["test"])
    assert all(tool in tools for tool in ("ruff", "clang-format", "mypy"))


def test_hooks_look_at_the_files_that_the_linters_look_at() -> None:
    for file, ids in {
        "syno/kernels/kernel.py": {"ruff-check", "ruff-format", "mypy"},
        "tests/python/test_files.py": {"ruff-check", "ruff-format"},
        "cpp/jit/emitter.hpp": {"clang-format"},
        "notebooks/first_operator.md": set(),
    }.items():
        assert (ROOT / file).exists()
        assert {id for id, hook in hooks().items() if re.search(hook["files"], file)} == ids, file


def test_templates_ask_for_what_a_fault_needs() -> None:
    names = {path.stem for path in TEMPLATES.glob("*.yml")} - {"config"}
    assert {"fault", "slow_kernel", "wish"} == names
    for name in names:
        form = read(f".github/ISSUE_TEMPLATE/{name}.yml")
        assert form["name"] and form["description"] and form["labels"]
        kinds = {"markdown", "textarea", "input", "dropdown", "checkboxes"}
        assert all(field["type"] in kinds and field["attributes"] for field in form["body"])
        assert any(field.get("validations", {}).get("required") for field in form["body"])
        ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
        assert len(set(ids)) == len(ids)


def test_what_is_asked_for_exists() -> None:
    from syno._environment import VARIABLES
    from syno.cli.main import app

    commands = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    text = "".join(path.read_text(encoding="utf-8") for path in TEMPLATES.glob("*.yml"))
    assert {*re.findall(r"`syno (\w+)", text)} <= commands
    assert {*re.findall(r"SYNO_[A-Z]+", text)} <= set(VARIABLES)
    assert {*re.findall(r"[A-Z]+\.md", text)} == {"SECURITY.md"}


def test_the_security_page_names_files_and_promises_that_are_there() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "How to report" in text
    for name in re.findall(r"\]\(([\w./-]+)\)", text):
        assert (ROOT / name).exists(), name
    from syno.cli.main import app

    asked = CliRunner().invoke(app, ["search", "--help"]).output
    assert set(re.findall(r"`(--[a-z-]+)`", text)) == {"--trust"} and "--trust" in asked
