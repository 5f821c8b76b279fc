"""Attention written with Linear layers: the same function, whose projections are sites."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import syno
from syno.errors import ShapeError
from syno.nn import Attention, with_linear_attention


def _random_attention(seed: int) -> tuple[nn.MultiheadAttention, list[Tensor], dict[str, Any]]:
    """Any of the module's options, with inputs and masks that fit; every query sees a key."""
    torch.manual_seed(seed)
    pick = lambda *values: values[int(torch.randint(len(values), ()))]  # noqa: E731
    heads = pick(1, 2, 4)
    embed, batched, batch_first = heads * pick(2, 3), pick(True, True, False), pick(True, False)
    kdim, vdim = pick((None, None), (None, None), (embed + 1, embed + 3))
    module = nn.MultiheadAttention(
        embed,
        heads,
        bias=pick(True, False),
        add_bias_kv=pick(False, True),
        add_zero_attn=pick(False, True),
        kdim=kdim,
        vdim=vdim,
        batch_first=batch_first,
    )
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    n, length, source = pick(1, 3), pick(1, 4, 5), pick(2, 6)

    def tensor(steps: int, channels: int) -> Tensor:
        if not batched:
            return torch.randn(steps, channels)
        shape = (n, steps, channels) if batch_first else (steps, n, channels)
        return torch.randn(*shape)

    query = tensor(length, embed)
    if kdim is None and pick(True, False):
        inputs, source = [query] * 3, length
    else:
        inputs = [query, tensor(source, kdim or embed), tensor(source, vdim or embed)]
    options: dict[str, Any] = {"need_weights": pick(True, False)}
    if options["need_weights"]:
        options["average_attn_weights"] = pick(True, False)
    kind = pick("none", "bool", "float", "heads")
    if kind == "bool":
        mask = torch.rand(length, source) < 0.4
        mask[:, 0] = False
        options["attn_mask"] = mask
    elif kind == "float":
        options["attn_mask"] = torch.randn(length, source)
    elif kind == "heads":
        options["attn_mask"] = torch.randn((n if batched else 1) * heads, length, source)
    if pick(True, False):
        padding = torch.rand(n, source) < 0.4
        padding[:, 0] = False
        if kind in ("float", "heads"):
            padding = torch.zeros(n, source).masked_fill(padding, -torch.inf)
        options["key_padding_mask"] = padding if batched else padding[0]
    return module, inputs, options


@pytest.mark.parametrize("seed", range(80))
def test_it_is_the_same_function(seed: int) -> None:
    module, inputs, options = _random_attention(seed)
    wanted, weights = module(*inputs, **options)
    one = inputs[0] is inputs[1] is inputs[2]
    for joint in {False, one}:
        got, other = Attention(module, joint=joint)(*inputs, **options)
        torch.testing.assert_close(got, wanted, rtol=2e-5, atol=2e-5)
        assert (other is None) == (weights is None)
        if weights is not None:
            torch.testing.assert_close(other, weights, rtol=2e-5, atol=2e-5)


def _transformer() -> nn.Module:
    torch.manual_seed(1)
    return nn.Transformer(16, 4, 2, 2, 32, dropout=0.0, batch_first=True).eval()


def test_transformers_of_pytorch_are_the_same_and_every_projection_is_a_site() -> None:
    model, inputs = _transformer(), (torch.randn(2, 5, 16), torch.randn(2, 3, 16))
    made = with_linear_attention(model)
    assert not any(isinstance(m, nn.MultiheadAttention) for m in made.modules())
    assert any(isinstance(m, nn.MultiheadAttention) for m in model.modules())
    with torch.no_grad():
        torch.testing.assert_close(made(*inputs), model(*inputs), rtol=1e-5, atol=1e-5)
    joint = {n: m.joint for n, m in made.named_modules() if isinstance(m, Attention)}
    assert joint == {n: n.endswith("self_attn") for n in joint} and len(joint) == 6
    names = {name for site in syno.sites(made, inputs) for name in (site.name, *site.also)}
    assert "encoder.layers.0.self_attn.in_proj" in names
    assert "encoder.layers.1.linear1" in names  # PyTorch's fast path would not have called it
    assert "decoder.layers.1.multihead_attn.k_proj" in names


