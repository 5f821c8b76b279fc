"""A small decoder-only transformer (GPT-2's block: pre-norm, causal attention, GELU MLP)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from syno.errors import TaskError


class GPTBlock(nn.Module):
    """``x + attention(norm(x))``, then ``x + mlp(norm(x))``; input and output ``[N, T, width]``."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        count, length, width = x.shape
        shape = (count, length, self.heads, width // self.heads)
        q, k, v = (
            part.view(shape).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(count, length, width)
        x = x + self.dropout(self.projection(mixed))
        y: Tensor = self.dropout(self.contract(functional.gelu(self.expand(self.norm2(x)))))
        return x + y


class GPT(nn.Module):
    """Tokens ``[N, T]`` to logits ``[N, T, vocabulary]``; learned positions, tied embeddings.

    Raises:
        TaskError: ``heads`` does not divide ``width``; in forward, a sequence longer than ``context``.
    """

    def __init__(
        self,
        vocabulary: int = 256,
        context: int = 128,
        width: int = 128,
        heads: int = 4,
        layers: int = 2,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if width % heads:
            raise TaskError(
                f"{heads} heads do not divide width {width}",
                fix="choose a width that is a multiple of heads",
                code="T003",
            )
        self.context = context
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(GPTBlock(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        if length > self.context:
            raise TaskError(
                f"a sequence of {length} tokens, but the model's context is {self.context}",
                fix="make the model with a longer context, or cut the data shorter",
                code="T004",
            )
        positions = self.positions(torch.arange(length, device=tokens.device))
        logits: Tensor = self.head(self.norm(self.blocks(self.tokens(tokens) + positions)))
        return logits


def gpt(
    vocabulary: int = 256,
    context: int = 128,
    width: int = 128,
    heads: int = 4,
    layers: int = 2,
    dropout: float = 0.0,
) -> GPT:
    """:class:`GPT` with random weights."""
    return GPT(vocabulary, context, width, heads, layers, dropout)
