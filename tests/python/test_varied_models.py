"""Small models of many architectures, compiled both ways: they agree with eager, and PyTorch runs what is said here.

A row of `MODELS` is a model's forward function of its layers, inputs, and the ATen functions that may fall back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

import syno  # noqa: E402
from syno.errors import KernelError  # noqa: E402
from syno.graph.backend import graphs_compiled  # noqa: E402
from syno.graph.exporting import CannotImport  # noqa: E402

WAYS = ["compile", "backend"]


class Model(nn.Module):
    """Layers, and a function of them and the inputs."""

    def __init__(self, forward: Callable[..., Any], layers: dict[str, nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict(layers)
        self._forward = forward

    def forward(self, *inputs: Any) -> Any:
        return self._forward(self.layers, *inputs)


@dataclass(frozen=True)
class Row:
    forward: Callable[..., Any]
    inputs: Callable[[], tuple[Any, ...]]
    layers: Callable[[], dict[str, nn.Module]] = dict
    hosts: tuple[str, ...] = ()


def _matrix(size: int = 4) -> Tensor:
    """Symmetric and positive."""
    given = torch.randn(size, size)
    return given @ given.T + size * torch.eye(size)


def _shared_heads(_: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def _heads(count: int) -> Tensor:
    return torch.randn(2, count, 6, 8)


MODELS = {
    "instance norm": Row(
        lambda m, x: m["norm"](m["conv"](x)),
        lambda: (torch.randn(2, 3, 9, 9),),
        lambda: {"conv": nn.Conv2d(3, 6, 3), "norm": nn.InstanceNorm2d(6, affine=True)},
    ),
    "batch norm without statistics": Row(
        lambda m, x: m["norm"](m["conv"](x)),
        lambda: (torch.randn(3, 3, 9),),
        lambda: {"conv": nn.Conv1d(3, 6, 3), "norm": nn.BatchNorm1d(6, track_running_stats=False)},
    ),
    "heads that share keys": Row(_shared_heads, lambda: (_heads(6), _heads(2), _heads(2))),
    "one head of keys": Row(_shared_heads, lambda: (_heads(6), _heads(1), _heads(1))),
    "bags of words": Row(
        lambda m, words, starts: m["head"](m["words"](words, starts)),
        lambda: (torch.randint(0, 9, (7,)), torch.tensor([0, 3, 3])),
        lambda: {"words": nn.EmbeddingBag(9, 4, mode="sum"), "head": nn.Linear(4, 2)},
        ("aten._embedding_bag",),
    ),
    "inverse": Row(
        lambda m, x: m["head"](torch.linalg.inv(x) + x.inverse().T),
        lambda: (_matrix(),),
        lambda: {"head": nn.Linear(4, 2)},
        ("aten.linalg_inv_ex",),
    ),
    "encoder": Row(
        lambda m, x: m["gelu"](m["first"](x)),
        lambda: (torch.randn(2, 5, 16),),
        lambda: {
            "first": nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, norm_first=True),
            "gelu": nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, activation="gelu"),
        },
    ),
    "masked encoder": Row(
        lambda m, x, absent: (
            m["layer"](x, src_key_padding_mask=absent),
            m["layer"](x, src_mask=torch.ones(5, 5, dtype=torch.bool).triu(1)),
        ),
        lambda: (torch.randn(2, 5, 16), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])),
        lambda: {"layer": nn.TransformerEncoderLayer(16, 4, 24, batch_first=True)},
    ),
    "distances of equals": Row(
        lambda _, x: (
            F.cosine_embedding_loss(x, x * 2, torch.ones(len(x))),
            F.layer_norm(x, (5,)).mean(),
            F.mse_loss(x.softmax(-1).sum(-1), torch.ones(len(x))),
        ),
        lambda: (torch.randn(4, 5),),
    ),
    "Gaussian": Row(
        lambda _, x, y: (torch.linalg.solve(x, y), torch.linalg.cholesky(x) @ y),
        lambda: (_matrix(), torch.randn(4, 2)),
        hosts=("aten._linalg_solve_ex", "aten.linalg_cholesky_ex"),
    ),
}  # fmt: skip


def same(ours: Any, theirs: Any) -> None:
    given, wanted = pytree.tree_leaves(ours), pytree.tree_leaves(theirs)
    assert len(given) == len(wanted)
    for one, other in zip(given, wanted, strict=True):
        if isinstance(other, Tensor):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        else:
            assert one == other


def made(row: Row, way: str) -> tuple[Any, Any, tuple[Any, ...], list[str]]:
    """The compiled model, the model, inputs, and which functions PyTorch runs."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, inputs = Model(row.forward, row.layers()).eval(), row.inputs()
    if way == "compile":
        fast = syno.compile(model, inputs)
        networks = [fast.network]
    else:
        fast = torch.compile(model, backend="syno", fullgraph=True)
        with torch.no_grad(), graphs_compiled() as networks:
            fast(*inputs)
        assert networks and not any(isinstance(each, str) for each in networks), networks
    hosts = [stage.what for each in networks for stage in each.stages if stage.kind == "host"]
    return fast, model, inputs, hosts


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_agrees_with_eager(name: str, way: str) -> None:
    row = MODELS[name]
    fast, model, inputs, hosts = made(row, way)
    with torch.no_grad():
        same(fast(*inputs), model(*inputs))
        others = row.inputs()
        same(fast(*others), model(*others))
    assert {each.rpartition(".")[0] for each in hosts} <= set(row.hosts), hosts


