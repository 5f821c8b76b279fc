"""Which way each operator of a network runs: on native kernels or as plain PyTorch, by timing it in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from syno.errors import KernelError
from syno.support.inputs import tensors
from syno.support.numbers import significant
from syno.timing.bench import measure
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
    packed_us: float | None = None
    """Of the kernel with its weights packed before; None where it packs none."""

    @property
    def prepack(self) -> bool:
        """Whether the kernel runs with its weights packed before."""
        return self.native and self.packed_us is not None and self.packed_us < self.native_us

    @property
    def why(self) -> str:
        """The reason, for people."""
        times = {"kernel": self.native_us, "PyTorch": self.torch_us}
        if self.packed_us is not None:
            times["packed kernel"] = self.packed_us
        taken = "PyTorch"
        if self.native:
            taken = "packed kernel" if self.prepack else "kernel"
        own = times.pop(taken)
        return f"{taken}: {significant(own)} us, " + ", ".join(
            f"{n} {significant(us)} us" for n, us in times.items()
        )


def choose_in_place(model: nn.Module, *example: Any, turns: int = 7, **named: Any) -> list[Choice]:
    """Sets every operator of a network to the fastest of its ways, each timed on its own input: a kernel,
    a kernel with its weights packed once, or plain PyTorch.

    Args:
        model: on the CPU; its operators' `native`, `prepack` and `why` are set, its mode is kept.
            What an operator gets is recorded during one run of the example.
        example: positional arguments of that run, `named` its keyword arguments.
        turns: samples of each way.
    Returns:
        One choice for each operator that the run reached, in the order of modules. Equal operators on
        inputs of equal shape and strides are timed once.
    Raises:
        KernelError: the model or the example is on another device.
    """
    for tensor in (*model.parameters(), *tensors((example, named))):
        if tensor.device.type != "cpu":
            raise KernelError(
                f"[choose] a tensor is on the device {tensor.device}; there are kernels for the CPU only: "
                "move the model and the example there, or leave the choice out"
            )
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            seen = _inputs(model, example, named)
            return _choose(seen, turns)
    finally:
        for module, training in modes:
            module.training = training


def _inputs(
    model: nn.Module, example: Sequence[Any], named: dict[str, Any]
) -> list[tuple[str, Op, tuple[Any, ...]]]:
    seen: dict[str, tuple[Op, tuple[Any, ...]]] = {}
    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, Op):

            def record(op: Op, inputs: tuple[Any, ...], name: str = name) -> None:
                seen.setdefault(name, (op, tuple(t.clone() for t in inputs)))

            hooks.append(module.register_forward_pre_hook(record))
    try:
        model(*example, **named)
    finally:
        for hook in hooks:
            hook.remove()
    return [(name, *seen[name]) for name, _ in model.named_modules() if name in seen]


def _choose(seen: Sequence[tuple[str, Op, tuple[Any, ...]]], turns: int) -> list[Choice]:
    choices = []
    known: dict[Any, dict[str, float]] = {}
    threads = torch.get_num_threads()
    for name, op, inputs in seen:
        layouts = tuple((t.shape, t.stride(), t.dtype) for t in inputs)
        same = (op.operator.canonical_hash, op.layer, layouts)
        if same not in known:
            ways = {"native": _twin(op, True), "torch": _twin(op, False)}
            if _packs(op, inputs):
                ways["packed"] = _twin(op, True, prepack=True)
            timings = measure(
                {way: _call(twin, inputs) for way, twin in ways.items()},
                turns=turns,
                min_sample_s=1e-3,
                threads=threads,
            )
            known[same] = {timing.name: timing.median_us for timing in timings}
        us = known[same]
        fastest = min(us["native"], us.get("packed", us["native"]))
        choice = Choice(
            name, fastest <= MARGIN * us["torch"], us["native"], us["torch"], us.get("packed")
        )
        op.native, op.prepack, op.why = choice.native, choice.prepack, choice.why
        choices.append(choice)
    return choices


def _packs(op: Op, inputs: Sequence[Tensor]) -> bool:
    """Whether a kernel for these inputs would pack weights."""
    twin = _twin(op, True, prepack=True)
    twin(*inputs)
    return twin.packed_bytes > 0


def _twin(op: Op, native: bool, prepack: bool = False) -> Op:
    twin = op.to_aten()
    twin.native, twin.prepack = native, prepack
    return twin


def _call(op: Op, inputs: Sequence[Tensor]) -> Any:
    return lambda: op(*inputs)
