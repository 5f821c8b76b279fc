"""Ctrl-C ends what runs long in native code, without a trace of it left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

#: Each of them would take many minutes.
LONG = {
    "reference": "op('y[i] = sum[j,k,l] x[j]*x[k]*x[l]', i=9, j=5000, k=5000, l=5000).reference(np.ones(5000))",
    "interpret_points": (
        "op('y[i] = max[j,k,l] x[j]*x[k]*x[l]', i=9, j=5000, k=5000, l=5000).program"
        ".interpret_points({'x': np.ones(5000)}, 'y', [[0]])"
    ),
    "exact": (
        "op('y[i] = sum[j,k,l] x[j]*x[k]*x[l]', i=9, j=5000, k=5000, l=5000).program"
        ".interpret_exact({'x': [1]*5000})"
    ),
    "scattered sum": (
        "op('input x[5000]\\ny[5000] : [i: 5000, j: 5000, k: 5000][(i+j+k) % 5000] += x[i]*x[j]*x[k]\\nreturn y')"
        ".reference(np.ones(5000))"
    ),
    "enumeration": "_core.enumerate_operators(_core.spec_named('resnet18'), max_steps=12)",
    "sampling": "_core.sample_operators(_core.spec_named('resnet18'), n=100000000, seed=0)",
}


@pytest.mark.parametrize("what", LONG)
def test_an_interrupt_ends_it(what: str) -> None:
    code = (
        "import numpy as np\nfrom syno import Operator, _core\nop = Operator.parse\n"
        f"try:\n    print('begins', flush=True)\n    {LONG[what]}\nexcept KeyboardInterrupt:\n    print('interrupted', flush=True)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "begins\n"
            child.send_signal(signal.SIGINT)
            rest, _ = child.communicate(timeout=120)
        finally:
            child.kill()
    assert rest == "interrupted\n"
    assert child.returncode == 0
