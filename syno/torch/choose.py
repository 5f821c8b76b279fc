"""Which way each operator of a network runs: on native kernels or as plain PyTorch, by timing it in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from syno.bench import measure
from syno.torch.module import Op

#: A kernel must be this much slower than PyTorch before it is given up: less is noise of one measurement.
MARGIN = 1.05


@dataclass(frozen=True)
class Choice:
    """How one operator runs, and the times of both ways at what the network gives it, microseconds."""

    site: str
    native: bool
    native_us: float
    torch_us: float

    @property
    def why(self) -> str:
        """The reason, for people."""
        way, other = ("kernel", "PyTorch") if self.native else ("PyTorch", "kernel")
        times = (self.native_us, self.torch_us)
        own, its = times if self.native else times[::-1]
        return f"{way}: {own:.0f} us, {other} {its:.0f} us"


def choose_in_place(model: nn.Module, *example: Tensor, turns: int = 7) -> list[Choice]:
    """Sets every operator of a network to the faster of its two ways, each timed on its own input.

    Args:
        model: on the CPU; its operators' `native` and `why` are set, its mode is kept. What an
            operator gets is recorded during one run of the example.
        turns: samples of each way.
    Returns:
        One choice for each operator that the run reached, in the order of modules. Equal operators on
        inputs of equal shape and strides are timed once.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            seen = _inputs(model, example)
            return _choose(seen, turns)
    finally:
        for module, training in modes:
            module.training = training


def _inputs(model: nn.Module, example: Sequence[Tensor]) -> list[tuple[str, Op, tuple[Any, ...]]]:
    seen: dict[str, tuple[Op, tuple[Any, ...]]] = {}
    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, Op):

            def record(op: Op, inputs: tuple[Any, ...], name: str = name) -> None:
                seen.setdefault(name, (op, tuple(t.clone() for t in inputs)))

            hooks.append(module.register_forward_pre_hook(record))
    try:
        model(*example)
    finally:
        for hook in hooks:
            hook.remove()
    return [(name, *seen[name]) for name, _ in model.named_modules() if name in seen]


def _choose(seen: Sequence[tuple[str, Op, tuple[Any, ...]]], turns: int) -> list[Choice]:
    choices = []
    known: dict[Any, tuple[float, float]] = {}
    threads = torch.get_num_threads()
    for name, op, inputs in seen:
        layouts = tuple((t.shape, t.stride(), t.dtype) for t in inputs)
        same = (op.operator.canonical_hash, op.layer, layouts)
        if same not in known:
            native, plain = _twin(op, True), _twin(op, False)
            native_time, torch_time = measure(
                {"native": _call(native, inputs), "torch": _call(plain, inputs)},
                turns=turns,
                min_sample_s=1e-3,
                threads=threads,
            )
            known[same] = (native_time.median_us, torch_time.median_us)
        native_us, torch_us = known[same]
        choice = Choice(name, native_us <= MARGIN * torch_us, native_us, torch_us)
        op.native, op.why = choice.native, choice.why
        choices.append(choice)
    return choices


def _twin(op: Op, native: bool) -> Op:
    twin = op.to_aten()
    twin.native = native
    return twin


def _call(op: Op, inputs: Sequence[Tensor]) -> Any:
    return lambda: op(*inputs)
