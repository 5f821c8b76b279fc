"""PyTorch's own best for inference on a CPU: a frozen graph whose layers are packed for oneDNN once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch


class OneDnnUnavailable(RuntimeError):
    """Expected: this PyTorch, or this network, has no such form; the text says why."""


def packed_for_onednn(model: Callable[..., Any], example: Any) -> Callable[..., Any]:
    """``model`` traced at ``example``, frozen, its convolutions and linear layers in oneDNN's own layouts.

    Args:
        model: a module; it is left as it is.
        example: an input, or a tuple of them; the result is for inputs of these shapes.
    Returns:
        a callable on such inputs.

    Raises:
        OneDnnUnavailable: PyTorch was built without oneDNN, or the network cannot be traced or frozen.
    """
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        raise OneDnnUnavailable("this PyTorch was built without oneDNN")
    if not isinstance(model, torch.nn.Module):
        raise OneDnnUnavailable("only a torch module can be packed for oneDNN")
    inputs = example if isinstance(example, tuple) else (example,)
    modes = [(module, module.training) for module in model.modules()]
    try:
        # The tracer and the freezer say that they are no longer developed.
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            model.eval()
            expected = model(*inputs)
            traced: Any = torch.jit.trace(model, inputs, check_trace=False)  # type: ignore[no-untyped-call]
            packed: Any = torch.jit.optimize_for_inference(torch.jit.freeze(traced))
            got = packed(*inputs)
    except Exception as error:  # of many types, all of PyTorch's
        raise OneDnnUnavailable(f"no frozen graph: {_last_line(error)}") from error
    finally:
        for module, training in modes:
            module.training = training
    if not _near(got, expected):
        raise OneDnnUnavailable("the frozen graph computes other values than the network")
    return lambda *given: packed(*given)


def _near(got: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        scale = float(expected.detach().abs().max()) if expected.numel() else 0.0
        return bool(torch.allclose(got, expected, rtol=1e-3, atol=1e-3 * max(scale, 1e-12)))
    if isinstance(expected, (tuple, list)):
        return all(map(_near, got, expected))
    if isinstance(expected, dict):
        return all(_near(got[name], value) for name, value in expected.items())
    return bool(got == expected)


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:160]
