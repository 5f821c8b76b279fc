"""Records of measurements: JSON lines of schedules with times, and the store that knows the best of them.

A record holds a schedule as rewrites, sketch and numbers, never an artefact: it is applied again when it is used.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

import msgspec

import syno
from syno import _core
from syno.config import cache_directory
from syno.errors import FormatError, SynoError
from syno.machines.model import machine_key, machine_model
from syno.support.bounded import Bounded
from syno.support.files import read_regular, write_whole
from syno.tuning.reuse.cpu_features import Features, features_of
from syno.tuning.reuse.names import renamed, sketch_of
from syno.tuning.reuse.shapes import comparable, distance, shape_of
from syno.tuning.trace_parts import TraceParts, parts_of, schedule_of

#: Since 2, a schedule is three parts; records of version 1 hold its trace as JSON and are upgraded when they are read.
VERSION = 2


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One measured schedule of one program on one machine; times in microseconds."""

    version: int = VERSION
    key: str
    """Structural key of the program: equal up to names."""
    program: str
    """Its text; traces name its loops and tensors."""
    dtype: str
    threads: int
    machine: str
    """`machine_key()` of where it was measured."""
    machine_name: str
    rewrites: tuple[str, ...] = ()
    """Decisions that change the program before loops are decided; see :mod:`syno.tuning.trace_parts`."""
    sketch: tuple[str, ...] = ()
    """The other decisions of the schedule, `_` for each number."""
    numbers: tuple[int, ...] = ()
    """The numbers in the sketch, in the order of its lines."""
    outcome: str
    reason: str = ""
    median_us: float = 0.0
    q1_us: float = 0.0
    q3_us: float = 0.0
    samples: int = 0
    rank_us: float = 0.0
    """`median_us` of the record it was called in turns with, times the ratio; 0: it was not."""
    cold: bool = False
    compile_ms: float = 0.0
    spills: int = 0
    trial: int = 0
    origin: str = ""
    """"constructed", "counted", "sampled", "mutated", "crossed", "transplanted", "reused", "predicted"."""
    constants: tuple[str, ...] = ()
    """Inputs that stayed the same over calls, packed before them, in plain names; such records serve such calls alone."""
    family: str = ""
    """What is staged, tiled and laid out how, in plain names; see :func:`syno.tuning.reuse.names.sketch_of`."""
    features: Features | None = None
    """What it asks of the machine; None: of an older syno, or not known."""
    versions: dict[str, str] = {}
    measured_at: str = ""
    note: str = ""
    """What may have disturbed the time, such as another process that measured; empty: nothing known."""

    @property
    def rank(self) -> float:
        """By which records of one program are ordered: medians of two occasions hardly compare."""
        return self.rank_us or self.median_us

    def trace(self) -> _core.Schedule:
        """The schedule.

        Raises:
            FormatError: its parts do not belong together, or are of a newer version.
        """
        return schedule_of(self.dtype, TraceParts(self.rewrites, self.sketch, self.numbers))

    def with_schedule(self, schedule: _core.Schedule) -> Record:
        """The same measurement of another schedule."""
        return msgspec.structs.replace(self, **parts_of(schedule)._asdict())


def make_record(
    program: _core.Program,
    schedule: _core.Schedule,
    measured: _core.Measured,
    *,
    threads: int,
    cold: bool = False,
    trial: int = 0,
    origin: str = "",
) -> Record:
    """The record of a measurement made now, on this machine."""
    family, features = _described(program, schedule, threads)
    return Record(
        **parts_of(schedule)._asdict(),
        family=family,
        features=features,
        key=program.structural_key(),
        program=str(program.text()),
        dtype=schedule.dtype,
        threads=threads,
        machine=machine_key(),
        machine_name=machine_model().name,
        outcome=measured.outcome,
        reason=measured.reason,
        median_us=measured.median_s * 1e6,
        q1_us=measured.q1_s * 1e6,
        q3_us=measured.q3_s * 1e6,
        samples=measured.samples,
        cold=cold,
        compile_ms=measured.compile_ms,
        spills=measured.spills,
        trial=trial,
        origin=origin,
        versions=this_version(),
        note=measured.note,
        measured_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )


