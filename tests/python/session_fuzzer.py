"""Feeds damaged and absurd sessions and files to everything that reads them: whatever comes, it ends in a typed error or
a result.

The seals of a session say that nothing was damaged by accident; who makes a session on purpose seals what he likes. So
the rows changed here have good seals. Run as a program, as `reader_fuzzer.py` is.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import session_operators
from reader_fuzzer import Fuzzer, Mutator, run_as_program
from test_synth import site
from typer.testing import CliRunner

from syno import _core
from syno.cli.main import app
from syno.config import config
from syno.errors import SynoError
from syno.machines.model import load_machine, machine_model
from syno.operators.operator import Operator
from syno.report.build import FINAL_FILE, FinalBench
from syno.report.render import read_report
from syno.searching.result import load_weights
from syno.session import Component, InlineExecutor, Session, Stage, original_file, sealing
from syno.session.config import fixed_json, read_config
from syno.session.network_file import FILES, read_network
from syno.support.inputs import MISFITS
from syno.tuning.records import RecordStore, make_record

EVALUATOR, MEASURER = "session_operators:Reader", "session_operators:Meter"

READING = [
    ["status", "R"],
    ["status", "R", "--json"],
    ["show", "R", "c1"],
    ["show", "R", "c2", "--json"],
    ["explain", "R", "c1"],
    ["explain", "R", "c3", "--neighbours", "2"],
    ["report", "R", "-o", "out.json", "--json"],
    ["report", "R", "-o", "out.html"],
    ["report", "R", "-o", "out.md"],
    ["report", "R", "-o", "out.csv"],
]


class SessionFuzzer(Fuzzer):
    """Cases about sessions and what else is kept in files."""

    def prepare(self) -> None:
        os.environ["SYNO_TRACEBACK"] = "1"  # commands raise what they would turn into a sentence
        self.whole = self.folder / "whole"
        self.copy = self.folder / "copy"
        _core.host_cpu()
        self.make_session()
        self.make_files()
        self.readers: list[Callable[[Mutator], None]] = [
            *[self.database] * 4, *[self.settings] * 2, self.beside, self.resumed, self.records, self.machine_file,
            self.weights, self.report_file, self.original,
        ]  # fmt: skip

    def make_session(self) -> None:
        spec = json.dumps(site(max_steps=4))
        stages = [
            Stage(
                name=name,
                proposer=Component(
                    reference="syno.searching.proposers:make",
                    options={"spec": spec, "policy": "random"},
                ),
            )
            for name in ("one", "two")
        ]
        with Session.open(
            self.whole,
            stages=stages,
            evaluator=Component(reference=EVALUATOR, options={"stages": {"one": ["a"], "two": ["b"]}}),
            measurer=Component(reference=MEASURER),
            batch_width=2,
        ) as session:  # fmt: skip
            self.run_session(session, budget=4)
            known = session.candidates()
            final = FinalBench(
                latencies_us={"baseline": 9.0, known[0].id: 3.0}, iqrs_us={"baseline": 1.0}, speedups={known[0].id: 3.0},
                compiled_us={"baseline": 8.0}, skipped={"x": "why"}, threads=1, batch=2,
            )  # fmt: skip
            (self.whole / FINAL_FILE).write_bytes(msgspec.json.encode(final))
        os.sync()

    def run_session(self, session: Session, budget: int) -> None:
        executor = InlineExecutor(
            {EVALUATOR: session_operators.Reader(), MEASURER: session_operators.Meter()}
        )
        session.run(budget=budget, finalists=1, final_seeds=2, executor=executor, progress="off")

    def make_files(self) -> None:
        import torch
        from safetensors.torch import save
        from torch import nn

        import syno
        from syno.session.network_file import keep_network

        self.model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.Linear(4, 4))
        example = {"input": torch.ones(1, 8, 4, 4)}
        found = syno.sites(self.model, example, repeats=1)
        self.kept = self.folder / "kept"
        self.kept.mkdir()
        assert keep_network(self.kept, 1, example, found)
        original_file.keep_original(self.kept, self.model, example["input"], found, "kept")
        kept = original_file.read_original(self.kept)
        assert kept is not None and kept.recorded is not None
        self.weights_file = save(dict(self.model.state_dict()))
        program, schedule = self.concrete[0], self.schedules[0]
        record = make_record(program, schedule, _Measured(), threads=1)  # type: ignore[arg-type]
        self.record = msgspec.json.encode(record).decode()
        out = self.folder / "made.json"
        CliRunner().invoke(app, ["report", str(self.whole), "-o", str(out)])
        self.report_text = out.read_text()

    # --- sessions

    def copied(self) -> Path:
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.whole, self.copy)
        return self.copy

    def value_like(self, value: Any, m: Mutator) -> Any:
        """Another value of a cell."""
        rng = m.rng
        if rng.random() < 0.15:
            return rng.choice([None, "", "x", b"\xff\x00", -1, 2**62, 0.5, float("inf"), 10**6])
        if isinstance(value, str):
            if value.startswith(("{", "[")) and rng.random() < 0.7:
                with contextlib.suppress(ValueError):
                    return json.dumps(m.tree(m.tree(json.loads(value))))
            return _storable(m.text(value, []))
        if isinstance(value, float):
            return rng.choice([0.0, -value, 1e300, float("inf"), value * 2, rng.random()])
        if isinstance(value, int):
            return rng.choice([0, 1, -1, value + 1, 10**9, 2**63 - 1])
        return rng.choice([1, "x", 0.5])

    def change(self, session: Path, m: Mutator) -> None:
        """A few cells of the database, well sealed."""
        connection = sqlite3.connect(session / "session.sqlite", isolation_level=None)
        try:
            sealing.prepare(connection)
            tables = [
                row[0]
                for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
                if row[0] != "seal"
            ]
            for _ in range(m.rng.choice([1, 1, 2, 4])):
                table = m.rng.choice(tables)
                rows = connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
                if not rows:
                    continue
                row = m.rng.choice(rows)
                names = [c[1] for c in connection.execute(f"PRAGMA table_info({table})")]
                name = m.rng.choice(names)
                value = self.value_like(row[1 + names.index(name)], m)
                self.case("database", f"{table}.{name} of row {row[0]} = {value!r}")
                with contextlib.suppress(sqlite3.Error, OverflowError):
                    if m.rng.random() < 0.1:
                        connection.execute(f"DELETE FROM {table} WHERE rowid = ?", (row[0],))
                    else:
                        connection.execute(
                            f"UPDATE {table} SET {name} = ? WHERE rowid = ?", (value, row[0])
                        )
        finally:
            connection.close()

    def ask(self, session: Path, m: Mutator) -> None:
        words = m.rng.choice(READING)
        given = [str(session) if word == "R" else word for word in words]
        result = CliRunner().invoke(app, given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code in (0, 1, 2), result.output

    def database(self, m: Mutator) -> None:
        session = self.copied()
        self.change(session, m)
        self.ask(session, m)

    def settings(self, m: Mutator) -> None:
        session = self.copied()
        path = session / "session.toml"
        text = path.read_text()
        if m.rng.random() < 0.3:
            text = _storable(m.text(text, []))
        else:
            text = _toml(m.tree(m.tree(msgspec.toml.decode(text))))
        path.write_text(self.case("settings", text), encoding="utf-8")
        with contextlib.suppress(SynoError):  # as if the session had been made so
            fixed = fixed_json(read_config(path))
            connection = sqlite3.connect(session / "session.sqlite", isolation_level=None)
            sealing.prepare(connection)
            connection.execute("UPDATE meta SET value = ? WHERE key = 'fixed'", (fixed,))
            connection.close()
        self.ask(session, m)

    def beside(self, m: Mutator) -> None:
        """The files beside the database."""
        session = self.copied()
        connection = sqlite3.connect(session / "session.sqlite", isolation_level=None)
        sealing.prepare(connection)
        connection.execute("DELETE FROM file")
        connection.close()
        path = session / FINAL_FILE
        text = path.read_text()
        if m.rng.random() < 0.7:
            text = json.dumps(m.tree(m.tree(json.loads(text))))
        else:
            text = _storable(m.text(text, []))
        path.write_text(self.case("beside", text))
        words = m.rng.choice([words for words in READING if words[0] == "report"])
        result = CliRunner().invoke(app, [str(session) if w == "R" else w for w in words])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        # What else is kept of the network.
        for name in FILES:
            shutil.copy(self.kept / name, session / name)
        path = session / m.rng.choice(FILES)
        path.write_bytes(self.bytes_like(path.read_bytes(), m))
        read_network(session)

    def bytes_like(self, content: bytes, m: Mutator) -> bytes:
        if content.startswith((b"{", b"[")) and m.rng.random() < 0.7:
            with contextlib.suppress(ValueError):
                return json.dumps(m.tree(m.tree(json.loads(content)))).encode()
        damaged = bytearray(content)
        for _ in range(m.rng.choice([1, 1, 3, 10])):
            at = m.rng.randrange(min(len(damaged), m.rng.choice([16, 300, len(damaged)])))
            damaged[at] = m.rng.choice([0, 255, damaged[at] ^ (1 << m.rng.randrange(8))])
        if m.rng.random() < 0.2:
            del damaged[m.rng.randrange(len(damaged)) :]
        self.case("bytes", repr(bytes(damaged[:2000])))
        return bytes(damaged)

    def resumed(self, m: Mutator) -> None:
        """A search goes on in a session that somebody else wrote, who was trusted."""
        session = self.copied()
        self.change(session, m)
        with Session.open(session) as opened:
            self.run_session(opened, budget=6)

    # --- other files

    def records(self, m: Mutator) -> None:
        path = self.folder / "records.jsonl"
        lines = []
        for _ in range(3):
            if m.rng.random() < 0.7:
                lines.append(json.dumps(m.tree(json.loads(self.record))))
            else:
                lines.append(_storable(m.text(self.record, [])))
        path.write_text(self.case("records", "\n".join(lines)), encoding="utf-8")
        store = RecordStore(path)
        found = store.best(self.concrete[0], "float32", 1)
        if found is not None:
            record, schedule = found
            assert repr(record) and _core.apply_schedule(self.concrete[0], schedule).text()
        other = self.folder / "other.jsonl"
        other.unlink(missing_ok=True)
        RecordStore(other).merge(path)

    def machine_file(self, m: Mutator) -> None:
        path = self.folder / "machine.json"
        path.write_bytes(self.bytes_like(self.machine.to_json().encode(), m))
        machine = load_machine(path)
        with config(machine=str(path)):
            assert machine_model() == machine
            op = Operator.parse("y[i,j] = sum[k] a[i,k] * b[k,j]", i=4, j=4, k=4)
            assert op.compile().verification is not None

    def weights(self, m: Mutator) -> None:
        path = self.folder / "weights.safetensors"
        path.write_bytes(self.bytes_like(self.weights_file, m))
        load_weights(self.model, path, "c1")

    def original(self, m: Mutator) -> None:
        """What a session keeps of a model, which is run."""
        import torch

        for name in original_file.FILES:
            shutil.copy(self.kept / name, self.folder / name)
        path = self.folder / m.rng.choice([original_file.FILE, *original_file.FILES])
        path.write_bytes(self.bytes_like(path.read_bytes(), m))
        kept = original_file.read_original(self.folder)
        if kept is not None and kept.recorded is not None:
            model = kept.model()
            with contextlib.suppress(*MISFITS), torch.no_grad():  # as of any model
                model(torch.ones(1, 8, 4, 4))

    def report_file(self, m: Mutator) -> None:
        path = self.folder / "report.json"
        path.write_text(json.dumps(m.tree(m.tree(json.loads(self.report_text)))))
        report = read_report(path)
        assert report._repr_html_()


class _Measured:
    outcome, reason, median_s, q1_s, q3_s = "ok", "", 1e-5, 1e-5, 1e-5
    samples, compile_ms, spills, note = 5, 1.0, 0, ""


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def _toml(tree: Any) -> str:
    """TOML knows neither null nor every list."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {_storable(str(k)): plain(v) for k, v in value.items() if v is not None}
        if isinstance(value, list):
            return [plain(v) for v in value if v is not None]
        if isinstance(value, str):
            return _storable(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return max(-(2**63), min(value, 2**63 - 1))
        return value

    try:
        return msgspec.toml.encode(plain(tree)).decode()
    except (TypeError, AttributeError):  # not even a table
        return str(tree)


if __name__ == "__main__":
    run_as_program(SessionFuzzer)
