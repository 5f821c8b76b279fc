"""PyTorch's fused function of a transformer's encoder layer, taken apart: outside of autograd `nn.TransformerEncoderLayer` calls it
in place of its parts, and a graph of it would have one node that no program computes."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """What `aten._transformer_encoder_layer_fwd` computes."""

    def normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), weight, bias, eps)

    x = normed(src, norm_weight_1, norm_bias_1) if norm_first else src
    seen = attended(x, num_heads, qkv_weight, qkv_bias, mask, mask_type)
    x = F.linear(seen, proj_weight, proj_bias) + src
    if not norm_first:
        x = normed(x, norm_weight_1, norm_bias_1)
    inner = normed(x, norm_weight_2, norm_bias_2) if norm_first else x
    inner = F.linear(inner, ffn_weight_1, ffn_bias_1)
    inner = F.gelu(inner) if use_gelu else torch.relu(inner)
    x = x + F.linear(inner, ffn_weight_2, ffn_bias_2)
    return x if norm_first else normed(x, norm_weight_2, norm_bias_2)


def attended(
    x: Tensor,
    heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    mask: Tensor | None,
    mask_type: int | None,
) -> Tensor:
    """Attention of ``[batch, length, channels]`` to itself, before its projection. What is masked entirely becomes NaN, as there."""
    batch, length, channels = x.shape
    joined = F.linear(x, qkv_weight, qkv_bias).reshape(batch, length, 3, heads, channels // heads)
    q, k, v = joined.permute(2, 0, 3, 1, 4).unbind(0)
    scores = (q / math.sqrt(channels // heads)) @ k.transpose(-2, -1)
    if mask is not None:
        if mask_type == 0:  # of pairs of places
            mask = mask.reshape(1, 1, length, length)
        elif mask_type == 1:  # of places of each of the batch
            mask = mask.reshape(batch, 1, 1, length)
        scores = scores.masked_fill(mask != 0, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, channels)


#: By the function that it stands for.
DECOMPOSITIONS = {torch.ops.aten._transformer_encoder_layer_fwd.default: encoder_layer}
