"""Whatever is read or passed ends in a typed sentence: a seeded fuzzer in a child process that may die.

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
FUZZER = Path(__file__).with_name("reader_fuzzer.py")


@pytest.mark.slow
def test_damaged_input_ends_in_a_typed_error(tmp_path: Path) -> None:
    last = tmp_path / "last"
    command = [sys.executable, str(FUZZER), f"--seed={SEED}", f"--count={CASES}", f"--last={last}"]
    environment = {**os.environ, "SYNO_CACHE": str(tmp_path / "cache")}
    child = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    case = last.read_text(encoding="utf-8") if last.exists() else "none"
    assert child.returncode == 0, f"{child.stderr[-4000:]}\nthe last case: {case[:3000]}"
    assert f"{CASES} cases" in child.stdout
