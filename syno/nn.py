"""Modules for PyTorch models: `syno.nn.Op(operator)`."""

from __future__ import annotations

from syno.torch.module import Op

__all__ = ["Op"]
