"""`torch.compile(backend="syno", dynamic=True)` and sizes that TorchDynamo sees change: one network for a range of them."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from syno.errors import SynoError  # noqa: E402
from syno.graph import backend  # noqa: E402
from syno.graph.compiled import CompiledNetwork  # noqa: E402
from syno.graph.dynamic import DynamicNetwork  # noqa: E402
from syno.graph.linear_layers import with_linear_layers  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    """Of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inside, self.outside = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.inside(self.norm(x)).view(batch, length, 3, 2, 4)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        made = F.scaled_dot_product_attention(q, k, v)
        return x + self.outside(made.transpose(1, 2).reshape(batch, length, width))


def images() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 5),
    )


def run(
    model: Any, inputs: list[Tensor], dynamic: bool | None = True, **options: Any
) -> list[backend.Told]:
    """Compares with the model on all inputs; what the graphs became."""
    fast = torch.compile(
        model, backend="syno", dynamic=dynamic, options={"cache": False, **options}
    )
    with torch.no_grad(), backend.graphs_compiled() as made:
        for x in inputs:
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    return made


def test_one_network_serves_images_of_all_sizes() -> None:
    sizes = [(2, 33, 40), (3, 47, 50), (2, 64, 33), (4, 35, 64)]
    (made,) = run(images().eval(), [torch.randn(b, 3, h, w) for b, h, w in sizes])
    assert isinstance(made, DynamicNetwork)
    assert made.by_size == ""
    assert made.ranges.greatest[1:] == (128, 128)
    assert "shape[2] 2 to 128" in repr(made)
    assert "PyTorch" not in str(made)


def test_one_network_serves_a_block_at_all_lengths_and_batches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sizes = [(3, 5), (2, 9), (8, 16), (7, 3)]
    with caplog.at_level(logging.INFO, "syno.graph"):
        (made,) = run(Block().eval(), [torch.randn(*size, 8) for size in sizes])
    assert not [each for each in caplog.messages if "compiled for each size" in each]
    assert isinstance(made, DynamicNetwork)
    assert made.by_size == ""
    torch._dynamo.reset()
    # Larger ones get a network of their own; a batch of one is another graph to TorchDynamo.
    sizes = [(3, 5), (20, 5), (33, 16), (1, 6)]
    found = run(Block().eval(), [torch.randn(*size, 8) for size in sizes])
    assert [each.ranges.greatest for each in found] == [(8, 16), (64, 16), (16,)]  # type: ignore[union-attr]


def test_a_size_that_torch_sees_change_becomes_a_range() -> None:
    made = run(Block().eval(), [torch.randn(2, n, 8) for n in (5, 9, 4, 7)], dynamic=None)
    assert [type(each) for each in made] == [CompiledNetwork, DynamicNetwork]
    assert made[1].ranges.names == ("x.shape[1]",)  # type: ignore[union-attr]


def test_marked_dimensions_have_their_ranges() -> None:
    x = torch.randn(2, 6, 8)
    torch._dynamo.mark_dynamic(x, 1, min=3, max=11)
    (made,) = run(Block().eval(), [x, torch.randn(2, 11, 8)], dynamic=None)
    assert (made.ranges.least, made.ranges.greatest) == ((3,), (11,))  # type: ignore[union-attr]


def test_sizes_beyond_the_range_get_networks_of_their_own() -> None:
    made = run(Block().eval(), [torch.randn(2, n, 8) for n in (5, 9, 8, 10)], max_size=8)
    assert [type(each) for each in made] == [DynamicNetwork, CompiledNetwork, CompiledNetwork]
    assert made[0].ranges.greatest == (4, 8)  # type: ignore[union-attr]
    made = run(Block().eval(), [torch.randn(2, n, 8) for n in (5, 6)], layouts="auto")
    assert [type(each) for each in made] == [CompiledNetwork, CompiledNetwork]
    for value in (1, 0, "8", 2.5, True):
        with pytest.raises(SynoError, match="max_size"):
            backend._settings({"max_size": value})


class Short(nn.Module):
    """Does something else to long inputs, so that TorchDynamo lets lengths up to there through."""

    def __init__(self, longest: int) -> None:
        super().__init__()
        self.block, self.longest = Block(), longest

    def forward(self, x: Tensor) -> Tensor:
        return self.block(x) if x.shape[1] <= self.longest else x.sum(1)


