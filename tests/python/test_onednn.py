"""PyTorch's frozen graph, packed for oneDNN, computes what the network does, or says why there is none."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

from syno.timing.onednn import OneDnnUnavailable, packed_for_onednn  # noqa: E402

needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="PyTorch without oneDNN"
)


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout())
        self.head = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        hidden = self.body(x)
        return self.head(hidden.mean((2, 3))), hidden


@needs_onednn
def test_the_packed_network_computes_the_same_and_leaves_the_model_alone() -> None:
    model, x = TwoHeads().train(), torch.randn(2, 3, 9, 9)
    model.body[0].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    packed = packed_for_onednn(model, x)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[n]) for n, value in model.state_dict().items())
    other = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        for got, expected in zip(packed(other), model.eval()(other), strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_a_network_without_such_a_form_says_why() -> None:
    class Refuses(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("not today")

    with pytest.raises(OneDnnUnavailable, match="not today"):
        packed_for_onednn(Refuses(), torch.zeros(1))
    with pytest.raises(OneDnnUnavailable, match="only a torch module"):
        packed_for_onednn(lambda x: x, torch.zeros(1))


@needs_onednn
def test_a_network_that_goes_another_way_when_traced_is_refused() -> None:
    class Counts(nn.Module):
        calls = 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * self.calls

    with pytest.raises(OneDnnUnavailable, match="other values"):
        packed_for_onednn(Counts(), torch.ones(2))