def plain_names(program: _core.Program, tensors: Sequence[str]) -> tuple[str, ...]:
    """Names of a program's tensors as records have them, the same for programs that are equal up to names."""
    if not tensors:
        return ()
    names = shape_of(program).tensors
    return tuple(sorted(names.get(name, name) for name in tensors))


def _described(
    program: _core.Program, schedule: _core.Schedule, threads: int
) -> tuple[str, Features | None]:
    """Family and features; nothing of a schedule that does not apply."""
    try:
        there = shape_of(program)
        plain = renamed(schedule, there, shape_of(there.program()))
        features = features_of(program, schedule, machine_model(), threads)
    except SynoError:
        return "", None
    return sketch_of(plain), features


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Record)


class _Version(msgspec.Struct):
    version: int = 1


_versions = msgspec.json.Decoder(_Version)


def encode(record: Record) -> str:
    """One line, read back and applied before anyone gets to keep it.

    Raises:
        FormatError: what would be written is another record when it is read back, or does not apply.
    """
    line = _encoder.encode(record).decode()
    again = decode(line, "record")
    if again != record:
        raise FormatError("[records] what would be written is read back as another record")
    try:
        _core.apply_schedule(_core.Program.parse(again.program), again.trace())
    except SynoError as error:
        raise FormatError(f"[records] the trace does not apply: {error}") from error
    return line


def decode(line: str, where: str) -> Record:
    """Reads one line.

    Raises:
        FormatError: says which line and what is wrong with it.
    """
    try:
        version = _versions.decode(line).version
        if version > VERSION:
            raise FormatError(
                f"[records] {where}: version {version} is newer than {VERSION}; use a newer syno"
            )
        return _upgraded(line) if version == 1 else _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise FormatError(f"[records] {where}: {error}") from error


def _upgraded(line: str) -> Record:
    """A record of version 1, whose schedule is a trace and whose `sketch` is the family of today."""
    fields = msgspec.json.decode(line)
    text = msgspec.json.encode(fields.pop("schedule", None)).decode()
    try:
        schedule = _core.Schedule.from_json(text)
    except SynoError as error:
        raise FormatError(f"[records] {error}") from error
    fields |= parts_of(schedule)._asdict() | {
        "version": VERSION,
        "family": fields.get("sketch", ""),
    }
    return msgspec.convert(fields, Record)


#: Program, dtype, threads, machine, constants.
_Key: TypeAlias = tuple[str, str, int, str, tuple[str, ...]]
_Applied: TypeAlias = "tuple[Record, _core.Schedule]"

#: Bytes of a file of records that are read.
_LARGEST = 1 << 30

#: Programs whose best record that applies is remembered.
_KEPT = 1024