@pytest.mark.parametrize("way", WAYS)
def test_a_matrix_without_an_inverse_is_refused_as_in_eager(way: str) -> None:
    fast, model, _, _ = made(MODELS["inverse"], way)
    singular = torch.ones(4, 4)
    with torch.no_grad():
        for each in (model, fast):
            with pytest.raises(torch.linalg.LinAlgError, match="singular"):
                each(singular)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Upsample(scale_factor=2), nn.Upsample(size=(5, 7), mode="nearest-exact"), nn.Upsample(scale_factor=1.5, mode="bicubic"),
        nn.Upsample(scale_factor=2, mode="bilinear"), nn.Upsample(size=(9, 4), mode="bilinear", align_corners=True),
    ],
    ids=str,
)  # fmt: skip
def test_functions_with_rows_stay_whole_in_training_too(layer: nn.Module) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 1), layer)
    x = torch.randn(2, 3, 6, 5, requires_grad=True)
    before = dict(torch.ops.aten.upsample_bilinear2d.vec.py_kernels)
    with graphs_compiled() as graphs:
        made = torch.compile(model, backend="syno", fullgraph=True)(x)
        made.square().sum().backward()
    given = [x.grad, *(p.grad for p in model.parameters())]
    x.grad = None
    model.zero_grad()
    wanted = model(x)
    wanted.square().sum().backward()
    same([made, given], [wanted, [x.grad, *(p.grad for p in model.parameters())]])
    assert torch.ops.aten.upsample_bilinear2d.vec.py_kernels == before
    assert len(graphs) == 2
    for each in graphs:
        assert not isinstance(each, str), each
        others = [stage.what for stage in each.stages if stage.kind in ("engine", "host")]
        assert set(others) <= {"copy"}, str(each)


def test_code_that_asks_for_values_is_named() -> None:
    row = Row(lambda _, x: x + 1 if x.sum() > 0 else x, lambda: (torch.ones(3),))
    with pytest.raises(
        CannotImport, match=r"test_varied_models\.py:\d+.*x\.sum\(\) > 0.*torch\.where"
    ):
        syno.compile(Model(row.forward, {}), *row.inputs())
    decoder = nn.TransformerDecoderLayer(8, 2, 8)
    with pytest.raises(CannotImport, match=r"transformer\.py:\d+"):
        syno.compile(
            nn.TransformerDecoder(decoder, 1).eval(),
            {
                "tgt": torch.ones(3, 1, 8),
                "memory": torch.ones(3, 1, 8),
                "tgt_mask": torch.zeros(3, 3),
            },
        )


def test_numbers_that_a_function_refuses_are_told() -> None:
    fast, _, inputs, _ = made(MODELS["Gaussian"], "compile")
    assert fast.verify(*inputs)
    with pytest.raises(KernelError, match=r"linalg_cholesky_ex.* refuses its inputs: .*positive"):
        fast.verify()
