"""Environment variables: those that are read are known, and others are named."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path

import pytest

import syno
from syno import _environment
from syno import config as module
from syno.errors import SynoError, UnknownName

ROOT = Path(__file__).resolve().parents[2]
READ = re.compile(
    r"""(?:environ(?:ment)?(?:\.get|\.pop|\.setdefault)?[\[(]|getenv\()\s*"(SYNO_\w+)\""""
)


def test_every_variable_that_is_read_is_known_and_documented() -> None:
    read: dict[str, str] = {}
    for folder in ("syno", "cpp", "tests", "benchmarks"):
        for path in (ROOT / folder).rglob("*.[chp][py]*"):
            if path.suffix in (".py", ".cpp", ".hpp"):
                for name in READ.findall(path.read_text(encoding="utf-8")):
                    if not name.startswith("SYNO_TEST_"):
                        read.setdefault(name, str(path))
    known = {**_environment.VARIABLES, **_environment.OF_TESTS}
    assert set(read) <= set(known), {name: read[name] for name in set(read) - set(known)}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, what in _environment.VARIABLES.items():
        assert f"| `{name}` | {what} |" in readme
        assert re.search(f"``{name}(=1)?``", str(module.__doc__))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("SYNO_CACHE_DIR", "did you mean SYNO_CACHE?"),
        ("SYNO_CACHE_DIRECTORY", "did you mean SYNO_CACHE?"),
        ("SYNO_CHACHE", "did you mean SYNO_CACHE?"),
        ("SYNO_PROGRES", "did you mean SYNO_PROGRESS?"),
        ("SYNO_XYZZY", "no effect: syno reads SYNO_CACHE, SYNO_CPU"),
    ],
)
def test_a_variable_that_nothing_reads_is_named(
    name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.warns(RuntimeWarning, match=re.escape(words)) as caught:
        _environment.warn_of_unknown()
    assert name in str(caught[0].message)


def test_known_and_foreign_variables_are_not_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith("SYNO_")]:
        monkeypatch.delenv(name)
    for name in (
        *_environment.VARIABLES,
        *_environment.OF_TESTS,
        "SYNO_TEST_X",
        "MY_SYNO_CACHE",
        "SYNOPSYS",
    ):
        monkeypatch.setenv(name, "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _environment.warn_of_unknown()


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'cache'"), syno.config(cash="x"):
        pass
    with pytest.raises(SynoError, match="cpu=None is a NoneType"), syno.config(cpu=None):
        pass
