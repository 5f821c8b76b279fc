"""What is run as an operator's plain PyTorch computes, and can do nothing else."""

from __future__ import annotations

import ast

import pytest

torch = pytest.importorskip("torch")

import syno  # noqa: E402
from syno import _core  # noqa: E402
from syno.errors import VerifyError  # noqa: E402
from syno.torch.aten import _check, _module_class  # noqa: E402

PROGRAMS = [
    ("y[n,o,h,w] = sum[c,r,s] x[n,c,2*h+r-1,2*w+s-1] * k[o,c,r,s]", {"n": 1, "o": 4, "c": 4, "h": 6, "w": 6, "r": 3, "s": 3}),
    ("y[i,j] = exp(x[i,j]) / sum[k] exp(x[i,k])", {"i": 3, "j": 4, "k": 4}),
    ("y[n,c,h,w] = max[r,s] x[n,c,2*h+r,2*w+s]", {"n": 1, "c": 2, "h": 3, "w": 3, "r": 2, "s": 2}),
    ("y[i,j] = x[(i*3+j)%5, j/2] * index(i)", {"i": 5, "j": 4}),
    ("y[i] = relu(gelu(x[i])) + sigmoid(x[i]) * 3 - x[i] ** 2", {"i": 5}),
    ("y[i,j] = sum[k] max(a[i,k], b[k,j])", {"i": 3, "j": 4, "k": 5}),
]  # fmt: skip

GOOD = """
import torch
import torch.nn.functional as F


class EmittedOperator(torch.nn.Module):
    def __init__(self, dtype=None, device=None):
        super().__init__()
        self.k = torch.nn.Parameter(torch.empty((4,), dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self):
        torch.nn.init.uniform_(self.k, -0.5, 0.5)

    def forward(self, x):
        y = x.expand((4,)) * self.k
        return y
"""

LINE = "        y = x.expand((4,)) * self.k\n"
REACHES = [
    "        y = getattr(x, 'device')\n", "        y = open('file')\n", "        y = eval('1')\n",
    "        y = x.__class__\n", "        y = ().__class__\n", "        y = x._base\n", "        import os\n",
    "        y = torch.load('file')\n", "        y = torch.hub.load('a', 'b')\n", "        y = torch.ops.load_library('a')\n",
    "        y = torch.from_file('file')\n", "        y = torch.os.system('true')\n", "        y = torch.serialization.os\n",
    "        y = torch.jit.load('file')\n", "        y = F.torch.load('file')\n", "        y = F.warnings.sys\n",
    "        y = math.__loader__\n", "        y = [z for z in x]\n", "        y = (lambda: x)()\n", "        y = f'{x}'\n",
    "        torch = x\n        y = torch.load('file')\n", "        y = x.numpy().tofile('file')\n",
    "        y = __import__('os')\n", "        y = globals()\n", "        y = __builtins__\n", "        global torch\n",
    "        while x: pass\n", "        y = vars(torch)\n", "        y = (yield x)\n", "        y = type(x)\n",
]  # fmt: skip
SHAPES = [
    ("class Emitted", "print('x')\n\nclass Emitted"),
    ("class Emitted", "x = 1\n\nclass Emitted"),
    ("class Emitted", "@print\nclass Emitted"),
    ("(torch.nn.Module)", "(torch.nn.Module, metaclass=print)"),
    ("(torch.nn.Module)", "(print('x'))"),
    ("    def forward(self, x)", "    y = print('x')\n    def forward(self, x)"),
    ("    def forward(self, x)", "    @print\n    def forward(self, x)"),
    ("    def forward(self, x)", "    def forward(self, x=print('x'))"),
    ("    def forward(self, x)", "    def forward(self, x: print('x'))"),
    ("    def forward(self, x)", "    def forward(self, x) -> print('x')"),
    ("    def forward(self, x)", "    def __del__(self)"),
    ("import torch.nn.functional as F", "import os as F"),
    ("import torch.nn.functional as F", "import torch.hub as F"),
    ("import torch.nn.functional as F", "from os import system as F"),
]


@pytest.mark.parametrize(("text", "sizes"), PROGRAMS, ids=range(len(PROGRAMS)))
def test_what_is_emitted_passes(text: str, sizes: dict[str, int]) -> None:
    operator = syno.Operator.parse(text, **sizes)
    assert isinstance(_module_class(str(operator.program.text()))(), torch.nn.Module)


def test_named_operators_pass() -> None:
    for name in ("conv", "matmul", "softmax", "layer_norm"):
        assert hasattr(_core, name)
    _check(ast.parse(GOOD))


@pytest.mark.parametrize("line", REACHES)
def test_what_reaches_further_does_not(line: str) -> None:
    with pytest.raises(VerifyError):
        _check(ast.parse(GOOD.replace(LINE, line)))


@pytest.mark.parametrize(("good", "bad"), SHAPES)
def test_what_runs_by_being_defined_does_not(good: str, bad: str) -> None:
    assert good in GOOD
    with pytest.raises(VerifyError):
        _check(ast.parse(GOOD.replace(good, bad)))
