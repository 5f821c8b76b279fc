"""PyTorch side of syno: find layers, put operators in their place, run native kernels with gradients."""

from __future__ import annotations

from syno.torch.aten import aten_module
from syno.torch.groups import SiteGroup
from syno.torch.layers import Fit, Layer
from syno.torch.module import Op
from syno.torch.ops import OperatorFunction, as_function
from syno.torch.replace import replace
from syno.torch.sites import Call, Site, Sites, sites
from syno.torch.threads import share_threads

share_threads()

__all__ = [
    "Call",
    "Fit",
    "Layer",
    "Op",
    "OperatorFunction",
    "Site",
    "SiteGroup",
    "Sites",
    "as_function",
    "aten_module",
    "replace",
    "sites",
]
