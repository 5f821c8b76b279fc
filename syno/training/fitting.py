"""First values of a replaced layer: what makes the operator's output closest to the layer's, on training data.

A trained network keeps most of what it learned when a new operator begins where the layer was, and a short training
ends higher than from random values. An operator is linear in each of its weights, but not in all of them together, and may
have any number: the mean squared error is made small by a few steps of Adam instead of a linear solver.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syno.support.inputs import batch_of, call, moved
from syno.support.streams import Stream
from syno.training.task import set_epoch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from syno.training.task import Task

#: Batches that a fit takes; each is one forward pass of the original, and one of every operator there and back.
STEPS = 30

#: Greatest first step, as a part of the root mean square of what is changed.
_STEP = 0.3


def fit_operators(
    model: nn.Module,
    original: nn.Module,
    sites: Sequence[str],
    task: Task,
    *,
    seed: int,
    steps: int = STEPS,
) -> dict[str, float]:
    """Fits the operators in ``sites`` of ``model``, in place, to the layers of the same names in ``original``.

    Each gets the inputs that its layer has in ``original``, in inference. One whose error did not fall keeps the
    values it had. What is drawn follows from ``seed`` and is the same for all candidates.

    Returns:
        By site: the mean squared error over the last batch, as a part of the variance of the layer's output.
    """
    import torch

    task = task.here()
    original = original.to(device=task.device).eval()
    model.to(device=task.device)
    pairs = {name: (model.get_submodule(name), original.get_submodule(name)) for name in sites}
    kept = {name: _values(new) for name, (new, _) in pairs.items()}
    seen: dict[str, tuple[Tensor, Tensor]] = {}

    def watch(name: str) -> Any:
        def hook(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            seen[name] = (inputs[0].detach(), output.detach())

        return hook

    hooks = [old.register_forward_hook(watch(name)) for name, (_, old) in pairs.items()]
    optimizer = torch.optim.Adam(_groups([new for new, _ in pairs.values()]))
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.05, 1 - step / steps))
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    try:
        with Stream("fit", seed, of=[task.train, original, model], device=task.device):
            batches = task.batches("train", seed)
            for number, inputs in enumerate(_inputs(batches, task, steps)):
                seen.clear()
                with torch.no_grad():
                    call(original, inputs)
                optimizer.zero_grad(set_to_none=True)
                total: Any = 0.0
                for name, (x, wanted) in seen.items():
                    error = _relative(pairs[name][0](x), wanted)
                    last[name] = float(error.detach())
                    if number == 0:
                        first[name] = last[name]
                    total = total + error
                if not seen or not total.requires_grad:
                    break
                total.backward()
                optimizer.step()
                decay.step()
    finally:
        for hook in hooks:
            hook.remove()
    for name, (new, _) in pairs.items():
        after = last.get(name, math.inf)
        if not after < first.get(name, math.inf):
            with torch.no_grad():
                for parameter, value in zip(new.parameters(), kept[name], strict=True):
                    parameter.copy_(value)
    for parameter in model.parameters():
        parameter.grad = None
    return last


def _values(module: nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in module.parameters()]


def _groups(modules: Sequence[nn.Module]) -> list[dict[str, Any]]:
    """Adam moves each number by about the same: by a part of what such numbers are in that parameter."""
    groups = []
    for module in modules:
        weights = [p for p in module.parameters() if p.requires_grad]
        scales = [float(p.detach().float().pow(2).mean().sqrt()) for p in weights]
        usual = max(scales, default=0.0) or 1.0
        for parameter, scale in zip(weights, scales, strict=True):
            groups.append({"params": [parameter], "lr": _STEP * (scale or usual)})
    return groups


def _relative(given: Tensor, wanted: Tensor) -> Tensor:
    given, wanted = given.float(), wanted.float()
    error: Tensor = (given - wanted).pow(2).mean() / wanted.var().clamp(min=1e-12)
    return error


def _inputs(batches: Any, task: Task, steps: int) -> Any:
    """Inputs of ``steps`` batches, of further epochs where one has fewer."""
    done = epoch = 0
    while done < steps:
        set_epoch(batches, epoch)
        before = done
        for batch in batches:
            yield moved(batch_of(batch, task.name)[0], task.device)
            done += 1
            if done == steps:
                return
        if done == before:
            return
        epoch += 1
