"""`nn.MultiheadAttention` written with Linear layers, so that its projections are sites like others."""

from __future__ import annotations

import copy
import math
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional

from syno.errors import ShapeError


class Attention(nn.Module):
    """What an `nn.MultiheadAttention` computes, with the same arguments and results, its projections being Linear layers:
    `in_proj`, of queries, keys and values together, where they are always made of one tensor, else `q_proj`, `k_proj`
    and `v_proj`; and `out_proj`.

    Args:
        module: whose weights are copied.
        joint: queries, keys and values are made of one tensor in every call: one layer of three times the channels.
    """

    #: `nn.TransformerEncoderLayer` and `nn.TransformerEncoder` look for these: without them they call the layers.
    in_proj_bias = None
    _qkv_same_embed_dim = False

    def __init__(self, module: nn.MultiheadAttention, *, joint: bool) -> None:
        super().__init__()
        self.embed_dim, self.num_heads = module.embed_dim, module.num_heads
        self.head_dim, self.batch_first = module.head_dim, module.batch_first
        self.dropout, self.add_zero_attn = float(module.dropout), module.add_zero_attn
        self.joint = joint
        apart = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        packed = module.in_proj_weight
        weights: list[Tensor] = list(apart if packed is None else packed.chunk(3))
        biases: list[Any] = [None] * 3
        if module.in_proj_bias is not None:
            biases = list(module.in_proj_bias.chunk(3))
        if joint:
            bias = None if biases[0] is None else torch.cat(biases)
            self.in_proj = _linear(torch.cat(weights), bias)
        else:
            self.q_proj, self.k_proj, self.v_proj = (
                _linear(weight, bias) for weight, bias in zip(weights, biases, strict=True)
            )
        self.out_proj = _linear(module.out_proj.weight, module.out_proj.bias)
        self.bias_k, self.bias_v = copy.deepcopy(module.bias_k), copy.deepcopy(module.bias_v)
        self.train(module.training)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As `nn.MultiheadAttention.forward`: L queries and S keys of N examples.

        Args:
            query: `[L, N, E]`, with `batch_first` `[N, L, E]`; `[L, E]` of a single example.
            key, value: `[S, N, E]` likewise, of the widths the module was made for (`kdim`, `vdim`).
            key_padding_mask: `[N, S]`, `[S]` of a single example: keys that are True are left out; numbers are added to the scores.
            need_weights: whether the weights are returned, too; without, PyTorch's fused attention computes.
            attn_mask: `[L, S]`, or `[N * heads, L, S]`: pairs that are True are left out; numbers are added to the scores.
            average_attn_weights: the mean of the weights over the heads, else those of each.
            is_causal: a hint that `attn_mask` is the causal one; the mask itself counts.
        Returns:
            The result in the layout of `query`, and the weights `[N, L, S]`, of each head `[N, heads, L, S]`, or None.
        Raises:
            ShapeError: queries, keys and values of a joint projection are not one tensor, or `is_causal` came without the
                mask that it is a hint about.
        """
        if is_causal and attn_mask is None:
            raise ShapeError("[attention] is_causal is a hint about attn_mask: give the mask, too")
        batched = query.dim() == 3
        q, k, v = self._projected(query, key, value)
        if not batched:
            q, k, v = (each.unsqueeze(0) for each in (q, k, v))
        elif not self.batch_first:
            q, k, v = (each.transpose(0, 1) for each in (q, k, v))
        mask = self._mask(key_padding_mask, attn_mask, q, k)
        if self.bias_k is not None and self.bias_v is not None:
            k = torch.cat([k, self.bias_k.expand(k.shape[0], 1, -1)], 1)
            v = torch.cat([v, self.bias_v.expand(v.shape[0], 1, -1)], 1)
        if self.add_zero_attn:
            k, v = (functional.pad(each, (0, 0, 0, 1)) for each in (k, v))
        if mask is not None and mask.shape[-1] < k.shape[1]:
            mask = functional.pad(mask, (0, k.shape[1] - mask.shape[-1]))
        q, k, v = (
            each.reshape(*each.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)
            for each in (q, k, v)
        )
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.transpose(2, 3) / math.sqrt(self.head_dim)
            weights = (scores if mask is None else scores + mask).softmax(-1)
            weights = functional.dropout(weights, dropout)
            mixed = weights @ v
        else:
            mixed = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, dropout_p=dropout
            )
        result = self.out_proj(mixed.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return result.squeeze(0), None if weights is None else weights.squeeze(0)
        return result if self.batch_first else result.transpose(0, 1), weights

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        if not self.joint:
            return self.q_proj(query), self.k_proj(key), self.v_proj(value)
        if query is not key or key is not value:
            raise ShapeError(
                "[attention] this attention projects one tensor to queries, keys and values, and got several; "
                "name it in `separate` of syno.nn.with_linear_attention"
            )
        return tuple(self.in_proj(query).chunk(3, -1))

    def _mask(
        self, padding: Tensor | None, given: Tensor | None, q: Tensor, k: Tensor
    ) -> Tensor | None:
        """What is added to the scores, [N, heads or 1, L or 1, S]."""
        parts = []
        if given is not None:
            mask = _added(given, q)
            parts.append(
                mask[None, None]
                if mask.dim() == 2
                else mask.reshape(q.shape[0], self.num_heads, q.shape[1], k.shape[1])
            )
        if padding is not None:
            keys = _added(padding, q)
            parts.append((keys if keys.dim() == 2 else keys[None])[:, None, None])
        return sum(parts[1:], parts[0]) if parts else None

    def extra_repr(self) -> str:
        """Of its printed form."""
        return f"heads={self.num_heads}, batch_first={self.batch_first}"


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    made = nn.Linear(
        weight.shape[1],
        weight.shape[0],
        bias=bias is not None,
        device=weight.device,
        dtype=weight.dtype,
    )
    with torch.no_grad():
        made.weight.copy_(weight)
        if bias is not None:
            made.bias.copy_(bias)
    return made.requires_grad_(weight.requires_grad)


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """A mask as it is added: what is True is left out."""
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, -math.inf)


def with_linear_attention(
    model: nn.Module, inputs: tuple[Any, ...] | None = None, *, separate: tuple[str, ...] = ()
) -> nn.Module:
    """A copy of a model in which every `nn.MultiheadAttention` is an `Attention`: the same function of the same weights, with
    Linear layers that `syno.search`, `syno.sites` and `syno.replace` see. Subclasses with a forward of their own stay.

    Layers of `nn.TransformerEncoderLayer` call their own Linear layers then, too: PyTorch's fast path, which reads their
    weights, is for `nn.MultiheadAttention` alone.

    Args:
        model: it stays as it is.
        inputs: of a call, by which it is seen whose queries, keys and values are one tensor. Without, those of `self_attn`
            in PyTorch's own transformer layers are.
        separate: names of attention modules whose projections are layers of their own whatever their inputs.
    Raises:
        ShapeError: `separate` names a module that is no attention.
    """
    found = {n: m for n, m in model.named_modules() if _is_attention(m)}
    for name in separate:
        if name not in found:
            known = ", ".join(found) or "none"
            raise ShapeError(f"[attention] no attention is named {name!r}; there are: {known}")
    own = _of_one_tensor(model, found) if inputs is None else _seen(model, list(found), inputs)
    layers = {
        module: Attention(
            module,
            joint=module._qkv_same_embed_dim and name in own and name not in separate,
        )
        for name, module in found.items()
    }
    if isinstance(model, nn.MultiheadAttention):
        return layers.get(model) or copy.deepcopy(model)
    made = copy.deepcopy(model)
    for name, module in model.named_modules(remove_duplicate=False):
        if module in layers:
            parent, _, last = name.rpartition(".")
            setattr(made.get_submodule(parent), last, layers[module])
    return made


def _is_attention(module: nn.Module) -> TypeGuard[nn.MultiheadAttention]:
    """Not those with a forward of their own, which may compute something else."""
    own = nn.MultiheadAttention.forward
    return isinstance(module, nn.MultiheadAttention) and type(module).forward is own


def _of_one_tensor(model: nn.Module, found: dict[str, nn.MultiheadAttention]) -> set[str]:
    layers = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    inside = {n for n, m in model.named_modules() if isinstance(m, layers)}
    return {
        name
        for name in found
        if name.rpartition(".")[2] == "self_attn" and name.rpartition(".")[0] in inside
    }


def _seen(model: nn.Module, names: list[str], inputs: tuple[Any, ...]) -> set[str]:
    """Those that got one tensor for all three in each of their calls of one call of the model."""
    model = copy.deepcopy(model).eval()
    calls: dict[str, list[bool]] = {}

    def hook(name: str) -> Any:
        def see(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = dict(zip(("query", "key", "value"), args, strict=False)) | kwargs
            one = given["query"] is given["key"] is given["value"]
            calls.setdefault(name, []).append(one)

        return see

    for name in names:
        model.get_submodule(name).register_forward_pre_hook(hook(name), with_kwargs=True)
    with torch.no_grad():
        model(*inputs)
    return {name for name, ones in calls.items() if all(ones)}


__all__ = ["Attention", "with_linear_attention"]
