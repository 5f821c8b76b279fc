"""What is run as an operator's plain PyTorch computes, and can do nothing else."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

import syno  # noqa: E402
from syno.errors import VerifyError  # noqa: E402
from syno.torch.aten import EmittedOperator  # noqa: E402
from syno.torch.emitted import read  # noqa: E402

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
def test_what_is_emitted_is_read(text: str, sizes: dict[str, int]) -> None:
    operator = syno.Operator.parse(text, **sizes)
    module = operator.to_torch()
    values = {name: torch.randn(operator.shapes[name]) for name in operator.inputs}
    with torch.no_grad():
        for parameter, name in zip(module.parameters(), operator.weights, strict=True):
            parameter.copy_(values[name])
        got = module(*(values[name] for name in operator.data))
    expected = operator.reference(*(values[name].double().numpy() for name in operator.inputs))
    torch.testing.assert_close(got.double(), torch.from_numpy(expected), rtol=1e-4, atol=1e-5)


def test_no_text_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **named: object) -> None:
        raise AssertionError("a text was run as Python")

    operator = syno.Operator.parse("y[i] = sum[k] relu(x[(i+k)%5]) * w[k]", i=5, k=3)
    for name in ("exec", "eval"):
        monkeypatch.setattr(f"builtins.{name}", refuse)
    read.cache_clear()
    operator.to_torch()(torch.zeros(5))


def test_the_form_of_the_text() -> None:
    module = EmittedOperator(read(GOOD))
    assert torch.equal(module(torch.tensor(2.0)), 2 * module.k)
    assert -0.5 <= module.k.min() <= module.k.max() <= 0.5


@pytest.mark.parametrize("line", REACHES)
def test_what_reaches_further_does_not(line: str) -> None:
    with pytest.raises(VerifyError):
        read(GOOD.replace(LINE, line))


@pytest.mark.parametrize(("good", "bad"), SHAPES)
def test_what_runs_by_being_defined_does_not(good: str, bad: str) -> None:
    assert good in GOOD
    with pytest.raises(VerifyError):
        read(GOOD.replace(good, bad))


@pytest.mark.parametrize(
    "name", ["_w", "half", "type", "to", "training", "modules", "len", "math", "_steps", "table_0"]
)
def test_any_name_is_a_weight_or_an_input(name: str) -> None:
    weight = syno.Operator.parse(f"y[i] = x[i] * {name}[i]", i=3).to_torch()
    weight.eval().load_state_dict({key: torch.full((3,), 2.0) for key in weight.state_dict()})
    assert weight(torch.ones(3)).tolist() == [2, 2, 2]
    data = syno.Operator.parse(f"y[i] = {name}[i] * w[i]", i=3).to_torch()
    assert torch.equal(data(torch.ones(3)), data.w)


MODULE = "y[i,j] = select(x[i,j] < 0.5, index(i), gelu(x[i,j])) * sum[k] x[i,(j+k)%5] * w[k]"


@pytest.mark.parametrize(
    "transformed",
    [
        copy.deepcopy,
        lambda module: pickle.loads(pickle.dumps(module)),
        lambda module: torch.jit.trace(module, torch.zeros(2, 5)),
        lambda module: torch.export.export(module, (torch.zeros(2, 5),)).module(),
        torch.fx.symbolic_trace,
        lambda module: torch.compile(module, fullgraph=True, backend="eager"),
        lambda module: lambda x: torch.func.functional_call(module, dict(module.named_parameters()), x),
        lambda module: lambda x: module(x=x),
    ],
    ids=["copy", "pickle", "jit", "export", "fx", "compile", "functional", "by name"],
)  # fmt: skip
def test_modules_are_what_pytorch_knows(transformed: Callable[..., Callable[..., object]]) -> None:
    module = syno.Operator.parse(MODULE, i=2, j=5, k=3).to_torch()
    x = torch.randn(2, 5)
    assert torch.equal(transformed(module)(x), module(x))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda module, x: module(), "takes x, z; it was given 0 in order"),
        (lambda module, x: module(x, x, x), "given 3 in order"),
        (lambda module, x: module(x, y=x), "given 1 in order and y"),
        (lambda module, x: module(x, x=x), "given 1 in order and x"),
    ],
)
def test_other_arguments_are_refused(call: Callable[..., object], said: str) -> None:
    module = syno.Operator.parse(
        "y[i] = sum[k] x[i,k] * z[i,k] * w[k]", weights=["w"], i=2, k=3
    ).to_torch()
    with pytest.raises(TypeError, match=said):
        call(module, torch.zeros(2, 3))
