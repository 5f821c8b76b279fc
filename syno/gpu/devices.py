"""Which device there is, and a sentence where there is none."""

from __future__ import annotations

from syno.errors import TaskError, shown


def no_cuda() -> str:
    """Why there is no CUDA device, in words; empty where there is one."""
    import torch

    if torch.cuda.is_available():
        return ""
    version = str(torch.__version__)
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {version} is built without CUDA"
    return f"torch {version} finds no GPU with a driver"


def usable_device(device: str) -> str:
    """The device that a training is to run on: ``"auto"`` is a CUDA device where there is one, else the CPU.

    Raises:
        TaskError: no device of that name can exist, or it is a CUDA device and there is none.
    """
    import torch

    if device == "auto":
        return "cpu" if no_cuda() else "cuda"
    try:
        kind = torch.device(device)
    except RuntimeError:
        raise TaskError(
            f"device={shown(device)} is no torch device",
            fix="choose 'cpu', 'cuda', 'cuda:0', ..., or 'auto': a CUDA device where there is one",
            code="T003",
        ) from None
    if kind.type != "cuda":
        return device
    if why := no_cuda():
        raise TaskError(
            f"no CUDA device: {why}", fix="train on the CPU with device='cpu'", code="T014"
        )
    count = torch.cuda.device_count()
    if kind.index is not None and kind.index >= count:
        raise TaskError(
            f"no CUDA device {kind.index}: there are {count}, counted from 0",
            fix="choose one of them, or train on the CPU with device='cpu'",
            code="T014",
        )
    return device
