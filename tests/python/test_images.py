"""Networks compute in the memory format in which the whole is faster; nothing else of them changes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from syno.operators.operator import Operator

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from syno.timing.bench import Timing  # noqa: E402
from syno.torch import Op, images, replace  # noqa: E402
from syno.torch.images import fastest  # noqa: E402

CONV = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"


class Network(nn.Module):
    """Several results, one of them no image; an image of one channel, which is in both formats, goes in."""

    def __init__(self, flatten: Any = torch.flatten) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(1, 6, 3, padding=1)
        self.second = nn.Conv2d(6, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.last = nn.Linear(6 * 8 * 7, 3)
        self.flatten = flatten
        self.seen: list[Any] = []

    def forward(self, x: Any) -> Any:
        y = self.second(self.first(x))
        self.seen.append(y.stride())
        y = y + x
        return self.norm(y), {"classes": [self.last(self.flatten(y, 1))]}


def network(**options: Any) -> Any:
    operator = Operator.parse(CONV, n=1, o=6, c=6, h=8, w=7, r=3, s=3)
    return replace(Network(**options), {"second": operator})


@pytest.fixture(params=["contiguous", "channels-last"])
def faster(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    def fake(functions: Any, **_: Any) -> list[Timing]:
        for function in functions.values():
            function()
        return [Timing(n, 1.0 + (n != request.param), 0.0, 3, 1, 1, 1.0, 0.0) for n in functions]

    monkeypatch.setattr(images, "measure", fake)
    return str(request.param)


@pytest.mark.parametrize("batch", [1, 2])
def test_the_faster_format_is_taken_and_results_stay_the_same(faster: str, batch: int) -> None:
    model = network().train()
    model.norm.eval()
    x = torch.randn(batch, 1, 8, 7)
    with torch.no_grad():
        expected, classes = copy.deepcopy(model).eval()(x)
        chosen = fastest(model, x, turns=3)
        assert chosen.channels_last == (faster == "channels-last")
        assert chosen.why.startswith(faster) and [c.site for c in chosen.choices] == ["second"]
        assert chosen.network.training and not chosen.network.norm.training
        assert [*chosen.network.state_dict()] == [*model.state_dict()]
        for each in (
            chosen.network,
            copy.deepcopy(chosen.network),
            pickle.loads(pickle.dumps(chosen.network)),
        ):
            each.eval()
            for given in (x, x.to(memory_format=torch.channels_last)):
                each.seen.clear()
                got, other = each(given)
                torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
                torch.testing.assert_close(
                    other["classes"][0], classes["classes"][0], rtol=1e-4, atol=1e-5
                )
                if chosen.channels_last or given is x:
                    assert chosen.channels_last == (each.seen[0][1] == 1)
                assert got.is_contiguous() or given is not x


def test_a_network_that_wants_the_usual_order_keeps_it(faster: str) -> None:
    model = network(flatten=lambda y, _: y.view(y.shape[0], -1))
    chosen = fastest(model, torch.randn(2, 1, 8, 7), turns=3)
    assert chosen.network is model and not chosen.channels_last
    assert chosen.why == "images as they are given"


def test_what_is_no_image_or_channels_last_already_stays_as_it_is(faster: str) -> None:
    rows = nn.Sequential(nn.Linear(4, 4))
    assert fastest(rows, torch.randn(2, 4), turns=3).network is rows
    model = network()
    x = torch.randn(2, 1, 8, 7).to(memory_format=torch.channels_last)
    assert fastest(model, x, turns=3).network is model


def test_gradients_and_exports_go_through(faster: str) -> None:
    model = network().eval()
    x = torch.randn(2, 1, 8, 7)
    expected = torch.autograd.grad(model(x)[0].square().sum(), [*model.second.parameters()])
    chosen = fastest(model, x, turns=3).network
    got = torch.autograd.grad(chosen(x)[0].square().sum(), [*chosen.second.parameters()])
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)
    chosen.requires_grad_(False)
    program = torch.export.export(chosen, (x,), strict=False)
    torch.testing.assert_close(program.module()(x)[0], chosen(x)[0], rtol=1e-4, atol=1e-5)
    assert isinstance(chosen.second, Op)


def test_it_is_measured() -> None:
    model = network()
    chosen = fastest(model, torch.randn(1, 1, 8, 7), turns=3)
    assert chosen.contiguous_us and chosen.channels_last_us
