"""Every command on a session of real operators whose files are damaged, may not be written, or lie on a full disk.

Whatever happens, a command says what it said before the fault, writes what it wrote before, or ends with a sentence.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_damage import FLIPS, faults, files_of
from typer.testing import CliRunner

torch = pytest.importorskip("torch")

from test_session_of_objects import SOURCE  # noqa: E402

import syno  # noqa: E402
from syno.cli.main import app  # noqa: E402
from syno.errors import SessionError  # noqa: E402
from syno.searching.revisit import spec_of  # noqa: E402
from syno.session import Prune, Session, open_view  # noqa: E402
from syno.timing.bench import Timing  # noqa: E402

#: With what each command is called: R is the session, M a model, T its task, K the operator's file, S its space, O a place to write.
COMMANDS = {
    "status": ["status", "R", "--json"],
    "show": ["show", "R", "c1", "--json"],
    "explain": ["explain", "R", "c1"],
    "explain a file": ["explain", "K", "--spec", "S"],
    "report": ["report", "R", "-o", "O.json", "--json"],
    "bench": ["bench", "R", "c1", "--against", "eager", "--model", "M"],
    "replay": ["replay", "R", "c1", "--task", "T", "--latency-tolerance", "1e9", "--json"],
    "export": ["export", "R", "c1", "--format", "safetensors", "-o", "O", "--model", "M"],
    "export one": [
        "export",
        "R",
        "c1",
        "--format",
        "safetensors",
        "-o",
        "O",
        "--operator",
        "first",
    ],
}
WRITING = ("report", "export", "export one")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a session that has a finalist, and the source of its model and task."""
    root = tmp_path_factory.mktemp("commands")
    (root / "pair.py").write_text(SOURCE)
    names: dict[str, Any] = {}
    exec(SOURCE, names)
    model, data = names["model"](), names["batches"]
    example = data(1)[0][0]
    sites = syno.sites(model, example, repeats=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("syno.searching.pipeline.compare_finalists", lambda *_: None)
        syno.search(
            model, example, sites=sites.where(kind="conv1d"), data=(data(2), data(1)), budget=1,
            session=root / "run", finalists=1, final_seeds=1, batch_width=1, policy="random",
            prune=Prune(), progress="off",
        ).view.close()  # fmt: skip
    with Session.open(root / "run"):
        pass  # what was under way in the log is in the database
    with open_view(root / "run") as view:
        (root / "spec.json").write_text(spec_of(view, view.candidate("c1").stage))
    return root


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything runs once and took a microsecond: answers do not depend on the machine's."""

    def measure(functions: Any, *, threads: int = 1, **_: Any) -> list[Timing]:
        found = []
        for name, function in functions.items():
            function()
            found.append(Timing(name, 1.0, 0.0, 3, 1, threads, 1.0, 0.0))
        return found

    for place in ("syno.timing.bench", "syno.torch.images", "syno.torch.choose"):
        monkeypatch.setattr(f"{place}.measure", measure)


class Answer:
    """What a command printed and wrote, without what changes from call to call."""

    def __init__(self, session: Path, command: str, out: Path) -> None:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        root = session.parent
        (key,) = (session / "operators").glob("*.json")
        places = {
            "R": session, "M": f"{root / 'pair.py'}:model", "T": f"{root / 'pair.py'}:task", "K": key,
            "S": root / "spec.json",             "O": out / "o", "O.json": out / "o.json",
        }  # fmt: skip
        words = [str(places.get(word, word)) for word in COMMANDS[command]]
        found = CliRunner().invoke(app, words)
        if found.exception is not None and not isinstance(found.exception, SystemExit):
            raise found.exception
        self.code, self.said = found.exit_code, found.output
        lines = [line for line in found.output.splitlines() if not _changing(line)]
        self.text = "\n".join(lines).replace(str(out), "OUT").replace(str(root), "ROOT")
        self.files = {
            file.relative_to(out).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(out.rglob("*.safetensors"))
        }

    def __eq__(self, other: object) -> bool:
        mine = (self.code, self.text, self.files)
        return isinstance(other, Answer) and mine == (other.code, other.text, other.files)

    __hash__ = None  # type: ignore[assignment]

    def is_a_sentence(self) -> bool:
        return (
            self.code in (1, 2)
            and any(f"{kind}: " in self.said for kind in ("Error", "UnknownName"))
            and "Traceback" not in self.said
            and "mistake in syno" not in self.said
            and not self.files
        )


def _changing(line: str) -> bool:
    return any(
        word in line
        for word in ('"load1', '"measured_at', '"made', "thread; ", '"latency_us",', '"again"')
    )


@pytest.fixture(scope="module")
def expected(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    with pytest.MonkeyPatch.context() as patch:
        no_clock.__wrapped__(patch)  # type: ignore[attr-defined]
        out = tmp_path_factory.mktemp("expected")
        found = {name: Answer(whole / "run", name, out / "out") for name in COMMANDS}
        for name, answer in found.items():
            assert answer.code == 0, answer.said
            assert Answer(whole / "run", name, out / "out") == answer, name
    return found


def copied(whole: Path, place: Path) -> Path:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(whole, place)
    return place / "run"


@pytest.mark.nightly
def test_damaged_files_change_no_answer_silently(
    whole: Path, expected: dict[str, Answer], tmp_path: Path
) -> None:
    chosen = random.Random(7)
    noticed: dict[str, int] = {}
    files = [p.relative_to(whole / "run") for p in sorted((whole / "run").rglob("*"))]
    for number, name in enumerate(n for n in files if (whole / "run" / n).is_file()):
        kind = name.parts[0]
        if kind in ("logs", ".lock") or name.suffix in (".sqlite-shm", ".sqlite-wal"):
            continue
        content, tail = (whole / "run" / name).read_bytes(), b""
        if kind == "session.toml":  # its limits may be edited
            at = content.index(b"[session.limits]")
            content, tail = content[:at], content[at:]
        for at, (what, damaged) in enumerate(list(faults(content, number))[::2]):
            session = copied(whole, tmp_path / "copy")
            (session / name).write_bytes(damaged + tail)
            # Every command on the first damages, one of them by turns on the others.
            asked = chosen.sample(sorted(COMMANDS), k=3 if at < 2 else 1)
            for command in asked:
                answer = Answer(session, command, tmp_path / "out")
                if answer != expected[command]:
                    assert answer.is_a_sentence(), f"{name}: {what}: {command}\n{answer.said}"
                    noticed[kind] = noticed.get(kind, 0) + 1
    assert FLIPS < 20 or {"session.sqlite", "session.toml"} <= set(noticed), noticed


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("weights", "export"), ("weights", "export one"), ("weights", "bench"), ("example.safetensors", "bench"),
        ("network.json", "export"), ("operators", "explain a file"),
    ],
)  # fmt: skip
def test_a_damaged_file_is_noticed_by_who_needs_it(
    kind: str, command: str, whole: Path, expected: dict[str, Answer], tmp_path: Path
) -> None:
    """A bit anywhere in a file that a command reads: nothing else than what was trained is timed or exported."""
    session = copied(whole, tmp_path / "copy")
    with open_view(session) as view:
        (first,) = view.weights(view.candidate("c1")).values()
    place = session / kind
    (file,) = [first] if kind == "weights" else place.iterdir() if place.is_dir() else [place]
    content = file.read_bytes()
    for what, damaged in list(faults(content, 3))[: max(2, FLIPS // 4)]:
        file.write_bytes(damaged)
        answer = Answer(session, command, tmp_path / "out")
        assert answer != expected[command] or command == "explain a file", what
        assert answer == expected[command] or answer.is_a_sentence(), f"{what}\n{answer.said}"
    file.write_bytes(content)
    assert Answer(session, command, tmp_path / "out") == expected[command]


def test_operator_files_that_are_damaged_are_written_again(whole: Path, tmp_path: Path) -> None:
    session = copied(whole, tmp_path / "copy")
    (file,) = (session / "operators").iterdir()
    content = file.read_bytes()
    for _, damaged in faults(content, 11):
        file.write_bytes(damaged)
        Session.open(session).close()
        assert file.read_bytes() == content


# --- what the system refuses


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@contextlib.contextmanager
def without_override() -> Iterator[None]:
    """This thread may not write where permissions forbid it, even if it is root's (capabilities(7))."""
    libc = ctypes.CDLL(None, use_errno=True)
    head = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread
    before, now = (_Sets * 2)(), (_Sets * 2)()
    if libc.capget(head, before) or libc.capget(head, now):
        raise OSError(ctypes.get_errno(), "capget")
    now[0].effective &= ~0b1110  # DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER
    if libc.capset(head, now):
        raise OSError(ctypes.get_errno(), "capset")
    try:
        yield
    finally:
        libc.capset(head, before)


@contextlib.contextmanager
def read_only(folder: Path, *, files: bool = True) -> Iterator[None]:
    """Nothing in ``folder`` can be written, made or removed; without ``files``, only its files can be written."""
    kept = [folder, *folder.rglob("*")]
    modes = {path: path.stat().st_mode for path in kept if files or path.is_dir()}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    try:
        with without_override():
            if os.access(folder, os.W_OK, effective_ids=True):
                pytest.skip("this process may write everywhere")
            yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("files", [True, False], ids=["all", "directories"])
def test_a_session_that_may_not_be_written_is_read(
    files: bool, command: str, whole: Path, expected: dict[str, Answer], tmp_path: Path
) -> None:
    session = copied(whole, tmp_path / "copy")
    before = {p: p.read_bytes() for p in session.rglob("*") if p.is_file()}
    with read_only(session, files=files):
        answer = Answer(session, command, tmp_path / "out")
    assert answer == expected[command], answer.said
    assert {p: p.read_bytes() for p in session.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("command", WRITING)
def test_a_place_that_may_not_be_written_is_named(
    command: str, whole: Path, expected: dict[str, Answer], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    made = Path.mkdir

    def refuse(path: Path, *args: Any, **kwargs: Any) -> None:
        made(path, *args, **kwargs)
        if path == out:
            out.chmod(0o555)

    with pytest.MonkeyPatch.context() as patch, without_override():
        patch.setattr(Path, "mkdir", refuse)
        answer = Answer(whole / "run", command, out)
    out.chmod(0o755)
    assert answer.is_a_sentence(), answer.said
    assert "cannot be written" in answer.said and not any(out.iterdir())


def test_a_search_in_a_session_that_may_not_be_written_says_so(whole: Path, tmp_path: Path) -> None:
    session = copied(whole, tmp_path / "copy")
    with read_only(session), pytest.raises(SessionError, match="cannot be written") as caught:
        Session.open(session)
    assert "reading a session works without" in caught.value.fix
    (session / "session.sqlite").chmod(0o444)
    with without_override(), pytest.raises(SessionError, match="session") as caught:
        Session.open(session)
    assert "start a new session" not in caught.value.fix


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_ends_no_command_in_a_traceback(
    command: str, whole: Path, expected: dict[str, Answer], tmp_path: Path
) -> None:
    session = copied(whole, tmp_path / "copy")
    before = {p: p.read_bytes() for p in session.rglob("*") if p.is_file()}
    with files_of(0):
        answer = Answer(session, command, tmp_path / "out")
    if answer != expected[command]:
        assert answer.is_a_sentence(), answer.said
        assert "start a new session" not in answer.said
    if command in WRITING:
        assert answer.code == 1 and not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
    kept = {p: p.read_bytes() for p in session.rglob("*") if p.is_file() and p in before}
    assert {p: b for p, b in kept.items() if p.suffix != ".sqlite-shm"} == {
        p: b for p, b in before.items() if p.suffix != ".sqlite-shm"
    }
    assert Answer(session, command, tmp_path / "again") == expected[command]


def test_json_of_every_command_is_json(expected: dict[str, Answer]) -> None:
    for name, words in COMMANDS.items():
        if "--json" in words:
            json.loads(expected[name].said)
