"""Kernels have names in perf and gdb."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

KERNEL = """
import os, signal, sys
import numpy as np
from syno import _core
program = _core.Program.parse("y[i,j] = exp(x[i,j])", sizes={"i": 64, "j": 4096})
schedule = _core.default_schedule(program, threads=2)
kernel = _core.compile_nest(_core.apply_schedule(program, schedule), fresh=True)
kernel(np.zeros((64, 4096), np.float32))
print(os.getpid(), kernel.symbol, kernel.report.code_bytes)
sys.stdout.flush()
"""


def run(code: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    return done.stdout.split()


def test_perf_finds_names_and_code(tmp_path: Path) -> None:
    pid, symbol, code_bytes = run(KERNEL, SYNO_PERF="1", JITDUMPDIR=str(tmp_path))
    names = Path(f"/tmp/perf-{pid}.map")
    try:
        functions = {
            name: (int(address, 16), int(size, 16))
            for address, size, name in (line.split() for line in names.read_text().splitlines())
        }
    finally:
        names.unlink()
    assert any(name.startswith(symbol + ".") for name in functions), "the body of the parallel loop"
    assert 0 < sum(size for _, size in functions.values()) <= int(code_bytes)

    dump = (tmp_path / f"jit-{pid}.dump").read_bytes()
    magic, version, header, machine, _, dumped_pid, _, _ = struct.unpack_from("<IIIIIIQQ", dump)
    assert (magic, version, machine, dumped_pid) == (0x4A695444, 1, 62, int(pid))
    found = {}
    while header < len(dump):
        kind, size, _, _, _, _, address, code_size, _ = struct.unpack_from(
            "<IIQIIQQQQ", dump, header
        )
        assert kind == 0
        name, code = dump[header + 56 : header + size].split(b"\0", 1)
        assert len(code) == code_size
        found[name.decode()] = (address, code_size)
        header += size
    assert found == functions


def test_nothing_is_written_unasked(tmp_path: Path) -> None:
    for value in ("", "0"):
        pid, *_ = run(KERNEL, SYNO_PERF=value, JITDUMPDIR=str(tmp_path))
        assert not Path(f"/tmp/perf-{pid}.map").exists()
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    pid, *_ = run(KERNEL, SYNO_PERF="1", JITDUMPDIR=str(tmp_path / "missing"))
    Path(f"/tmp/perf-{pid}.map").unlink()


@pytest.mark.skipif(shutil.which("gdb") is None, reason="needs gdb")
def test_gdb_knows_the_functions() -> None:
    code = KERNEL + "os.kill(os.getpid(), signal.SIGTRAP)\n"
    ask = ["-ex", "run", "-ex", "info functions kernel_y"]
    command = ["gdb", "-q", "-batch", "-nx", *ask, "--args", sys.executable, "-c", code]
    done = subprocess.run(
        command,
        env={**os.environ, "SYNO_GDB": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    symbol = next(line for line in done.stdout.splitlines() if " kernel_y_" in line).split()[1]
    listed = done.stdout.split("All functions matching", 1)[1]
    assert symbol in listed, done.stdout
    assert symbol + "." in listed, "the body of the parallel loop"
