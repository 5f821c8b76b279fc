"""Which examples and tokens a network with operators mixes that the original keeps apart, asked of the whole network.

Inputs are changed in one place, and where outputs change tells what depends on it. Weights are drawn at random for that, in both networks
alike: branches that begin with zero, and scales near it, hide what flows through them. It is a second check: that operators in place of
linear layers treat every token alike follows from their space already.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syno.errors import SynoError
from syno.session.verdict import MIXES
from syno.support.inputs import call, leaves, mapped, tensors
from syno.support.streams import Stream

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

#: Places of an axis that are changed, one after the other; of longer ones, those spread evenly.
_PLACES = 8

#: Networks that are drawn: what one happens to be deaf to, the other hears.
_DRAWS = 2

#: Tokens of an example that are looked at, where it has more.
_MOST_TOKENS = 32

#: What a network raises that cannot be asked: it wants other dtypes or sizes.
_CANNOT = (SynoError, RuntimeError, TypeError, ValueError, IndexError)

#: What no network may mix, whatever its tokens do.
EXAMPLES = "examples of a batch"


def compare_mixing(
    original: nn.Module, network: nn.Module, example: Any, *, keep_tokens: bool
) -> str:
    """What ``network`` mixes beside what ``original`` does, in a sentence; one that begins with :data:`MIXES` names a leak.

    Args:
        original, network: the same parameters but for those of operators; neither is changed.
        example: inputs ``[N, ...]`` of one call; what is asked about examples needs N of 2 or more.
        keep_tokens: all operators stand for linear layers: no output may depend on a token that the original's does not
            depend on. Otherwise none may depend on a *later* one where no output of the original does.
    """
    import torch

    seen: list[_Seen] = []
    axis = 1 if keep_tokens else 2
    try:
        for number in range(_DRAWS):
            # Operators, whose parameters come with other shapes, change what is drawn of nobody else.
            own, its = (_drawn(one, number) for one in (network, original))
            with torch.inference_mode(False), torch.no_grad():
                seen.append(_look_at_few(own, its, example, axis))
    except _CANNOT as error:
        said = " ".join(str(error).split())[:160]
        return f"Whether it mixes examples or tokens could not be asked: {said}"
    found, asked = [], []
    examples = [one.examples for one in seen if one.examples is not None]
    if examples:
        asked.append(EXAMPLES)
        if any(each for each, _ in examples) and not any(each for _, each in examples):
            found.append(EXAMPLES)
    tokens = [one.tokens for one in seen if one.tokens is not None]
    if tokens:
        asked.append("tokens")
        all_own, all_its = (torch.stack(each).any(0) for each in zip(*tokens, strict=True))
        if leak := _tokens_leaked(all_own, all_its, keep_tokens):
            found.append(leak)
    if found:
        return f"{MIXES} {'; '.join(sorted(found))}: the original does not"
    if not asked:
        return "It has no examples or tokens to mix: the example is one input without a sequence"
    return (
        f"With random weights it mixes no {' and no '.join(sorted(asked))} that the original keeps apart; the recipe may "
        "train the original too little, or the data be too few"
    )


def _drawn(model: nn.Module, number: int) -> nn.Module:
    """A copy in double precision with random weights, in inference; tensors of one name are the same in every network."""
    import torch

    from syno.torch import Op

    made = copy.deepcopy(model).cpu().eval()
    for module in made.modules():
        if isinstance(module, Op):
            module.native = False
    with torch.no_grad():
        for name, tensor in [*made.named_parameters(), *made.named_buffers()]:
            if not tensor.is_floating_point() or (tensor.numel() and not tensor.isfinite().all()):
                continue  # counts, and masks of infinities
            if not isinstance(tensor, torch.nn.Parameter) and "running" not in name:
                continue  # tables that the model computed, masks of zeros and ones
            generator = torch.Generator().manual_seed(_seed(name, tensor, number))
            if "running_var" in name or tensor.dim() < 2:
                values = 0.5 + torch.rand(tensor.shape, generator=generator)
            else:
                fan = max(1.0, tensor[0].numel())
                values = torch.randn(tensor.shape, generator=generator) / math.sqrt(fan)
            tensor.copy_(values)
    return made.double()


def _seed(name: str, tensor: Tensor, number: int) -> int:
    from syno.support.streams import seed_of

    return seed_of("mixing", name, tuple(tensor.shape), number)


@dataclass(frozen=True)
class _Seen:
    """Of the network and the original, what changes with what: whether other examples with the first; ``[place changed,
    place of the output]``. ``None`` where there is nothing to ask."""

    examples: tuple[bool, bool] | None = None
    tokens: tuple[Tensor, Tensor] | None = None


def _look_at_few(network: nn.Module, original: nn.Module, example: Any, vectors_axis: int) -> _Seen:
    """Long sequences of tokens are cut, where the networks take that: what leaks, leaks in short ones, and sooner."""
    few = _shortened(example)
    if few is not None:
        with contextlib.suppress(*_CANNOT):
            return _look(network, original, few, vectors_axis)
    return _look(network, original, example, vectors_axis)


def _shortened(example: Any) -> Any:
    """The example with its first tokens alone; ``None`` where it has no long sequence of tokens by number."""
    import torch

    lengths = {
        leaf.shape[1]
        for leaf in tensors(example)
        if leaf.dim() == 2 and not leaf.is_floating_point() and leaf.dtype != torch.bool
    }
    if len(lengths) != 1 or (length := lengths.pop()) <= _MOST_TOKENS:
        return None

    def cut(leaf: Any) -> Any:
        long = isinstance(leaf, torch.Tensor) and leaf.dim() >= 2 and leaf.shape[1] == length
        return leaf[:, :_MOST_TOKENS] if long else leaf

    return mapped(example, cut)


def _look(network: nn.Module, original: nn.Module, example: Any, vectors_axis: int) -> _Seen:
    import torch

    def wide(leaf: Any) -> Any:
        real = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        return leaf.double() if real else leaf

    inputs = mapped(example, wide)
    before = [_output(one, inputs) for one in (network, original)]
    first = tensors(inputs)
    if before[0].shape != before[1].shape or not before[0].dim() or not first:
        return _Seen()

    def touched(axis: int, place: int, length: int) -> list[Tensor]:
        changed = mapped(inputs, functools.partial(_changed, axis=axis, place=place, length=length))
        return [
            _touched(_output(one, changed), was, axis)
            for one, was in zip((network, original), before, strict=True)
        ]

    examples = tokens = None
    count = first[0].shape[0] if first[0].dim() else 0
    if count > 1 and before[0].shape[0] == count:
        own, its = (bool(each[1:].any()) for each in touched(0, 0, count))
        examples = (own, its)
    axis = _tokens(inputs, before[0], vectors_axis)
    if axis is not None:
        length = before[0].shape[axis]
        places = {round(i * (length - 1) / (_PLACES - 1)) for i in range(_PLACES)}
        depends = [torch.zeros(length, length, dtype=torch.bool) for _ in range(2)]
        for place in sorted(places):
            for matrix, row in zip(depends, touched(axis, place, length), strict=True):
                matrix[place] = row
        tokens = (depends[0], depends[1])
    return _Seen(examples, tokens)


def _tokens_leaked(own: Tensor, its: Tensor, keep_tokens: bool) -> str:
    """``[place changed, place of the output]``."""
    future, its_future = bool(own.tril(-1).any()), bool(its.tril(-1).any())
    if future and not its_future:
        return "later tokens into earlier ones: the model is causal no more"
    if keep_tokens and bool((own & ~its).any()):
        return "tokens"
    return ""


def _output(model: nn.Module, inputs: Any) -> Tensor:
    """The first floating-point tensor that a model returns."""
    import torch

    with Stream("mixing", of=[model]):
        returned = call(model, inputs)
    if not isinstance(returned, (torch.Tensor, tuple, list, Mapping)):
        returned = (
            getattr(returned, "logits", None)
            if hasattr(returned, "logits")
            else tuple(vars(returned).values())
        )
    for leaf in leaves(returned):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
            return leaf.detach()
    raise ValueError("the network returns no tensor of real numbers")


def _tokens(inputs: Any, output: Tensor, vectors_axis: int) -> int | None:
    """The axis of tokens, of inputs and outputs alike: dimension 1 of tokens by number ``[N, T]``; of three-dimensional
    inputs ``vectors_axis``, 1 for ``[N, T, C]`` and 2 for ``[N, C, T]``."""
    import torch

    for leaf in leaves(inputs):
        if not isinstance(leaf, torch.Tensor) or leaf.dtype == torch.bool:
            continue
        if leaf.dim() == 3:
            axis = vectors_axis
        elif leaf.dim() == 2 and not leaf.is_floating_point():
            axis = 1
        else:
            continue
        if axis < output.dim() and 1 < leaf.shape[axis] == output.shape[axis]:
            return axis
    return None


def _changed(leaf: Any, axis: int, place: int, length: int) -> Any:
    """A copy of a tensor with other values at one place of an axis of that length."""
    import torch

    if not isinstance(leaf, torch.Tensor) or leaf.dim() <= axis or leaf.shape[axis] != length:
        return leaf
    if leaf.dtype == torch.bool:
        return leaf  # masks say what is there, and stay
    new = leaf.clone()
    part = new.select(axis, place)
    if leaf.is_floating_point():
        part.mul_(-0.5).add_(1.0)
    else:
        most = int(leaf.max()) + 1
        if int(leaf.min()) < 0 or most < 2:
            return leaf
        part.add_(1).remainder_(most)
    return new


def _touched(after: Tensor, before: Tensor, axis: int) -> torch.Tensor:
    """At each place of the axis, whether anything changed beyond rounding."""
    apart = (after - before).abs().movedim(axis, 0).reshape(before.shape[axis], -1).amax(1)
    scale = float(before.abs().max()) or 1.0
    return apart > 1e-9 * scale


__all__ = ["EXAMPLES", "compare_mixing"]
