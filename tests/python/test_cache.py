"""The cache of kernels heals itself, whatever lies in the place of whichever file; and runs nobody else's code."""

from __future__ import annotations

import gc
import os
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import syno
from syno import _core
from syno.cli.main import app
from syno.errors import KernelError
from syno.kernels import construct as construct_module
from syno.kernels import kernel as kernel_module
from syno.kernels.cache import read_entry, usable_cache, write_entry
from syno.machines.model import machine_file, machine_model
from syno.support.files import read_regular
from syno.tuning.records import RecordStore

#: What happens to the file at a path, and what a second file of its kind holds.
Damage = Callable[[Path, random.Random], object]


def _flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 2, 8])):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _cut(path: Path, rng: random.Random) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def _grow(path: Path, rng: random.Random) -> None:
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randint(1, 100)))


def _directory(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()
    for i in range(rng.randint(0, 2)):
        (path / f"file{i}").write_text("x")


def _link(path: Path, rng: random.Random) -> None:
    away = path.with_name(f"away-{rng.randint(0, 9)}")
    path.rename(away)
    path.symlink_to(rng.choice([str(away), "/dev/zero", "nowhere", str(path), str(path.parent)]))


def _pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _unreadable(path: Path, rng: random.Random) -> None:
    path.chmod(0)


def _vast(path: Path, rng: random.Random) -> None:
    os.truncate(path, 1 << 40)  # sparse: takes no room


DAMAGES: dict[str, Damage] = {
    "empty": lambda path, rng: path.write_bytes(b""),
    "cut": _cut,
    "flipped": _flip,
    "longer": _grow,
    "noise": lambda path, rng: path.write_bytes(rng.randbytes(rng.randint(1, 5000))),
    "text": lambda path, rng: path.write_text(rng.choice(["{}", "[]", "null", '{"passed": true}'])),
    "version": lambda path, rng: path.write_bytes(b"SYNOKRN1" + path.read_bytes()[8:]),
    "directory": _directory,
    "link": _link,
    "pipe": _pipe,
    "unreadable": _unreadable,
    "vast": _vast,
}
KINDS = [".kernel", ".schedule", ".verified"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path / "cache"))
    forget()
    gc.collect()  # code that is alive is not read again
    yield tmp_path / "cache"
    forget()


def forget() -> None:
    """As in a new process."""
    kernel_module._kernels.clear()
    construct_module._constructed.clear()


def operator(i: int = 5) -> syno.Operator:
    return syno.Operator.parse("y[i,j] = sum[k] a[i,k] * b[k,j]", i=i, j=7, k=6)


def right(i: int = 5) -> bool:
    """Compiles, computes, compares; whether the code came from the cache."""
    forget()
    kernel = operator(i).compile()
    a = np.arange(i * 6, dtype=np.float32).reshape(i, 6)
    b = np.arange(42, dtype=np.float32).reshape(6, 7)
    np.testing.assert_allclose(kernel(a, b), a @ b)
    assert kernel.verification
    return bool(kernel.report.from_cache)


def good(path: Path) -> bool:
    if path.suffix == ".kernel":
        return bool(_core.cache_entry_key(read_regular(path, 1 << 30) or b"") == path.stem)
    return read_entry(path) is not None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_to_every_kind_of_entry_heals(kind: str, damage: str, cache: Path) -> None:
    rng = random.Random(f"{kind} {damage}")
    right()
    entries = [path for path in cache.iterdir() if path.suffix in KINDS]
    assert sorted(path.suffix for path in entries) == KINDS
    for _ in range(2):
        for path in entries:
            if path.suffix == kind:
                DAMAGES[damage](path, rng)
        right()
        assert all(map(good, entries)) or damage == "unreadable"
        assert right(), "the second process finds it again"
    assert not [p for p in cache.iterdir() if p.suffix in (".part", ".partial")]


@pytest.mark.parametrize("seed", range(5))
def test_a_cache_in_which_everything_is_damaged_heals(seed: int, cache: Path) -> None:
    rng = random.Random(seed)
    right(), right(4)
    machine = machine_model(measure=True)
    RecordStore(cache / "records.jsonl").check_writable()
    for path in sorted(cache.iterdir()):
        if path.stat().st_size or path.suffix not in KINDS:
            chosen = rng.choice(sorted(DAMAGES))
            if path.stat().st_size or chosen not in ("cut", "flipped"):
                DAMAGES[chosen](path, rng)
    right(), right(4)
    # a flipped digit gives another machine, which is one, too
    assert machine_model(measure=True).cores > 0 and machine.cores > 0
    assert machine_file() and machine_file().is_file()  # type: ignore[union-attr]


