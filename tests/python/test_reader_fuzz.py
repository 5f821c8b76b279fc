"""Whatever is read or passed ends in a typed sentence: seeded fuzzers in child processes that may die.

`FUZZ_CASES=1000000 pytest tests/python/test_reader_fuzz.py --timeout=0` is the nightly form; `FUZZ_SEED` draws
others.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = int(os.environ.get("FUZZ_CASES", "400"))
SEED = int(os.environ.get("FUZZ_SEED", "20261122"))
#: Fuzzers, and the share of the cases that each gets: those of sessions run whole commands.
FUZZERS = {"reader_fuzzer.py": 1.0, "session_fuzzer.py": 0.4}


@pytest.mark.parametrize("fuzzer", FUZZERS)
def test_damaged_input_ends_in_a_typed_error(fuzzer: str, tmp_path: Path) -> None:
    last = tmp_path / "last"
    cases = max(1, int(CASES * FUZZERS[fuzzer]))
    program = str(Path(__file__).with_name(fuzzer))
    command = [sys.executable, program, f"--seed={SEED}", f"--count={cases}", f"--last={last}"]
    environment = {**os.environ, "SYNO_CACHE": str(tmp_path / "cache")}
    child = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    case = last.read_text(encoding="utf-8") if last.exists() else "none"
    assert child.returncode == 0, f"{child.stderr[-4000:]}\nthe last case: {case[:3000]}"
    assert f"{cases} cases" in child.stdout
