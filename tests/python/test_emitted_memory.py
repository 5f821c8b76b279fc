"""What emitted PyTorch makes on its way is no more than a few times what the operator reads, writes and multiplies."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import syno
from syno import _core
from syno.operators.operator import Operator

#: As the emitter lets views copy, and once more for what a product copies of its operands.
_MOST = 5


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Elements of the largest memory that functions make."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(each, Tensor):
                held = each.untyped_storage().nbytes() // each.element_size()
                self.elements = max(self.elements, held)
        return made


class Net(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)  # type: ignore[no-any-return]


CASES = [
    (nn.Conv1d(16, 16, 5, padding=4, dilation=2), (1, 16, 96)),
    (nn.Conv1d(16, 32, 5, 2, padding=2), (1, 16, 96)),
    (nn.Conv2d(16, 16, 3, padding=1), (1, 16, 12, 12)),
    (nn.Conv2d(16, 32, 3, 2, padding=1), (1, 16, 12, 12)),
    (nn.Linear(48, 64), (1, 7, 48)),
]


@pytest.mark.parametrize(("layer", "shape"), CASES, ids=lambda each: type(each).__name__)
def test_operators_of_a_space_make_little_on_the_way(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    (group,) = syno.sites(Net(layer).eval(), torch.randn(shape)).groups()
    for symbolic in syno.sample(group.space(), 24, seed=3):
        operator = symbolic.at(0)
        module = operator.to_torch()
        given = [torch.randn(operator.shapes[name], requires_grad=True) for name in operator.data]
        counted = Largest()  # type: ignore[no-untyped-call]
        with counted:
            result = module(*given)
            result.sum().backward()
        bound = max(operator.flops, operator.params, result.numel(), *(x.numel() for x in given))
        assert counted.elements <= _MOST * bound, (operator.expr, counted.elements, bound)


@pytest.mark.parametrize(
    "text",
    [
        "y[o,l] = sum[c] x[25*c%16,l-12+25*c/16] * w[o,c]",
        "y[o,l] = sum[c,k] x[c,(5*l+3)/4%96+7*k-9] * w[o,c,k]",
        "y[o,l] = max[c] x[9*c%16,(l+5)%96/3+c] fill -inf",
        # By views it is a convolution of groups.
        "y[q,p] = sum[t,e] x[e+8*(q/16),48*((inside(2*p+t-2,96)+1)%2)+(inside(2*p+t-2,96)+1)/2%48] * w[q%16,t,e+8*(q/16)]",
        "y[o,l] = sum[c] x[c,(37*l+11*c)%96] * w[o,c] + x[o,(11*l)%96]",
    ],
)
def test_tables_of_places_compute_what_the_interpreter_does(text: str) -> None:
    sizes = {"o": 4, "l": 96, "c": 16, "k": 3, "e": 8, "p": 48, "q": 32, "t": 5}
    used = {name: n for name, n in sizes.items() if f"[{name}" in text or f",{name}" in text}
    operator = Operator.parse(text, **used, shapes={"x": (16, 96)})
    emitted = str(_core.emit_pytorch(operator.program))
    assert "index_select" in emitted, emitted
    module = operator.to_torch().double()
    torch.manual_seed(0)
    x = torch.randn(16, 96, dtype=torch.float64, requires_grad=True)
    named = {name: getattr(module, name).detach().numpy() for name in operator.weights}
    got = module(x)
    wanted = operator.reference(x=x.detach().numpy(), **named)
    torch.testing.assert_close(got.detach(), torch.as_tensor(wanted), rtol=1e-9, atol=1e-9)
    assert torch.autograd.gradcheck(module, (x,), fast_mode=True)
