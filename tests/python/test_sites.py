"""Sites are found by running the model, and grouped by their symbolic shapes."""

from __future__ import annotations

import dataclasses
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import syno  # noqa: E402
from syno import _core  # noqa: E402
from syno.errors import ShapeError, SpecError, UnknownName  # noqa: E402
from syno.operators.explain import explain  # noqa: E402
from syno.torch.layers import describe, output_shape  # noqa: E402
from syno.torch.sites import Sites  # noqa: E402

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class Block(nn.Module):
    """A residual block that calls one convolution twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.wide = nn.Conv2d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.body(self.body(self.stem(x)).relu())
        return self.head(self.wide(self.down(x)).mean((2, 3)))


@st.composite
def convolutions(draw):
    """A convolution of any attributes with an input that it accepts."""
    rank = draw(st.integers(1, 3))
    per_axis = st.lists(st.integers(1, 3), min_size=rank, max_size=rank)
    kernel, stride, dilation = draw(per_axis), draw(per_axis), draw(per_axis)
    groups = draw(st.sampled_from([1, 2]))
    padding = draw(
        st.lists(st.integers(0, 2), min_size=rank, max_size=rank)
        | st.sampled_from(["same", "valid"])
    )
    if padding == "same":
        stride = [1] * rank
    layer = CONV[rank](
        2 * groups, 4, tuple(kernel), stride=tuple(stride), dilation=tuple(dilation),
        padding=padding if isinstance(padding, str) else tuple(padding), groups=groups,
    )  # fmt: skip
    extra = draw(st.lists(st.integers(0, 4), min_size=rank, max_size=rank))
    extents = [d * (k - 1) + 1 + e for d, k, e in zip(dilation, kernel, extra, strict=True)]
    batch = draw(st.sampled_from([(), (1,), (3,)]))
    return layer, (*batch, 2 * groups, *extents)


@settings(max_examples=60, deadline=None)
@given(convolutions())
def test_a_description_predicts_shape_cost_and_fit(case):
    layer, shape = case
    x = torch.randn(shape)
    y = layer(x)
    found = describe(layer)
    assert found is not None and found.layer is not None and not found.reason
    assert output_shape(found.layer, shape) == tuple(y.shape)
    assert found.layer.params == sum(p.numel() for p in layer.parameters())
    per_output = layer.weight[0].numel()
    assert found.layer.flops(y.shape) == y.numel() * per_output
    fit = found.layer.fit(shape, tuple(y.shape))
    inside = fit.enter(x)
    assert tuple(inside.shape) == fit.input
    expected = [s * o for s, o in zip(layer.stride, y.shape[-len(layer.stride) :], strict=True)]
    assert list(fit.input[2:]) == expected
    assert fit.leave(torch.zeros(fit.output)).shape == y.shape


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "extent", "pad"),
    [
        (3, 1, 1, 8, (0, 0)),
        (3, 2, 1, 8, (0, 0)),
        (3, 2, 1, 7, (0, 1)),  # four outputs want eight elements
        (5, 1, 0, 12, (-2, -2)),  # a window without padding looks two elements further in
        (16, 16, 0, 32, (0, 0)),  # patches fit exactly: nothing may be shifted
        (3, 1, 3, 6, (2, 2)),  # more padding than the window needs
        (11, 4, 2, 224, (-3, -1)),
    ],
)
def test_the_operators_window_is_centred_where_the_layers_was(kernel, stride, padding, extent, pad):
    layer = describe(nn.Conv1d(1, 1, kernel, stride=stride, padding=padding)).layer
    shape = (1, 1, extent)
    assert layer.fit(shape, output_shape(layer, shape)).pad == (pad,)


def test_a_centred_kernel_computes_what_the_unpadded_layer_did_away_from_borders():
    layer = nn.Conv2d(2, 3, 5, bias=False)
    x = torch.randn(1, 2, 12, 12)
    fit = describe(layer).layer.fit(tuple(x.shape), tuple(layer(x).shape))
    same = nn.functional.conv2d(fit.enter(x), layer.weight, padding=2)
    torch.testing.assert_close(same[..., 2:-2, 2:-2], layer(x)[..., 2:-2, 2:-2])


def test_sites_have_calls_costs_and_shares():
    model, x = Block(), torch.randn(2, 3, 8, 8)
    found = syno.sites(model, x, repeats=2)
    assert [site.name for site in found] == ["stem", "body", "down", "wide", "head"]
    assert found["body"].call_count == 2
    assert found["body"].flops == 2 * (2 * 8 * 8 * 8) * 8 * 9
    assert found["head"].layer.params == 16 * 10 + 10
    assert 0 < sum(site.share_of_time for site in found) <= 1.05
    assert json.loads(json.dumps(found.to_dict()))["sites"][2]["layer"]["stride"] == [2, 2]
    assert "5 of 5 sites can be replaced" in repr(found)
    assert found._repr_html_().count("<tr>") == 6


def test_looking_for_sites_changes_nothing():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout())
    model[2].eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    threads = torch.get_num_threads()
    syno.sites(model, torch.randn(1, 1, 5, 5), repeats=1)
    assert [m.training for m in model.modules()] == [True, True, True, False]
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch.get_num_threads() == threads


def test_hooks_go_when_the_model_fails():
    class Bad(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            raise ArithmeticError("of its own")

    model = Bad()
    with pytest.raises(ArithmeticError):
        syno.sites(model, torch.randn(1, 2))
    assert not model.layer._forward_hooks
    assert model.training


def test_where_filters_by_kind_share_and_name():
    found = syno.sites(Block(), torch.randn(1, 3, 8, 8), repeats=1)
    assert [s.name for s in found.where(kind="linear")] == ["head"]
    assert [s.name for s in found.where(kind="conv2d", name="*o*")] == ["body", "down"]
    assert len(found.where(share_of_time=2.0)) == 0
    assert len(found.where(predicate=lambda s: s.call_count > 1)) == 1
    with pytest.raises(
        UnknownName, match=r"kind 'conv4d'.*conv1d, conv2d, conv3d, conv_transpose1d, .*, linear"
    ):
        found.where(kind="conv4d")
    with pytest.raises(UnknownName, match=r"no site is named 'nope'.*stem, body"):
        found["nope"]


SKIPPED = {
    "padding_mode": (nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"), "reflect"),
    "own forward": (type("Mine", (nn.Conv2d,), {"forward": lambda s, x: x})(4, 4, 3), "own"),
    "weight norm": (
        nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 3, padding=1)),
        "parametrised",
    ),
}


@pytest.mark.parametrize("name", SKIPPED)
def test_what_cannot_be_replaced_says_why(name):
    layer, word = SKIPPED[name]
    found = syno.sites(nn.Sequential(layer), torch.randn(1, 4, 8, 8), repeats=1)
    assert len(found) == 1
    assert not found[0].replaceable
    assert word in found[0].reason
    assert found.groups() == []


def test_shared_weights_uncalled_layers_and_attention_are_skipped():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(7, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight
            self.idle = nn.Linear(4, 4)
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, i):
            x = self.embed(i)
            return self.head(self.attention(x, x, x)[0])

    found = syno.sites(Odd(), torch.tensor([[1, 2, 3]]), repeats=1)
    assert "shared" in found["head"].reason
    assert "never calls" in found["idle"].reason
    assert not found["attention.out_proj"].replaceable


def test_zero_padding_in_another_mode_is_no_obstacle():
    layer = nn.Conv2d(4, 4, 1, padding_mode="circular")
    assert syno.sites(layer, torch.randn(1, 4, 3, 3), repeats=1)[0].replaceable


@pytest.mark.parametrize(
    ("model", "example", "message"),
    [
        (nn.ReLU(), torch.zeros(1), "no Conv1d, Conv2d, Conv3d or Linear"),
        (nn.LazyLinear(3), torch.zeros(1, 2), "call the model once yourself"),
    ],
)
def test_models_without_sites_get_a_sentence(model, example, message):
    with pytest.raises(ShapeError, match=message):
        syno.sites(model, example)


def test_sites_of_one_symbolic_shape_share_a_space_with_all_valuations():
    found = syno.sites(Block(), torch.randn(2, 3, 8, 8), repeats=1)
    groups = {group.key: group for group in found.groups()}
    assert set(groups) == {"conv2d 3x3", "conv2d 3x3 s2", "linear"}
    plain = groups["conv2d 3x3"]
    assert [site.name for site in plain.sites] == ["stem", "body", "wide"]
    shapes = [tuple(v[n] for n in ("N", "C_in", "C_out", "H", "W")) for v in plain.valuations]
    assert shapes == [(2, 3, 8, 8, 8), (2, 8, 8, 8, 8), (2, 16, 16, 4, 4)]
    assert plain.valuation_of("wide") == 2
    strided = groups["conv2d 3x3 s2"]
    assert strided.signature.input == (("n", "N"), ("c", "C_in"), ("h", "s*H"), ("w", "s*W"))
    with pytest.raises(SpecError, match=r"'down' is not in the group conv2d 3x3"):
        plain.valuation_of("down")


def test_height_and_width_are_different_variables():
    group = syno.sites(nn.Conv2d(4, 4, 3, padding=1), torch.randn(1, 4, 6, 9), repeats=1).groups()[
        0
    ]
    assert (group.valuations[0]["H"], group.valuations[0]["W"]) == (6, 9)


def test_strides_of_one_axis_only_multiply_that_axis():
    layer = nn.Conv2d(4, 8, 3, stride=(2, 1), padding=1)
    group = syno.sites(layer, torch.randn(1, 4, 6, 9), repeats=1).groups()[0]
    assert group.signature.input[2:] == (("h", "s*H"), ("w", "W"))
    assert group.valuations[0]["s"] == 2


def test_depthwise_layers_of_any_width_share_a_group_and_keep_one_channel_variable():
    model = nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.Conv2d(4, 6, 1),
        nn.Conv2d(6, 6, 3, padding=1, groups=6),
    )  # fmt: skip
    groups = {g.key: g for g in syno.sites(model, torch.randn(1, 4, 8, 8), repeats=1).groups()}
    depthwise = groups["conv2d 3x3 depthwise"]
    assert [v["C"] for v in depthwise.valuations] == [4, 6]
    assert depthwise.signature.output[1] == ("o", "C")


@pytest.mark.parametrize(
    ("shape", "dims", "key"),
    [
        ((6,), (("n", "N"), ("c", "C_in")), "linear"),
        ((3, 6), (("n", "N"), ("c", "C_in")), "linear"),
        ((3, 5, 6), (("n", "N"), ("l", "L"), ("c", "C_in")), "linear L"),
        ((2, 4, 5, 6), (("n", "N"), ("h", "H"), ("w", "W"), ("c", "C_in")), "linear H W"),
    ],
)
def test_linear_layers_keep_their_leading_dimensions(shape, dims, key):
    found = syno.sites(nn.Linear(6, 4), torch.randn(shape), repeats=1)
    group = found.groups()[0]
    assert group.key == key
    assert group.signature.input == dims
    fit = found[0].fits[0]
    x = torch.randn(shape)
    assert fit.leave(nn.functional.linear(fit.enter(x), torch.ones(4, 6))).shape == (*shape[:-1], 4)


def test_a_group_as_json_has_budgets_relative_to_its_layers():
    group = syno.sites(Block(), torch.randn(1, 3, 8, 8), repeats=1).groups()
    plain = next(g for g in group if g.key == "conv2d 3x3")
    spec = json.loads(plain.to_json(flops_ratio=0.5, params_ratio=1.0, max_steps=5))
    layers = [(3 * 8, 64), (8 * 8, 64), (16 * 16, 16)]
    assert spec["budgets"]["max_flops"] == sum(c * 9 * points for c, points in layers) // 2
    assert spec["budgets"]["max_params"] == sum(c * 9 for c, _ in layers)
    assert spec["budgets"]["max_steps"] == 5
    assert spec["fixed"] == [[0, 0]]
    names = {v["name"] for v in spec["variables"]}
    assert all(set(valuation) == names for valuation in spec["valuations"])
    with pytest.raises(SpecError, match="leaves nothing below"):
        plain.to_json(flops_ratio=0.5, min_flops_ratio=0.5)
    with pytest.raises(SpecError, match="flops_ratio=-1"):
        plain.to_json(flops_ratio=-1)


def test_groups_divide_every_channel_count():
    model = nn.Sequential(nn.Conv2d(24, 36, 1), nn.Conv2d(36, 48, 1))
    group = syno.sites(model, torch.randn(1, 24, 4, 4), repeats=1).groups()[0]
    for valuation in group.valuations:
        for channels in ("C_in", "C_out"):
            assert valuation[channels] % (valuation["g"] * valuation["s"] // 2) == 0


def _sees_other_places(operator, shape):
    """Whether an output `[N, places..., C]` depends on the input at another place."""
    run = operator.to_torch()
    torch.manual_seed(0)
    x = torch.randn(shape)
    changed = x.clone()
    changed[:, 0] = torch.randn(changed[:, 0].shape)
    before, after = run(x), run(changed)
    return not torch.allclose(before[:, 1:], after[:, 1:], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("places", [(6,), (4, 6)])
def test_operators_of_linear_layers_treat_every_token_alike(places):
    layers = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 32))
    group = syno.sites(layers, torch.randn(1, *places, 16), repeats=1).groups()[0]
    alike = _core.sample_operators(group.spec(max_steps=8), n=20, seed=1)
    assert len(alike) >= 5
    concrete = [syno.Operator.from_pgraph(graph).at(0) for graph in alike]
    assert not any(_sees_other_places(op, op.shapes[op.data[0]]) for op in concrete)
    fixed = json.loads(group.to_json())["fixed"]
    assert fixed == [[i, i] for i in range(1 + len(places))]
    mixing = _core.sample_operators(group.spec(max_steps=8, mix_tokens=True), n=20, seed=1)
    concrete = [syno.Operator.from_pgraph(graph).at(0) for graph in mixing]
    assert any(_sees_other_places(op, op.shapes[op.data[0]]) for op in concrete)


def test_groups_and_shares_do_not_depend_on_measured_times():
    model, x = Block(), torch.randn(1, 3, 8, 8)
    found = syno.sites(model, x, repeats=1)
    rng = random.Random(3)
    for _ in range(5):
        noisy = [
            dataclasses.replace(s, time_us=rng.random(), share_of_time=rng.random()) for s in found
        ]
        again = Sites(noisy, 1.0, 1)
        assert [g.key for g in again.groups()] == [g.key for g in found.groups()]
        assert [g.flops for g in again.groups()] == sorted(
            (g.flops for g in found.groups()), reverse=True
        )
        kept = [s.name for s in again.where(share_of_flops=0.1)]
        assert kept == [s.name for s in found.where(share_of_flops=0.1)]
    assert len(found.where(share_of_flops=1.1)) == 0


def test_a_space_follows_from_its_layers():
    def spec(layer, x):
        return json.loads(syno.sites(layer, x, repeats=1).groups()[0].to_json())

    strided = spec(nn.Conv2d(16, 16, 3, stride=2, padding=1), torch.randn(1, 16, 8, 8))
    assert "strided_inputs" in strided["extensions"]
    even = spec(nn.Conv2d(16, 16, 4, padding="same"), torch.randn(1, 16, 8, 8))
    assert "even_windows" in even["extensions"]
    wide = spec(nn.Linear(64, 4096), torch.randn(2, 5, 64))
    assert wide["thresholds"]["max_matched"] == 4096
    assert wide["fixed"] == [[0, 0], [1, 1]]
    assert not any(v["name"].startswith("k") for v in wide["variables"])
    two = syno.sites(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.MaxPool2d(2),
                                   nn.Conv2d(8, 8, 3, padding=1)), torch.randn(1, 8, 8, 8), repeats=1)  # fmt: skip
    weights = json.loads(two.groups()[0].to_json())["weights"]
    assert weights == [8 * 8 * 9 * 64, 8 * 8 * 9 * 16]


def test_strided_layers_have_the_known_operators_and_windows():
    layer = nn.Conv2d(32, 64, 3, stride=2, padding=1)
    group = syno.sites(layer, torch.randn(1, 32, 16, 16), repeats=1).groups()[0]
    spec = group.spec(flops_ratio=1.0)
    sizes = {"kernel": "k", "groups": "g", "shrink": "s", "dilation": "s"}
    # What a stride skips is not computed: the layer itself does not exceed its own multiply-adds.
    for name in ("conv", "grouped_conv", "bottleneck_conv", "separable_conv", "dilated_conv"):
        way = explain(_core.named_operator(name, spec, sizes), spec)
        assert way.legal, f"{name}: {way}"
    drawn = _core.sample_operators(spec, n=20, seed=0)
    assert len(drawn) == 20
    assert sum(" unfold " in graph.text() for graph in drawn) >= 6


def test_pointwise_layers_that_stride_skip_what_the_layer_skips():
    group = syno.sites(nn.Conv2d(32, 64, 1, stride=2), torch.randn(1, 32, 16, 16), repeats=1)
    spec = group.groups()[0].spec(flops_ratio=1.0)
    assert explain(_core.named_operator("conv1x1", spec, {}), spec).legal
