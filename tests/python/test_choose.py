"""Operators of a network run whichever way is faster in their place, and say why."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from machines import written_machine

from syno.errors import KernelError
from syno.machines.model import fixed_kernels
from syno.operators.operator import Operator

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from syno.timing.bench import Timing  # noqa: E402
from syno.torch import Op, replace, sites  # noqa: E402
from syno.torch import choose as choosing  # noqa: E402
from syno.torch.choose import choose_in_place  # noqa: E402


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    layers = [nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)]
    layers += [nn.Conv2d(8, 8, 3, padding=1), nn.Dropout(0.5)]
    model = nn.Sequential(*layers)
    x = torch.randn(1, 4, 6, 6)
    text = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"
    found = sites(model, x)
    operators = {
        site: Operator.parse(text, n=1, o=8, c=c, h=6, w=6, r=3, s=3)
        for site, c in zip(found, (4, 8, 8), strict=True)
    }
    return replace(model, operators), x


def timed(
    monkeypatch: pytest.MonkeyPatch, native: float, plain: float, packed: float = 99.0
) -> list[int]:
    """Makes every measurement give these times; counts them."""
    count = [0]

    def fake(functions: Any, **_: Any) -> list[Timing]:
        count[0] += 1
        for function in functions.values():
            function()
        times = {"native": native, "torch": plain, "packed": packed}
        return [Timing(n, times[n], 0.0, 3, 1, 1, 1.0, 0.0) for n in functions]

    monkeypatch.setattr(choosing, "measure", fake)
    return count


@pytest.mark.parametrize(
    ("native", "plain", "chosen"), [(5.0, 9.0, True), (9.0, 5.0, False), (5.1, 5.0, True)]
)
def test_the_faster_way_is_taken_and_its_reason_kept(
    model: Any, monkeypatch: pytest.MonkeyPatch, native: float, plain: float, chosen: bool
) -> None:
    network, x = model
    timed(monkeypatch, native, plain)
    with torch.no_grad():
        expected = copy.deepcopy(network).eval()(x)
        choices = choose_in_place(network, x)
        assert [c.native for c in choices] == [chosen] * 3
        assert [c.site for c in choices] == ["0", "2", "3"]
        ops = [m for m in network.modules() if isinstance(m, Op)]
        assert all(op.native is chosen and op.why for op in ops)
        assert f"{'kernel' if chosen else 'PyTorch'}: " in repr(network)
        torch.testing.assert_close(network.eval()(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("packed", "plain", "way"),
    [(4.0, 9.0, "packed kernel"), (4.0, 3.0, "PyTorch"), (6.0, 9.0, "kernel")],
)
def test_weights_are_packed_where_that_is_fastest(
    monkeypatch: pytest.MonkeyPatch, packed: float, plain: float, way: str
) -> None:
    layers = nn.Sequential(nn.Linear(17, 40), nn.ReLU(), nn.Linear(40, 40))
    x = torch.randn(3, 17)
    text = "y[m,n] = sum[k] x[m,k] * w[n,k]"
    operators = {str(i): Operator.parse(text, m=3, n=40, k=k) for i, k in ((0, 17), (2, 40))}
    network = replace(layers, operators)
    timed(monkeypatch, 5.0, plain, packed)
    expected = copy.deepcopy(network).eval()(x).detach()
    with fixed_kernels(written_machine().to_json()):  # which packs the weights, others need not
        choices = choose_in_place(network, x)
    ops = [m for m in network.modules() if isinstance(m, Op)]
    assert all(c.packed_us == packed for c in choices)
    assert all(op.why.startswith(f"{way}: ") and "PyTorch" in op.why for op in ops)
    assert [op.prepack for op in ops] == [way == "packed kernel"] * 2
    network.eval()
    with torch.no_grad():
        torch.testing.assert_close(network(x), expected, rtol=1e-4, atol=1e-5)
    assert all((op.packed_bytes > 0) == (way == "packed kernel") for op in ops)


def test_equal_operators_on_equal_inputs_are_timed_once(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, x = model
    count = timed(monkeypatch, 1.0, 2.0)
    choose_in_place(network, x)
    assert count == [2]  # the second and third layer are the same operator at the same size


def test_mode_and_random_state_are_as_before(model: Any) -> None:
    network, x = model
    network.train()
    network[4].eval()
    choices = choose_in_place(network, x, turns=3)
    assert network.training and not network[4].training and network[0].training
    assert all(c.native_us > 0 and c.torch_us > 0 for c in choices)


def test_a_network_without_operators_has_nothing_to_choose() -> None:
    assert choose_in_place(nn.Sequential(nn.ReLU()), torch.randn(2)) == []


def test_another_device_gets_a_sentence(model: Any) -> None:
    network, x = model
    with pytest.raises(KernelError, match="device meta; there are kernels for the CPU only"):
        choose_in_place(network, x.to("meta"))
    with pytest.raises(KernelError, match="device meta"):
        choose_in_place(network.to("meta"), x)
