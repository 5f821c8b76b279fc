"""Files are written whole or not at all; without a cache directory nothing is kept anywhere."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import syno
from syno import _core
from syno.cli import cache as cache_command
from syno.cli.main import app
from syno.errors import KernelError
from syno.files import write_whole
from syno.operator import Operator
from syno.tuning import machine as machine_module
from syno.tuning.records import record_store
from syno.tuning.search import session_file


@settings(max_examples=30, deadline=None)
@given(content=st.one_of(st.text(), st.binary()))
def test_what_is_written_is_there_and_nothing_beside_it(
    tmp_path_factory: pytest.TempPathFactory, content: str | bytes
) -> None:
    directory = tmp_path_factory.mktemp("whole")
    path = directory / "file.json"
    path.write_text("before")
    write_whole(path, content)
    wanted = content.encode() if isinstance(content, str) else content
    assert path.read_bytes() == wanted
    assert list(directory.iterdir()) == [path]


def test_a_file_is_as_others_may_read_it(tmp_path: Path) -> None:
    plain, whole = tmp_path / "plain", tmp_path / "whole"
    plain.write_text("")
    write_whole(whole, "")
    assert stat.S_IMODE(whole.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_write_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_whole(path, "before")

    def full(*_: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, "after")
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(OSError, match="nowhere"):
        write_whole(tmp_path / "nowhere" / "file", "text")


def test_readers_see_one_of_the_writers_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    texts = [str(i) * 50_000 for i in range(4)]
    path.write_text(texts[0])
    seen: set[str] = set()

    def write(text: str) -> None:
        for _ in range(20):
            write_whole(path, text)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.add(path.read_text())
    assert seen <= set(texts)
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ``SYNO_CACHE``, and the place that nothing may appear in."""
    monkeypatch.setenv("SYNO_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SYNO_MACHINE", raising=False)
    return tmp_path


def test_an_empty_cache_variable_keeps_nothing_anywhere(no_cache: Path) -> None:
    operator = Operator.parse("y[i] = x[i] + 7", i=11)
    assert operator.compile().verification
    found = syno.tune(
        Operator.parse("y[i] = x[i] + 8", i=64), trials=2, options=quick(), progress="off"
    )
    assert found.trials == 2
    assert list(record_store()) == []
    assert record_store().best(operator.program, "float32", 1) is None
    assert machine_module.machine_file() is None
    assert session_file(operator.program, 1, "float32") is None
    assert cache_command.info() == {"directory": "", "kernels": 0, "bytes": 0}
    assert cache_command.clear() == 0
    assert list(no_cache.iterdir()) == []


def test_without_a_cache_the_machine_is_measured_once_a_process(
    no_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    def measured() -> object:
        made.append(_core.describe_machine())
        return made[-1]

    monkeypatch.setattr(_core, "measure_machine", measured)
    machine_module._measured.cache_clear()
    try:
        first = machine_module.machine_model(measure=True)
        assert machine_module.machine_model(measure=True) is first and len(made) == 1
        machine_module.machine_model(fresh=True)
        assert len(made) == 2
    finally:
        machine_module._measured.cache_clear()
    assert list(no_cache.iterdir()) == []


def test_kernels_cannot_be_carried_to_where_no_cache_is(no_cache: Path, tmp_path: Path) -> None:
    archive = tmp_path / "kernels.zip"
    with pytest.raises(KernelError, match="SYNO_CACHE is empty"):
        cache_command.unpack(archive)
    done = CliRunner().invoke(app, ["cache", "import", str(archive)])
    assert done.exit_code == 1 and "SYNO_CACHE is empty" in " ".join(done.output.split())


def quick() -> _core.MeasureOptions:
    options = _core.MeasureOptions()
    options.samples, options.sample_s, options.limit_s = 3, 1e-4, 60.0
    return options
