"""PyTorch side of syno: find layers, put operators in their place, run native kernels with gradients."""

from __future__ import annotations

from syno.torch.groups import SiteGroup
from syno.torch.layers import Fit, Layer
from syno.torch.sites import Call, Site, Sites, sites

__all__ = ["Call", "Fit", "Layer", "Site", "SiteGroup", "Sites", "sites"]