def test_an_entry_in_the_place_of_another_is_none(cache: Path) -> None:
    """Whole files, made by this user: of another program, and of the other's name."""
    right(), right(4)
    for kind in KINDS:
        one, other = sorted(cache.glob(f"*{kind}"))[:2]
        content = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(content)
        right(), right(4)
        assert good(one) and good(other)


def test_a_schedule_that_applies_to_nothing_costs_time_only(cache: Path) -> None:
    """As by a mistake of the program that wrote it: the entry itself is in order."""
    right()
    (path,) = cache.glob("*.schedule")
    other = syno.Operator.parse("z[p,q] = sum[r] u[p,q+r]", p=9, q=9, r=3).compile().schedule
    for text in (other.to_json(), '{"version": 99}', "{}"):
        write_entry(path, text.encode())
        right()
        assert _core.Schedule.from_json(read_entry(path).decode()) == operator().compile().schedule  # type: ignore[union-attr]


def test_a_schedule_that_gives_wrong_numbers_is_made_anew(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kept schedule and one on record may be from a syno that applied it otherwise."""
    right()
    forget()
    (path,) = cache.glob("*.schedule")
    # Another schedule than the one that is constructed on any machine: on some that is the default one.
    wrong = _core.Schedule.parse("schedule f32")
    assert wrong != operator().compile().schedule
    forget()
    write_entry(path, wrong.to_json().encode())
    apply, applied = _core.apply_schedule, []

    def faulty(program: Any, schedule: Any) -> Any:
        applied.append(schedule)
        if schedule == wrong:
            program = _core.Program.parse("y[i,j] = max[k] a[i,k] * b[k,j]", sizes={"i": 5, "j": 7, "k": 6})  # fmt: skip
        return apply(program, schedule)

    monkeypatch.setattr(_core, "apply_schedule", faulty)
    right()
    assert wrong in applied and applied[-1] != wrong


def test_two_programs_of_one_loop_nest_share_no_verdict(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A faulty schedule maps the second program to the first one's nest: the object is known and right, for the
    first."""
    product = syno.Operator.parse("y[i,j] = sum[k] a[i,k] * b[k,j]", i=5, j=7, k=6)
    largest = syno.Operator.parse("y[i,j] = max[k] a[i,k] * b[k,j]", i=5, j=7, k=6)
    schedule = _core.default_schedule(product.program)
    kernel = product.compile(schedule=schedule)
    nest, key = _core.apply_schedule(product.program, schedule), kernel.key
    del kernel
    forget()
    monkeypatch.setattr(_core, "apply_schedule", lambda program, schedule: nest)
    with pytest.raises(KernelError, match="discarded"):
        largest.compile(schedule=schedule)
    again = product.compile(schedule=schedule)
    assert again.key == key and again.verification


def test_a_verdict_is_of_one_object(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same key, other machine code."""
    right()
    forget()
    (path,) = cache.glob("*.verified")
    content = read_entry(path)
    assert content is not None
    digest = operator().compile()._core.digest
    assert len(digest) == 64 and digest.encode() in content
    write_entry(path, content.replace(digest.encode(), b"0" * 64))
    calls = []
    verify = kernel_module.Kernel.verify
    monkeypatch.setattr(
        kernel_module.Kernel, "verify", lambda self: calls.append(self) or verify(self)
    )
    right()
    assert len(calls) == 1
    right()
    assert len(calls) == 1, "and is remembered"


def test_code_of_another_user_is_not_run(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(cache.parent / "stranger"))
    right()
    theirs = {path: path.read_bytes() for path in cache.iterdir()}
    monkeypatch.setenv("XDG_CONFIG_HOME", str(cache.parent / "config"))
    assert usable_cache() == cache
    assert len(theirs) == 3 and not any(map(good, theirs))
    right()
    assert all(map(good, theirs))
    assert not any(path.read_bytes() == content for path, content in theirs.items())


def test_without_a_secret_kernels_are_compiled_anew(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right()
    secret = cache.parent / "config" / "syno" / "secret.key"
    secret.chmod(0o644)
    from syno.support import secret as secret_module

    secret_module._secret.cache_clear()
    assert usable_cache() is None
    shutil.rmtree(cache)
    right()
    assert not list(cache.iterdir())
    assert "others can read" in caplog.text


def test_what_processes_left_half_done_is_tidied_up(cache: Path) -> None:
    right()
    old, fresh = cache / f"{'0' * 32}.7.0.partial", cache / f"{'1' * 32}.schedule.7-aa.part"
    for path in (old, fresh):
        path.write_text("half")
    os.utime(old, (1, 1))
    for i in range(64):  # the directory is tidied every 64 entries
        _core.compile_nest(
            _core.apply_schedule(
                p := _core.Program.parse("y[i] = 2*x[i]", sizes={"i": 100 + i}),
                _core.default_schedule(p),
            ),
            cache_directory=str(cache),
        )
    assert not old.exists()
    assert fresh.exists(), "its process may be at work"


# --- carrying it


def command(*words: object) -> Any:
    return CliRunner().invoke(app, ["cache", *map(str, words)])


def test_clear_and_info_take_every_kind(cache: Path) -> None:
    right(), right(4)
    (kernel, _) = sorted(cache.glob("*.kernel"))
    _directory(kernel, random.Random(0))
    os.mkfifo(cache / f"{'2' * 32}.schedule")
    (cache / f"{'3' * 32}.verified").symlink_to("nowhere")
    (cache / "mine.txt").write_text("stays")
    assert "2 kernels" in command("info").output
    assert command("clear").exit_code == 0
    assert [path.name for path in cache.iterdir()] == ["mine.txt"]


def test_an_archive_of_ones_own_is_taken_and_checked_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right(), right(4)
    _flip(sorted(cache.glob("*.kernel"))[0], random.Random(0))
    archive = cache.parent / "kernels.zip"
    assert "packed 1 kernels" in command("export", archive).output, "the damaged one stays out"
    with zipfile.ZipFile(archive) as packed:
        kinds = sorted(Path(name).suffix for name in packed.namelist())
    assert kinds == [".kernel", ".schedule", ".schedule"]
    shutil.rmtree(cache)
    assert "imported 1 kernels" in command("import", archive).output
    calls = []
    verify = kernel_module.Kernel.verify
    monkeypatch.setattr(
        kernel_module.Kernel, "verify", lambda self: calls.append(self) or verify(self)
    )
    assert sorted([right(), right(4)]) == [False, True]
    assert len(calls) == 2


def test_verdicts_in_an_archive_are_left_out(cache: Path) -> None:
    right()
    archive = cache.parent / "kernels.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for path in cache.iterdir():
            out.write(path, path.name)
    shutil.rmtree(cache)
    assert command("import", archive).exit_code == 0
    assert sorted(p.suffix for p in cache.iterdir()) == [".kernel", ".schedule"]


def test_an_archive_of_somebody_else_wants_trust(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(cache.parent / "stranger"))
    right()
    archive = cache.parent / "kernels.zip"
    command("export", archive)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(cache.parent / "config"))
    shutil.rmtree(cache)
    refused = command("import", archive)
    assert refused.exit_code == 1
    assert "--trust" in refused.output
    assert not list(cache.glob("*")) if cache.exists() else True
    assert command("import", "--trust", archive).exit_code == 0
    assert right()


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_archive_is_a_sentence(seed: int, cache: Path) -> None:
    rng = random.Random(seed)
    right(), right(4)
    archive = cache.parent / "kernels.zip"
    command("export", archive)
    whole = archive.read_bytes()
    for _ in range(5):
        content = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        archive.write_bytes(content[: rng.choice([len(content), rng.randrange(len(content))])])
        result = command("import", archive)
        assert result.exit_code in (0, 1)
        assert result.exception is None or isinstance(result.exception, SystemExit)
    right(), right(4)


# --- what profilers read


def test_files_for_perf_follow_no_link(tmp_path: Path) -> None:
    """Whoever may write to the directory could make a link under a name that is guessed, by the process's number."""
    mine, code = (
        tmp_path / "mine",
        "import syno; syno.Operator.parse('y[i] = 2*x[i]', i=4).compile()",
    )
    mine.write_text("precious")
    script = f'ln -s "{mine}" "$JITDUMPDIR/jit-$$.dump"; exec "$0" -c "$1"'
    environment = {**os.environ, "SYNO_PERF": "1", "JITDUMPDIR": str(tmp_path), "SYNO_CACHE": ""}
    subprocess.run(
        ["bash", "-c", script, sys.executable, code],
        env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True,
    )
    assert mine.read_text() == "precious"
