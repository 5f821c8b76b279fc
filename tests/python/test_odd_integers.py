"""No integer that the engine takes ends the process, hangs it or comes back as a raw error."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import odd_integers
import pytest

from syno import _core

STUB = Path(str(_core.__file__)).parent / "_core.pyi"
LONGEST_S = 240  # for a call that no signal ends


def functions_of_the_stub() -> set[str]:
    """Names of all that take integers; setters by the name of what they set."""
    found, owner = set(), ""
    for line in STUB.read_text().splitlines():
        if line.startswith("class "):
            owner = line.split()[1].rstrip(":") + "."
        elif re.match(r"def ", line):
            owner = ""
        match = re.match(r" *def (\w+)\((.*)\) ->", line)
        if match and "SupportsInt" in match[2]:
            found.add(owner + match[1])
    return found


def test_every_function_that_takes_integers_has_a_row() -> None:
    assert functions_of_the_stub() == set(odd_integers.ROWS)


def test_odd_integers_give_results_or_sentences() -> None:
    done = 0
    wrong: list[str] = []
    while True:
        child = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", odd_integers.__file__, str(done)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = child.communicate(timeout=LONGEST_S)
            how = f"ended with {child.returncode}: {err[-800:]}"
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, _ = child.communicate()
            how = "did not end"
        lines = out.splitlines()
        wrong += [line for line in lines if line.startswith("wrong")]
        if lines and lines[-1] == "done":
            break
        if not lines or len(wrong) > 20:
            pytest.fail(f"{how}\n{wrong}")
        last = [line for line in lines if line.startswith("call")][-1]
        wrong.append(f"{last} {how}")
        done = int(last.split()[1]) + 1
    assert not wrong, "\n".join(wrong)
