"""The memory format that a network computes in: the faster one of row-major and channels-last, timed as a whole."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from syno.support.numbers import significant
from syno.timing.bench import measure
from syno.torch.choose import Choice, choose_in_place
from syno.torch.layouts import channels_last, in_format, memory_format

#: A network in channels-last must take at most this part of the time to be preferred: less is noise.
MARGIN = 0.95


@dataclass(frozen=True)
class Chosen:
    """A network whose operators run in their fastest ways, in the faster format."""

    network: nn.Module
    choices: tuple[Choice, ...]
    contiguous_us: float | None = None
    channels_last_us: float | None = None
    """Of one run of the example; None where there was nothing to choose."""

    @property
    def channels_last(self) -> bool:
        """Whether the network computes in channels-last."""
        return any(isinstance(hook, _Enter) for hook in self.network._forward_pre_hooks.values())

    @property
    def why(self) -> str:
        """The reason, for people."""
        if self.contiguous_us is None or self.channels_last_us is None:
            return "images as they are given"
        taken, other = "channels-last", "contiguous"
        times = {taken: self.channels_last_us, other: self.contiguous_us}
        if not self.channels_last:
            taken, other = other, taken
        return f"{taken} images: {significant(times[taken])} us, {other}: {significant(times[other])} us"


def fastest(model: nn.Module, *example: Any, turns: int = 7, **named: Any) -> Chosen:
    """A network with every operator set as by `choose_in_place`, in the format in which the whole is faster.

    Args:
        model: on the CPU; set like the result where no copy of it is better.
        example: what it is timed on, `named` its keyword arguments. Where no image among them is contiguous,
            the format stays.
    Returns:
        `model`, or a copy that takes inputs of any format, computes in channels-last and returns
        contiguous images.
    """
    choices = tuple(choose_in_place(model, *example, turns=turns, **named))
    given = [t for t in (*example, *named.values()) if isinstance(t, Tensor)]
    ranks = {t.dim() for t in given if t.dim() in (4, 5)}
    if len(ranks) != 1 or any(memory_format(t) != torch.contiguous_format for t in given):
        return Chosen(model, choices)
    twin = copy.deepcopy(model)
    try:
        _to_channels_last(twin, ranks.pop())
        moved = tuple(choose_in_place(twin, *example, turns=turns, **named))
    except RuntimeError:  # a layer that wants its images, or its weights, in the usual order
        return Chosen(model, choices)
    modes = {m: [(s, s.training) for s in m.modules()] for m in (model, twin)}
    try:
        with torch.inference_mode():
            for network in modes:
                network.eval()
            timings = measure(
                {
                    "contiguous": lambda: model(*example, **named),
                    "channels-last": lambda: twin(*example, **named),
                },
                turns=turns,
                min_sample_s=5e-3,
                threads=torch.get_num_threads(),
            )
    finally:
        for states in modes.values():
            for module, training in states:
                module.training = training
    usual, last = (t.median_us for t in timings)
    if last <= MARGIN * usual:
        return Chosen(twin, moved, usual, last)
    return Chosen(model, choices, usual, last)


def changes_format(hook: Any) -> bool:
    """Whether a hook is of those that keep a network's images in channels-last: values stay as they are."""
    return isinstance(hook, (_Enter, _Leave))


def _to_channels_last(network: nn.Module, rank: int) -> None:
    network.to(memory_format=channels_last(rank))  # type: ignore[call-overload]
    network.register_forward_pre_hook(_Enter(rank), with_kwargs=True)
    network.register_forward_hook(_Leave(rank))


@dataclass(frozen=True)
class _Enter:
    rank: int

    def __call__(self, module: nn.Module, inputs: Any, named: Any) -> tuple[Any, Any]:
        return tuple(map(self._moved, inputs)), {n: self._moved(t) for n, t in named.items()}

    def _moved(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.dim() == self.rank:
            return in_format(value, channels_last(self.rank))
        return value


@dataclass(frozen=True)
class _Leave:
    rank: int

    def __call__(self, module: nn.Module, inputs: Any, result: Any) -> Any:
        if isinstance(result, Tensor):
            return result.contiguous() if result.dim() == self.rank else result
        if type(result) in (tuple, list):
            return type(result)(self(module, inputs, each) for each in result)
        if type(result) is dict:
            return {key: self(module, inputs, each) for key, each in result.items()}
        return result
