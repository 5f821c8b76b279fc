"""Files are written whole or not at all; without a cache directory nothing is kept anywhere."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
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
from syno.errors import KernelError, SessionError
from syno.machines import model as machine_module
from syno.operators.operator import Operator
from syno.session import Component, Session, open_view
from syno.support.files import read_input, write_whole
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


PIPE = """
import os, sys
from pathlib import Path
from typer.testing import CliRunner
from syno.cli.main import app
for command in ({commands}):
    found = CliRunner().invoke(app, command)
    assert found.exit_code in (1, 2), (command, found.output)
    assert "a named pipe" in " ".join(found.output.split()), (command, found.output)
    assert found.exception is None or isinstance(found.exception, SystemExit), command
print("answered")
"""


READERS = """
import sys
from pathlib import Path
from syno.errors import FormatError
from syno.support.files import read_input
from syno.operators.operator_file import load
from syno.report import read_report
from syno.session.sealing import file_sum
from syno.machines.model import load_machine
for read in (load, load_machine, read_report, file_sum, lambda path: read_input(path, "spec")):
    try:
        read(Path(sys.argv[1]))
    except (FormatError, OSError) as error:
        assert "a named pipe" in str(error), (read, error)
    else:
        raise AssertionError(read)
print("answered")
"""


def _runs(script: str, *arguments: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "answered" in found.stdout, found.stdout + found.stderr


def _answers(commands: list[list[str]]) -> None:
    """In a process of its own: who opens a pipe without a writer waits for ever."""
    listed = ", ".join(map(repr, commands)) + ","
    _runs(PIPE.format(commands=listed))


def test_no_command_waits_for_who_writes_a_named_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    _answers([["cache", "import", str(pipe)]])
    _runs(READERS, pipe)


@pytest.mark.parametrize("name", ["session.toml", "session.sqlite", "session.sqlite-wal"])
def test_a_pipe_or_a_directory_in_the_place_of_a_session_s_file_is_named(
    name: str, tmp_path: Path
) -> None:
    with Session.open(
        tmp_path / "run",
        proposer=Component(reference="session_fakes:Climber"),
        evaluator=Component(reference="none"),
    ):
        pass
    place = tmp_path / "run" / name
    place.unlink(missing_ok=True)
    place.mkdir()
    with pytest.raises(SessionError, match="it is a directory") as caught:
        open_view(tmp_path / "run")
    assert name in str(caught.value) and "free space" not in str(caught.value)
    place.rmdir()
    os.mkfifo(place)
    _answers([["status", str(tmp_path / "run")]])
    assert place.is_fifo()


def test_a_pipe_of_the_shell_s_own_is_read() -> None:
    read, write = os.pipe()
    os.write(write, b"text")
    os.close(write)
    try:
        assert read_input(Path(f"/dev/fd/{read}"), "spec") == "text"
    finally:
        os.close(read)