class RecordStore:
    """A file of records, shared by processes; the newest line is last.

    Lines that are damaged (a process was killed while it wrote) are skipped and counted.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.damaged = 0
        self._seen: tuple[int, int] | None = None
        self._best: dict[_Key, list[Record]] = {}
        self._applied: Bounded[tuple[Any, ...], _Applied | Literal[False]] = Bounded(_KEPT)

    def add(self, records: Iterable[Record]) -> None:
        """Appends; each record is read back and applied first.

        Raises:
            FormatError: a record does not survive that, or the file cannot be written; then it holds none of
                them, or some.
        """
        lines = [
            encode(record) if record.outcome == "ok" else _encoder.encode(record).decode()
            for record in records
        ]
        if lines:
            self._append("".join(line + "\n" for line in lines).encode())

    def check_writable(self) -> None:
        """Makes the file where there is none.

        Raises:
            FormatError: it cannot be written.
        """
        if not self.path.name:
            raise FormatError(f"[records] '{self.path}' names no file; give one to keep trials in")
        self._append(b"")

    def _append(self, text: bytes) -> None:
        try:
            self._append_locked(text)
        except OSError as error:
            raise FormatError(
                f"[records] {self.path} cannot be written: {error.strerror}; make room, or keep records "
                "elsewhere (SYNO_CACHE, or the session's file)"
            ) from error

    def _append_locked(self, text: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(self.path) and not self.path.is_file() and not _is_device(self.path):
            # A directory, say, that a mistake left here: it holds no records, and whoever wants it finds it.
            self.path.rename(self.path.with_name(f"{self.path.name}.aside-{secrets.token_hex(4)}"))
        with self._locked() as out:
            out.seek(0, os.SEEK_END)
            if (
                out.tell() > 0
            ):  # a line that a killed process left unfinished stays a line of its own
                out.seek(-1, os.SEEK_END)
                if out.read(1) != b"\n":
                    out.write(b"\n")
            out.write(text)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[IO[bytes]]:
        """The file, which nobody else writes meanwhile."""
        while True:
            with self.path.open("a+b") as out:
                fcntl.flock(out, fcntl.LOCK_EX)
                if _is_still(out, self.path):
                    yield out
                    return
            # While it waited, somebody put another file in its place.

    def __iter__(self) -> Iterator[Record]:
        self.damaged = 0
        content = read_regular(self.path, _LARGEST, links=True)
        if content is None:
            return
        text = content.decode("utf-8", errors="replace")
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                yield decode(line, f"{self.path}:{number}")
            except FormatError:
                self.damaged += 1

    def best(
        self,
        program: _core.Program,
        dtype: str,
        threads: int,
        machine: str | None = None,
        *,
        constants: Sequence[str] = (),
    ) -> tuple[Record, _core.Schedule] | None:
        """The fastest warm record of a program on a machine (default this one) that applies.

        Fastest by its rank: in turns with the best one before it, where there was one.

        Args:
            constants: inputs that stay the same over calls.
        """
        self._refresh()
        if not self._best:
            return None
        where = machine or machine_key()
        fixed = plain_names(program, constants)
        key = (program.structural_key(), dtype, threads, where, fixed)
        records = self._best.get(key)
        if not records:
            return None
        asked = (str(program.text()), *key)
        found = self._applied.get(asked)
        if found is None:
            found = self._applied.setdefault(asked, _applying(program, records) or False)
        return found or None

    def neighbours(
        self,
        program: _core.Program,
        dtype: str,
        threads: int,
        machine: str | None = None,
        *,
        limit: int = 4,
    ) -> list[Record]:
        """The best record of this program and of each of its neighbours, the nearest first.

        A neighbour differs in sizes alone, and is nowhere larger or nowhere smaller.

        Args:
            machine: default this one; records of others are left out, as are those of other versions of syno
                or of LLVM, whose kernels were others.
            limit: shapes at most.
        """
        self._refresh()
        here = shape_of(program)
        versions = this_version()
        found: list[tuple[float, str, Record]] = []
        for (key, kind, count, where, fixed), records in self._best.items():
            if fixed or (kind, count, where) != (dtype, threads, machine or machine_key()):
                continue
            now = next((record for record in records if record.versions == versions), None)
            if now is None:
                continue
            try:
                there = shape_of(_core.Program.parse(now.program))
            except SynoError:
                continue
            if comparable(here, there):
                found.append((distance(here, there).steps, key, now))
        return [record for _, _, record in sorted(found, key=lambda one: one[:2])[:limit]]

    def age_out(
        self,
        *,
        machines: Iterable[str] | None = None,
        other_versions: bool = True,
        before: datetime.datetime | None = None,
    ) -> int:
        """Drops records that no longer say anything here, and damaged lines; the others stay as they are.

        Args:
            machines: keys of machines whose records stay (`machine_key()`); None: all.
            other_versions: drop those of other versions of syno or of LLVM.
            before: drop those that were measured earlier.
        Returns:
            How many lines were dropped.
        Raises:
            FormatError: the file cannot be written; then it is as it was.
        """
        kept_machines = None if machines is None else set(machines)
        versions = this_version()

        def stays(record: Record) -> bool:
            if kept_machines is not None and record.machine not in kept_machines:
                return False
            if other_versions and record.versions != versions:
                return False
            return before is None or _measured_at(record) >= before

        if not self.path.is_file():
            return 0
        try:
            with self._locked():
                content = read_regular(self.path, _LARGEST, links=True) or b""
                kept, dropped = [], 0
                for number, line in enumerate(content.splitlines(), 1):
                    if not line.strip():
                        continue
                    try:
                        good = stays(decode(line.decode(), f"{self.path}:{number}"))
                    except (FormatError, UnicodeDecodeError):
                        good = False
                    if good:
                        kept.append(line + b"\n")
                    else:
                        dropped += 1
                if dropped:
                    write_whole(self.path, b"".join(kept))
                return dropped
        except OSError as error:
            raise FormatError(
                f"[records] {self.path} cannot be written: {error.strerror}; it is as it was"
            ) from error

    def merge(self, other: str | Path) -> int:
        """Takes the records of another file, for instance from another machine, that are new here.

        Returns:
            How many were new.
        Raises:
            FormatError: the file cannot be read or none of its lines is a record.
        """
        source = RecordStore(other)
        if not source.path.is_file():
            raise FormatError(f"[records] {other} is no file")
        theirs = list(source)
        if not theirs and source.damaged:
            raise FormatError(f"[records] {other} holds no records ({source.damaged} bad lines)")
        known = {_encoder.encode(record) for record in self}
        new = [record for record in theirs if _encoder.encode(record) not in known]
        self.add(new)
        return len(new)

    def _refresh(self) -> None:
        try:
            stat = self.path.stat()
        except OSError:
            self._best, self._seen = {}, None
            return
        state = (stat.st_mtime_ns, stat.st_size)
        if state == self._seen:
            return
        best: dict[_Key, list[Record]] = {}
        for record in self:
            if record.outcome == "ok" and not record.cold:
                key = (record.key, record.dtype, record.threads, record.machine, record.constants)
                best.setdefault(key, []).append(record)
        for records in best.values():
            records.sort(key=lambda record: record.rank)
            del records[8:]
        self._best, self._seen = best, state
        self._applied.clear()


def _is_still(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _is_device(path: Path) -> bool:
    return path.is_char_device() or path.is_block_device()


def this_version() -> dict[str, str]:
    """Of what makes kernels, as records name it."""
    return {"syno": syno.__version__, "llvm": _core.llvm_version()}


def _measured_at(record: Record) -> datetime.datetime:
    try:
        found = datetime.datetime.fromisoformat(record.measured_at)
    except ValueError:
        return datetime.datetime.min.replace(tzinfo=datetime.timezone.utc)
    return found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)


def _applying(program: _core.Program, records: Iterable[Record]) -> _Applied | None:
    """The first record that applies, in the program's names: a trace may be damaged or too new."""
    here = shape_of(program)
    for record in records:
        with contextlib.suppress(SynoError):
            there = shape_of(_core.Program.parse(record.program))
            if there.type != here.type:  # written in another order
                there = here
            schedule = renamed(record.trace(), there, here)
            _core.apply_schedule(program, schedule)
            return record, schedule
    return None


_stores: dict[Path, RecordStore] = {}


def record_store() -> RecordStore:
    """The store that kernels are constructed from: ``records.jsonl`` beside the compiled kernels.

    Without a cache directory it keeps nothing.
    """
    directory = cache_directory()
    path = directory / "records.jsonl" if directory else Path(os.devnull)
    return _stores.setdefault(path, RecordStore(path))