class _Twice(nn.Module):
    """One attention with one tensor, one with two, neither in a layer of PyTorch's."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.cross = (nn.MultiheadAttention(8, 2, batch_first=True) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.own(x, x, x, need_weights=False)[0]
        result: Tensor = self.cross(x, x.flip(1), value=x)[0]
        return result


def test_which_tensors_are_one_is_seen_by_a_call() -> None:
    model, x = _Twice().train(), torch.randn(2, 4, 8)
    made = with_linear_attention(model, (x,))
    assert made.own.joint and not made.cross.joint and model.training
    torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-5)
    assert not with_linear_attention(model).own.joint
    apart = with_linear_attention(model, (x,), separate=("own",))
    assert not apart.own.joint
    torch.testing.assert_close(apart(x), model(x), rtol=1e-5, atol=1e-5)
    with pytest.raises(ShapeError, match="no attention is named 'mine'; there are: own, cross"):
        with_linear_attention(model, separate=("mine",))


class _Scaled(nn.MultiheadAttention):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        result, weights = super().forward(*args, **kwargs)
        return 2 * result, weights


class _Shared(nn.Module):
    """One attention under two names, one frozen, one that computes something of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.MultiheadAttention(8, 2, batch_first=True)
        self.second = self.first
        self.frozen = nn.MultiheadAttention(8, 2, batch_first=True).requires_grad_(False)
        self.scaled = _Scaled(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        for layer in (self.first, self.second, self.frozen, self.scaled):
            x = layer(x, x, x)[0]
        return x


def test_shared_frozen_and_own_attention_stay_what_they_are() -> None:
    model, x = _Shared(), torch.randn(2, 4, 8)
    made = with_linear_attention(model, (x,))
    assert isinstance(made.first, Attention) and made.first is made.second
    assert isinstance(made.scaled, _Scaled) and made.scaled is not model.scaled
    assert not any(p.requires_grad for p in made.frozen.parameters())
    assert all(p.requires_grad for p in made.first.parameters())
    torch.testing.assert_close(made(x), model(x), rtol=1e-5, atol=1e-5)


def test_gradients_and_dropout() -> None:
    module = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
    made = with_linear_attention(module, (torch.randn(1, 3, 8),) * 3)
    assert isinstance(made, Attention) and made.training
    x = torch.randn(2, 3, 8)
    once, again = (made(x, x, x)[0] for _ in range(2))
    assert not torch.equal(once, again)
    made.eval(), module.eval()
    made(x, x, x)[0].sum().backward()
    module(x, x, x)[0].sum().backward()
    torch.testing.assert_close(made.in_proj.weight.grad, module.in_proj_weight.grad)


def test_wrong_calls_are_told() -> None:
    made = with_linear_attention(nn.MultiheadAttention(8, 2), (torch.randn(3, 1, 8),) * 3)
    x, y = torch.randn(3, 1, 8), torch.randn(4, 1, 8)
    with pytest.raises(ShapeError, match="got several; name it in `separate`"):
        made(x, y, y)
    with pytest.raises(ShapeError, match="give the mask, too"):
        made(x, x, x, is_causal=True)


def test_compiled_networks_have_no_part_by_pytorch() -> None:
    model = with_linear_attention(_transformer()).encoder
    x = torch.randn(2, 5, 16)
    fast = syno.compile(model, (x,))
    assert not fast.fallbacks
    with torch.no_grad():
        torch.testing.assert_close(torch.as_tensor(fast(x)), model(x), rtol=1e-4, atol=1e-4)
