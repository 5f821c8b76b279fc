"""Peers that are held to a CPU's instructions: what they run is looked at, and who runs others is left out."""

from __future__ import annotations

import ctypes
import json
import mmap
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from syno import _core
from syno.errors import KernelError
from syno.machines.model import machine_model

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]

import kernels  # noqa: E402
from kernelbench import instructions, run  # noqa: E402
from kernelbench.cases import Case  # noqa: E402
from kernelbench.results import Settings  # noqa: E402

PRODUCT = "y[m,n] = sum[k] a[m,k] * b[k,n]"
#: Whether this CPU has what is held back.
WIDE = "+avx512f" in _core.host_cpu().features.split(",")

pytestmark = pytest.mark.skipif(
    instructions.sampling_absent() is not None, reason=str(instructions.sampling_absent())
)


def test_a_run_that_is_held_says_what_everybody_ran(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_text(
        json.dumps([{"name": "mm", "expr": PRODUCT, "sizes": {"m": 96, "n": 96, "k": 96}}])
    )
    command = [sys.executable, str(ROOT / "benchmarks" / "kernels.py"), "--cases", str(path)]
    command += ["--cpu", "x86-64-v3", "--peers", "eager", "--turns", "3", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    report = json.loads(done.stdout)
    assert report["held_to"] == "x86-64-v3"
    (case,) = report["cases"]
    assert set(case["avx512"]) == {"syno", *case["forms_us"]}
    assert all(share <= instructions.MOST for share in case["avx512"].values())


def settings() -> Settings:
    return Settings(["eager"], 1, 3, machine_model().to_json(), held="x86-64-v3")


def found(
    shares: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> tuple[set[str], dict[str, str]]:
    """Who is left of contestants with these shares of AVX-512, and why others are not."""
    calls: dict[str, Any] = {name: (lambda name=name: name) for name in shares}
    monkeypatch.setattr(
        run,
        "sampled",
        lambda call: instructions.Sampled(1000, round(1000 * shares[call()])),
    )
    absent: dict[str, str] = {}
    told: dict[str, float] = {}
    left = run._held(calls, "x86-64-v3", absent, told)
    assert told == shares
    return set(left), absent


def test_who_exceeds_it_is_left_out_with_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    left, absent = found({"syno": 0.0, "eager native": 0.87, "xla native": 0.01}, monkeypatch)
    assert left == {"syno", "xla native"}
    assert absent == {
        "eager native": "cannot be held to x86-64-v3: 87% of its instructions are AVX-512's"
    }


def test_a_kernel_that_exceeds_it_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KernelError, match="a kernel for x86-64-v3 runs AVX-512: 50%"):
        found({"syno": 0.5}, monkeypatch)


@pytest.mark.skipif(not WIDE, reason="no AVX-512 here, so nobody can exceed AVX2")
def test_a_run_that_is_not_held_is_seen() -> None:
    """Kernels of this process are for this CPU, whatever the run was to be held to."""
    case = Case("mm", PRODUCT, {"m": 256, "n": 256, "k": 256})
    with pytest.raises(KernelError, match="runs AVX-512"):
        run.run_case(case, settings(), {}, lambda number: None)


def test_where_instructions_cannot_be_told_apart_the_option_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernels, "sampling_absent", lambda: "instructions are told apart elsewhere")
    monkeypatch.setattr(sys, "argv", ["kernels.py", "--cpu", "x86-64-v3", "--peers", ""])
    assert kernels.main() == 2
    assert "instructions are told apart elsewhere" in capsys.readouterr().err


def test_signals_reach_a_process_that_is_looked_at() -> None:
    """Time limits are signals: a look that took one for its own stop never let the process go on."""
    heard = [0]

    def hear(number: int, frame: Any) -> None:
        heard[0] += 1

    # Another thread may take the last one so late that whoever hears the signal by then is meant: the alarm is that of
    # the tests' own limit.
    signal.signal(signal.SIGVTALRM, hear)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.002, 0.002)
        found = instructions.sampled(lambda: sum(range(1000)), seconds=0.5)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, signal.SIG_IGN)
    assert found.instructions > 20
    assert found.evex <= found.instructions
    assert heard[0] > 20


def test_code_that_begins_a_page_is_looked_at() -> None:
    """What lies before it cannot be read: a thread that was given up then stood still forever."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    page = mmap.PAGESIZE
    writable = mmap.PROT_READ | mmap.PROT_WRITE
    begin = libc.mmap(None, 2 * page, writable, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    ctypes.memmove(begin + page, bytes.fromhex("ffcf75fcc3"), 5)  # begin: dec edi; jnz begin; ret
    assert libc.mprotect(begin + page, page, mmap.PROT_READ | mmap.PROT_EXEC) == 0
    assert libc.munmap(begin, page) == 0
    count_down = ctypes.CFUNCTYPE(None, ctypes.c_int)(begin + page)
    found = instructions.sampled(lambda: count_down(1_000_000), seconds=0.3)
    assert found.instructions > 20 and found.evex == 0


def test_where_no_process_may_look_at_another_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(call: Any) -> Any:
        raise OSError("the system lets no process look at another")

    monkeypatch.setattr(run, "sampled", refused)
    with pytest.raises(KernelError, match="lets no process look at another"):
        run._held({"syno": lambda: None}, "x86-64-v3", {}, {})
