"""Modules for PyTorch models: `syno.nn.Op(operator)`, and attention whose projections can be searched."""

from __future__ import annotations

from syno.torch.attention import Attention, with_linear_attention
from syno.torch.module import Op

__all__ = ["Attention", "Op", "with_linear_attention"]
