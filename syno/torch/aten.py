"""Operators as plain PyTorch: the functions of the emitted module, called one after the other.

The text comes from syno's own emitter; :mod:`syno.torch.emitted` reads it, and no text is executed as Python, so that not
even a doctored operator file reaches further than the functions listed there.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from syno import _core
from syno.torch.emitted import Emitted, read

if TYPE_CHECKING:
    from syno.operators.operator import Operator

#: Names that a module needs for itself.
_OF_MODULES = frozenset(dir(nn.Module())) | {"_note", "_steps", "_held", "_drawn"}


def own_names(wanted: Iterable[str], taken: Container[str]) -> dict[str, str]:
    """Names of a module's parameters: as wanted, with a ``_`` behind those that something else of the module has."""
    names: dict[str, str] = {}
    for name in wanted:
        own = name
        while own in taken or own in names.values():
            own += "_"
        names[name] = own
    return names


class EmittedOperator(nn.Module):
    """An operator as the functions of its emitted text: one parameter for each weight, in order and named alike.

    A weight named like something that every module has gets a ``_`` behind its name.
    """

    def __init__(
        self,
        emitted: Emitted,
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self._note, self._steps = emitted.note, emitted.forward
        names = own_names((*emitted.parameters, *emitted.buffers), _OF_MODULES)
        for name, shape in emitted.parameters.items():
            self.register_parameter(
                names[name], nn.Parameter(torch.empty(shape, dtype=dtype, device=device))
            )
        for name, table in emitted.buffers.items():
            self.register_buffer(names[name], table(dtype, device), persistent=False)
        self._held = tuple(names[name] for name in emitted.forward.attributes)
        self._drawn = {names[name]: bounds for name, bounds in emitted.bounds.items()}
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weights anew, so that results have the variance of the inputs."""
        for name, (low, high) in self._drawn.items():
            nn.init.uniform_(getattr(self, name), low, high)

    def forward(self, *data: Tensor, **named: Tensor) -> Any:
        """Computes the operator from its inputs that are no weights, in order or by name."""
        arguments = self._steps.arguments
        if type(data) is not tuple:  # what `torch.fx.symbolic_trace` has for it
            data = tuple(data[i] for i in range(len(arguments)))
        elif named or len(data) != len(arguments):
            data = _bound(arguments, data, named)
        return self._steps(*data, *[getattr(self, name) for name in self._held])

    def extra_repr(self) -> str:
        return self._note.partition("\n\n")[0]


def _bound(
    names: Sequence[str], data: tuple[Tensor, ...], named: dict[str, Tensor]
) -> tuple[Tensor, ...]:
    rest = names[len(data) :]
    if len(data) > len(names) or set(rest) != set(named):
        raise TypeError(
            f"the operator takes {', '.join(names) or 'no inputs'}; it was given {len(data)} in order"
            + (f" and {', '.join(named)}" if named else "")
        )
    return (*data, *(named[name] for name in rest))


def aten_module(operator: Operator) -> nn.Module:
    """A new module with one parameter for each weight, in order and named alike."""
    return EmittedOperator(_emitted(str(operator.program.text())))


class AtenFunction(nn.Module):
    """The emitted functions of an operator on all its inputs, in the order of `inputs`: no weights of its own. It gives a
    tensor, or a tuple of them where the operator has several outputs."""

    def __init__(
        self, operator: Operator, inputs: Sequence[str], dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        emitted = _emitted(str(operator.program.text()))
        self._steps = emitted.forward
        # The emitted names may differ where a formula's word means something in Python.
        of_weight = dict(zip(emitted.parameters, operator.weights, strict=True))
        names = (*operator.data, *(of_weight.get(name, "") for name in emitted.forward.attributes))
        self._given = tuple(inputs.index(name) if name else -1 for name in names)
        # Tables are to be saved for gradients also where this is first called without any.
        with torch.inference_mode(False):
            for number, name in enumerate(emitted.forward.attributes):
                if name in emitted.buffers:
                    table = emitted.buffers[name](dtype, torch.device("cpu"))
                    self.register_buffer(f"table_{number}", table.to(device), persistent=False)
        self._tables = tuple(
            f"table_{number - len(operator.data)}" if at < 0 else ""
            for number, at in enumerate(self._given)
        )

    def forward(self, *tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
        values = [
            getattr(self, table) if table else tensors[at]
            for at, table in zip(self._given, self._tables)  # noqa: B905 (of equal length)
        ]
        result = self._steps(*values)
        assert isinstance(result, (Tensor, tuple))
        return result


@functools.lru_cache(maxsize=1024)
def _emitted(program_text: str) -> Emitted:
    return read(str(_core.emit_pytorch(_core.Program.parse(program_text))))
