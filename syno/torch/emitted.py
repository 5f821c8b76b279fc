"""The module that emitted operators say they are from: it has the names that their code uses."""

import torch
import torch.nn.functional as F

__all__ = ["F", "torch"]