def test_a_range_that_ends_far_away_is_not_made_as_a_whole() -> None:
    for longest, greatest in ((40, 40), (3_000, 32)):  # 3,000 would be checked in float64, too
        torch._dynamo.reset()
        (made,) = run(Short(longest).eval(), [torch.randn(2, n, 8) for n in (9, 13, 30)])
        assert isinstance(made, DynamicNetwork)
        assert (made.by_size, made.ranges.greatest[1]) == ("", greatest)


def test_a_range_ends_where_it_is_another_network_beyond() -> None:
    """A window of attention begins to count at 48; whole vectors end there, too."""
    transformers = pytest.importorskip("transformers")
    config = transformers.Gemma2Config(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        intermediate_size=48, vocab_size=50, sliding_window=48, pad_token_id=0,
    )  # fmt: skip
    model = transformers.Gemma2Model(config).eval()
    fast = torch.compile(model, backend="syno", dynamic=True, options={"cache": False})
    with torch.no_grad(), backend.graphs_compiled() as made:
        for length in (17, 40, 46):
            ids = torch.randint(0, 50, (2, length))
            got, wanted = (m(input_ids=ids).last_hidden_state for m in (fast, model))
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)
    assert [each.by_size for each in made if isinstance(each, DynamicNetwork)] == [""]
    assert made[0].ranges.greatest[1] < 48  # type: ignore[union-attr]


def test_graphs_around_a_break_have_ranges_each() -> None:
    def function(x: Tensor) -> Tensor:
        y = torch.cat([x, x * 2], 1)
        torch._dynamo.graph_break()
        return torch.softmax(y, 1) + y.shape[1]

    made = run(function, [torch.randn(3, n) for n in (5, 7, 6)])
    assert [type(each) for each in made] == [DynamicNetwork, DynamicNetwork]


def test_what_pytorch_computes_has_the_size_of_the_call() -> None:
    def function(x: Tensor) -> Tensor:
        best = torch.topk(x + 1, x.shape[1] // 2, 1).values
        return torch.sort(best * 2, 1).values.cumsum(1)

    (made,) = run(function, [torch.randn(3, n) for n in (6, 9, 12, 11)])
    assert isinstance(made, DynamicNetwork)
    assert "PyTorch computes" in str(made)


def test_weights_that_change_are_seen_at_every_size() -> None:
    model = Block().eval()
    fast = torch.compile(model, backend="syno", dynamic=True, options={"cache": False})
    with torch.no_grad():
        for step in range(3):
            for n in (5, 9, 7 + step):
                x = torch.randn(2, n, 8)
                torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
            model.inside.weight.mul_(2)
            model.norm.bias.add_(0.5)
            model.outside.weight = nn.Parameter(torch.randn(8, 8))


def test_training_at_changing_sizes_agrees_with_eager() -> None:
    model = Block()
    twin = copy.deepcopy(model)
    fast = torch.compile(model, backend="syno", dynamic=True)
    for n in (5, 7):
        x = torch.randn(2, n, 8)
        for called in (fast, twin):
            called(x).square().mean().backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)


def test_rows_of_products_become_linear_layers_where_nobody_else_reads_them() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    w, b = torch.randn(4, 3), torch.randn(4)

    def layer(x: Tensor) -> Tensor:
        return torch.addmm(b, x.view(-1, 3), w.t()).view(2, 5, 4).relu()

    def read_as_rows(x: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.mm(x.view(-1, 3), w.t())
        return rows.view(2, 5, 4), rows.sum(0)

    def reshaped(x: Tensor) -> Tensor:
        return torch.addmm(b, x.view(-1, 3), w.t()).view(5, 2, 4)

    x = torch.randn(2, 5, 3)
    for function, wanted in ((layer, 1), (read_as_rows, 0), (reshaped, 0)):
        module = make_fx(function, tracing_mode="real")(x)
        made = with_linear_layers(module)
        found = sum(str(node.target) == "aten.linear.default" for node in made.graph.nodes)
        assert found == wanted
        assert (made is module) == (wanted == 0)
    torch.testing.assert_close(
        with_linear_layers(make_fx(layer, tracing_mode="real")(x))(x), layer(x)
    )
