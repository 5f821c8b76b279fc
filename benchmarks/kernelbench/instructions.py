"""Which vector instructions a call runs: its process is stopped again and again, and the instruction it is at is read.

A CPU's newer instructions are not held back by asking: a library may read `ONEDNN_MAX_CPU_ISA` and multiply matrices by
another one that does not. So who is compared at AVX2 is looked at while it runs.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: What every process of a run is told, by the CPU whose instructions it is held to.
HELD: dict[str, dict[str, str]] = {
    "x86-64-v3": {
        "SYNO_CPU": "x86-64-v3",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ,-AVX512ER",
    }
}
#: A process in which more of the instructions than this have AVX-512's encoding is not held.
MOST = 0.02

# Requests of ptrace(2).
_CONT, _GETREGS, _SEIZE, _INTERRUPT = 7, 12, 0x4206, 0x4207
_WALL = 0x40000000
#: What a stop says that was asked for; others are signals on their way.
_STOPPED = 128
_SET_PTRACER, _ANY = 0x59616D61, ctypes.c_ulong(-1)
_REGISTERS, _RIP = 27, 16
#: The first byte of an instruction in AVX-512's encoding (EVEX); in 64-bit code no other instruction begins with it.
_EVEX = 0x62
_SYSCALL = b"\x0f\x05"


@dataclass(frozen=True)
class Sampled:
    """Instructions that threads of a process were found at: all, and those of AVX-512's encoding."""

    instructions: int
    evex: int

    @property
    def share(self) -> float:
        return self.evex / max(self.instructions, 1)


def sampling_absent() -> str | None:
    """Why nothing can be sampled here, or None."""
    if platform.machine() == "x86_64" and sys.platform == "linux":
        return None
    return f"instructions are told apart on x86-64 Linux alone, not on {platform.machine()} {sys.platform}"


def sampled(call: Callable[[], Any], seconds: float = 0.3) -> Sampled:
    """What `call` runs, called again and again for `seconds`, in all threads of this process.

    Raises:
        OSError: the system lets no process look at another.
    """
    ctypes.CDLL(None).prctl(_SET_PTRACER, _ANY, 0, 0, 0)
    command = [sys.executable, __file__, str(os.getpid())]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        if child.stdout.readline().strip() != "ready":
            raise OSError(
                "no instruction can be sampled: the system lets no process look at another"
            )
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            call()
        child.stdin.close()
        words = child.stdout.read().split()
    return Sampled(int(words[0]), int(words[1]))


def _tasks(process: int) -> list[int]:
    return sorted(int(path.name) for path in Path(f"/proc/{process}/task").iterdir())


class _Watched:
    """Threads of another process, each stopped for as long as it takes to read where it is."""

    def __init__(self, process: int) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.argtypes = [
            ctypes.c_long,
            ctypes.c_long,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]
        self._libc.ptrace.restype = ctypes.c_long
        self._process = process
        self._registers = (ctypes.c_ulonglong * _REGISTERS)()
        self._seized: set[int] = set()
        self._memory = os.open(f"/proc/{process}/mem", os.O_RDONLY)
        self.seize()

    def seize(self) -> None:
        """All threads that there are now."""
        for task in _tasks(self._process):
            if task not in self._seized:
                self._ask(_SEIZE, task)
                self._seized.add(task)

    def at(self) -> Iterable[bytes]:
        """The first bytes of the instruction that each thread is at, those that wait in the kernel left out."""
        for task in sorted(self._seized):
            try:
                self._stop(task)
                self._ask(_GETREGS, task, ctypes.byref(self._registers))
                rip = self._registers[_RIP]
                code, before = self._read(rip, 1), self._read(rip - 2, 2)
                self._ask(_CONT, task)
            except OSError:  # it has ended
                self._seized.discard(task)
                continue
            if code and before != _SYSCALL:
                yield code

    def _read(self, address: int, count: int) -> bytes:
        """Nothing where nothing is to be read, as before a function that begins a page."""
        try:
            return os.pread(self._memory, count, address)
        except OSError:
            return b""

    def _stop(self, task: int) -> None:
        """Signals that come meanwhile go where they would have gone."""
        self._ask(_INTERRUPT, task)
        while True:
            _, status = os.waitpid(task, _WALL)
            if not os.WIFSTOPPED(status):
                raise ProcessLookupError(task)
            if status >> 16 == _STOPPED:
                return
            self._ask(_CONT, task, os.WSTOPSIG(status))

    def _ask(self, request: int, task: int, data: Any = None) -> None:
        if self._libc.ptrace(request, task, None, data) < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))


def _watch(process: int) -> None:
    """Says "ready", samples until its input ends, and says what it found."""
    import select

    watched = _Watched(process)
    print("ready", flush=True)
    found = evex = rounds = 0
    while not select.select([sys.stdin], [], [], 2e-4)[0]:
        for code in watched.at():
            found += 1
            evex += code[0] == _EVEX
        rounds += 1
        if rounds % 16 == 0:
            with suppress(OSError):
                watched.seize()
    print(found, evex, flush=True)


if __name__ == "__main__":
    _watch(int(sys.argv[1]))
