"""Diagonals in exported ONNX are steps through memory, not masks that everything is multiplied with."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from syno.export.onnx_model import convert
from syno.operators.operator import Operator


class Diagonal(nn.Module):
    def __init__(self, offset: int, one: int, other: int) -> None:
        super().__init__()
        self.given = offset, one, other

    def forward(self, x: Tensor) -> Tensor:
        return x.diagonal(*self.given) * 2


def kinds(proto: onnx.ModelProto) -> set[str]:
    return {node.op_type for graph in (proto.graph, *proto.functions) for node in graph.node}


@pytest.mark.parametrize("shape", [(3, 3), (2, 5, 4), (3, 2, 4, 3)])
def test_diagonals_are_those_of_pytorch(shape: tuple[int, ...]) -> None:
    from onnx.reference import ReferenceEvaluator

    x = torch.randn(shape)
    met = 0
    pairs = itertools.permutations(range(len(shape)), 2)
    for (one, other), offset in itertools.product(pairs, (0, 1, -2)):
        model = Diagonal(offset, one, other - len(shape))
        wanted = model(x)
        if wanted.numel() == 0:
            continue
        proto = convert(model, ((x,), {}))
        (got,) = ReferenceEvaluator(proto).run(None, {proto.graph.input[0].name: x.numpy()})
        np.testing.assert_array_equal(got, wanted.numpy())
        assert not kinds(proto) & {"ReduceSum", "EyeLike", "Where"}, kinds(proto)
        met += 1
    assert met > 3


def test_operators_that_read_a_diagonal_add_nothing_up_for_it() -> None:
    operator = Operator.parse("y[o,l] = sum[c] x[5*c%8,l+5*c/8] * w[o,c]", o=4, l=6, c=8)
    model = operator.to_torch()
    proto = convert(model, ((torch.randn(tuple(operator.program.shape("x"))),), {}))
    assert "ReduceSum" not in kinds(proto), kinds(proto)
