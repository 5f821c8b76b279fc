"""Operators inside PyTorch: registered, differentiable, native, and in the place of layers."""

from __future__ import annotations

import copy
import io
import logging
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import syno  # noqa: E402
import syno.nn  # noqa: E402
from syno.errors import KernelError, ShapeError, UnknownName  # noqa: E402
from syno.operators.operator import Operator  # noqa: E402
from syno.torch import Op, as_function, native, ops, replace, sites  # noqa: E402
from syno.torch.initialize import fan_in  # noqa: E402

CONV = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"
STAGED = (
    "t[n,g,d,s,h,w] = sum[c] x[n,2*g+c,h,w+s-1] * a[d,2*g+c,s]; "
    "y[n,o,h,w] = sum[r,s,g,d] t[n,g,d,s,h+r-1,w] * b[o,r,s,g,d]"
)
SYMBOLIC = """
size N, C_in, C_out, H, W : primary = (1, 3, 8, 6, 6), (1, 8, 16, 3, 3)
size k, s : coefficient = (3, 2), (3, 2)
input x[N, C_in, s*H, s*W]
weight w[C_out, C_in, k, k]
y[n: N, o: C_out, h: H, i: W] = sum[c: C_in, p: k, q: k] x[n, c, s*h + p - 1, s*i + q - 1] * w[o, c, p, q]
"""


def conv(**changes) -> Operator:
    return Operator.parse(CONV, **{**dict(n=1, o=5, c=4, h=6, w=7, r=3, s=3), **changes})


def tensors(op: Operator, dtype=torch.float32, grad=False):
    torch.manual_seed(0)
    return [torch.randn(op.shapes[n], dtype=dtype, requires_grad=grad) for n in op.inputs]


OPERATORS = {
    "conv": conv(),
    "staged": Operator.parse(STAGED, n=2, g=2, c=2, d=3, o=5, h=5, w=4, r=3, s=3),
    "strided": Operator.parse(
        "y[n,o,h] = sum[c,r] x[n,c,2*h+r] * k[o,c,r]", n=2, o=3, c=2, h=4, r=3
    ),
    "dilated": Operator.parse(
        "y[n,o,h] = sum[c,r] x[n,c,h+2*r-2] * k[o,c,r]", n=1, o=3, c=2, h=7, r=3
    ),
    "depthwise": Operator.parse(
        "y[n,c,h] = sum[r] x[n,c,h+r-1] * k[c,r]", n=2, c=5, h=7, r=3
    ),
    "matmul": Operator.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", m=5, n=7, k=9),
    "pool": Operator.parse("y[n,c,h] = mean[r] x[n,c,3*h+r]", n=2, c=3, h=4, r=3),
    "shuffle": Operator.parse("y[n,c,h] = x[n,2*c+h%2,h/2]", n=2, c=3, h=8),
}  # fmt: skip


@pytest.fixture(params=OPERATORS)
def op(request) -> Operator:
    return OPERATORS[request.param]


def test_the_registered_operator_computes_the_reference(op):
    inputs = tensors(op, torch.float64)
    expected = torch.tensor(op.reference(*[t.numpy() for t in inputs]))
    torch.testing.assert_close(as_function(op)(*inputs), expected, atol=1e-10, rtol=1e-10)


def test_gradients_are_right(op):
    inputs = tensors(op, torch.float64, grad=True)
    assert torch.autograd.gradcheck(as_function(op), inputs)


def test_second_gradients_are_right():
    op = OPERATORS["strided"]
    assert torch.autograd.gradgradcheck(as_function(op), tensors(op, torch.float64, grad=True))


@pytest.mark.parametrize("name", ["conv", "staged", "pool"])
def test_pytorch_accepts_the_registration(name):
    op = OPERATORS[name]
    overload = getattr(torch.ops.syno, as_function(op).name).default
    torch.library.opcheck(overload, tensors(op, grad=True))


def test_forward_and_backward_run_on_native_kernels(op, caplog, monkeypatch):
    def forbidden(self, tensors):
        raise AssertionError("fell back to emitted functions")

    monkeypatch.setattr(ops.OperatorFunction, "emitted", forbidden)
    inputs = tensors(op, grad=True)
    as_function(op)(*inputs).sum().backward()
    assert all(t.grad is not None for t in inputs)
    assert not caplog.records


def test_kernels_are_compiled_once_per_shape(monkeypatch):
    compiled = []
    original = native.compile

    def counting(operator, **options):
        compiled.append(operator.shapes["x"])
        return original(operator, **options)

    monkeypatch.setattr(native, "compile", counting)
    op = conv(o=6)
    function = as_function(op)
    weight = torch.randn(op.shapes["k"])
    for batch, extent in ((1, 6), (1, 6), (3, 6), (2, 9), (3, 6)):
        x = torch.randn(batch, 4, extent, extent)
        torch.testing.assert_close(function(x, weight), F.conv2d(x, weight, padding=1))
    assert sorted(compiled) == [(1, 4, 6, 6), (2, 4, 9, 9), (3, 4, 6, 6)]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
        lambda x: torch.stack([x, x], -1)[..., 0],
        lambda x: x[:1].expand(x.shape),
        lambda x: torch.randn(x.numel() + 3)[3:].view(x.shape),
    ],
    ids=["channels_last", "transposed", "strided", "broadcast", "unaligned"],
)
def test_any_strides_are_read(change):
    op = conv(n=2)
    x, k = tensors(op)
    x = change(x)
    torch.testing.assert_close(
        as_function(op)(x, k), F.conv2d(x, k, padding=1), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_computes_in_single(dtype):
    op = conv()
    x, k = (t.to(dtype) for t in tensors(op))
    y = as_function(op)(x, k)
    assert y.dtype == dtype
    expected = F.conv2d(x.float(), k.float(), padding=1).to(dtype)
    torch.testing.assert_close(y, expected)


def test_bfloat16_weights_and_activations_train():
    op = conv(n=2)
    torch.manual_seed(3)
    layer = Op(op, dtype=torch.bfloat16)
    x = torch.randn(op.shapes["x"]).bfloat16().requires_grad_()
    y = layer(x)
    cotangent = torch.randn(y.shape).bfloat16()
    y.backward(cotangent)
    wide = [t.detach().double().requires_grad_() for t in (x, layer.k)]
    expected = F.conv2d(*wide, padding=1)
    expected.backward(cotangent.double())
    for got, want in ((y, expected), (x.grad, wide[0].grad), (layer.k.grad, wide[1].grad)):
        assert got.dtype == torch.bfloat16
        torch.testing.assert_close(got.double(), want, rtol=2**-8, atol=1e-5)
    compiled = torch.compile(layer, backend="eager")(x)
    assert torch.equal(compiled, y)


def test_wrong_dtypes_get_a_sentence():
    op = conv()
    x, k = tensors(op)
    with pytest.raises(TypeError, match=r"k is torch\.float64 and x is torch\.float32"):
        as_function(op)(x, k.double())
    with pytest.raises(TypeError, match=r"torch\.int64 is not a dtype"):
        as_function(op)(x.long(), k.long())


def test_sparse_tensors_get_a_sentence():
    op = conv()
    x, k = tensors(op)
    with pytest.raises(TypeError, match=r"x is of layout torch\.sparse_coo.*to_dense"):
        as_function(op)(x.to_sparse(), k)


def test_wrong_shapes_get_a_sentence():
    op = conv()
    x, k = tensors(op)
    with pytest.raises(ShapeError, match="cannot have"):
        as_function(op)(x[:, :3], k)


def test_empty_batches_give_empty_results():
    op = conv()
    x = torch.randn(0, 4, 6, 7, requires_grad=True)
    k = torch.randn(op.shapes["k"], requires_grad=True)
    y = as_function(op)(x, k)
    assert y.shape == (0, 5, 6, 7)
    y.sum().backward()
    assert x.grad.shape == x.shape
    assert not k.grad.any()


def test_a_failing_kernel_falls_back_once_and_says_so(monkeypatch, caplog):
    def failing(*_, **__):
        raise KernelError("[kernel] no registers left")

    monkeypatch.setattr(native, "compile", failing)
    op = conv(o=7)
    function = as_function(op)
    with caplog.at_level(logging.WARNING, "syno.torch"):
        for batch in (1, 2):
            x, k = torch.randn(batch, 4, 6, 7), torch.randn(op.shapes["k"])
            torch.testing.assert_close(function(x, k), F.conv2d(x, k, padding=1))
    assert [r.message for r in caplog.records if "no registers left" in r.message]
    assert len(caplog.records) == 1


def test_operators_of_several_outputs_stay_outside():
    two = Operator.parse("a[i] = 2 * x[i]; b[i] = x[i] + 1; return a, b", i=3)
    with pytest.raises(ShapeError, match="has 2 outputs"):
        as_function(two)


def test_equal_formulas_share_one_registration():
    assert as_function(conv()) is as_function(conv())
    assert as_function(conv()) is not as_function(conv(o=9))


# Modules


def test_an_operator_alone_is_a_module_with_its_own_names():
    module = syno.nn.Op(OPERATORS["staged"])
    assert [n for n, _ in module.named_parameters()] == ["a", "b"]
    assert "y[n,o,h,w]" in repr(module)
    assert module(torch.randn(2, 4, 5, 4)).shape == (2, 5, 5, 4)


def test_symbolic_operators_need_a_valuation():
    with pytest.raises(ShapeError, match="choose one with"):
        Op(Operator.parse(SYMBOLIC))


def test_fan_in_is_shared_between_the_weights():
    fans, others = fan_in(OPERATORS["conv"])
    assert (fans, others) == ({"k": 4 * 9}, 1)
    fans, others = fan_in(OPERATORS["staged"])
    assert fans["a"] * fans["b"] * others == 2 * 3 * 3 * 2 * 3  # c, r, s, g, d
    assert fan_in(OPERATORS["pool"]) == ({}, pytest.approx(1 / 3))


@pytest.mark.parametrize("name", ["conv", "staged"])
def test_initial_weights_keep_the_wanted_variance(name):
    operator = OPERATORS[name]
    bigger = {n: (64, *operator.shapes[n][1:]) for n in operator.data}
    torch.manual_seed(0)
    variances = []
    for _ in range(8):
        module = Op(operator, variance=2.0, native=False)
        with torch.no_grad():
            y = module(*(torch.randn(bigger[n]) for n in operator.data))
        variances.append(float(y[..., 1:-1, 1:-1].var()))
    assert 1.0 < sum(variances) / 8 < 4.0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.body = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.norm(self.body(self.stem(x).relu())).mean((2, 3)))


def swapped(native=True):
    torch.manual_seed(1)
    model, x = Net(), torch.randn(2, 3, 12, 12)
    found = sites(model, x, repeats=1)
    operator = Operator.parse(SYMBOLIC)
    return (
        model,
        replace(model, dict.fromkeys(found.where(kind="conv2d"), operator), native=native),
        x,
    )


def test_replacing_leaves_the_users_model_alone():
    model, new, x = swapped()
    assert type(model.stem) is nn.Conv2d
    assert isinstance(new.stem, Op) and isinstance(new.body, Op)
    assert new.norm is not model.norm
    assert list(new.state_dict()) == list(model.state_dict())
    assert new.stem.bias is not model.stem.bias
    torch.testing.assert_close(new.stem.bias, model.stem.bias)
    assert new.body.bias is None
    assert new(x).shape == (2, 4)


def test_a_replacement_with_the_layers_own_values_computes_the_layer():
    model, new, x = swapped()
    new.load_state_dict(model.state_dict())
    for batch in (x, x[:1], torch.randn(3, 3, 20, 20), torch.randn(2, 3, 11, 9)):
        torch.testing.assert_close(new.eval()(batch), model.eval()(batch), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(new.stem(x[0]), model.stem(x[0]), atol=1e-4, rtol=1e-4)


def test_training_a_replacement_is_training_the_layer():
    model, new, x = swapped()
    new.load_state_dict(model.state_dict())
    steps = []
    for net in (model.train(), new.train()):
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            optimiser.zero_grad()
            net(x).pow(2).sum().backward()
            optimiser.step()
        steps.append(net.state_dict())
    for name in steps[0]:
        torch.testing.assert_close(steps[0][name], steps[1][name], atol=1e-3, rtol=1e-3)


def test_replacements_copy_pickle_and_convert():
    _, new, x = swapped()
    new.eval()
    expected = new(x)
    clone = copy.deepcopy(new)
    assert clone.stem.weight is not new.stem.weight
    torch.testing.assert_close(clone(x), expected)
    torch.testing.assert_close(pickle.loads(pickle.dumps(new))(x), expected)
    torch.testing.assert_close(new.double()(x.double()).float(), expected, atol=1e-4, rtol=1e-4)
    stream = io.BytesIO()
    torch.save(clone.state_dict(), stream)
    stream.seek(0)
    clone.load_state_dict(torch.load(stream, weights_only=True))


def test_replacements_follow_autocast():
    _, new, x = swapped()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = new(x)
    assert torch.isfinite(y).all()


def test_the_plain_pytorch_twin_shares_its_parameters():
    _, new, x = swapped()
    twin = new.stem.to_aten()
    assert twin.weight is new.stem.weight
    torch.testing.assert_close(twin(x), new.stem(x), atol=1e-4, rtol=1e-4)


def test_the_mode_and_frozen_parameters_are_kept():
    model = Net().eval()
    model.stem.requires_grad_(False)
    x = torch.randn(1, 3, 12, 12)
    new = replace(model, {sites(model, x, repeats=1)["stem"]: Operator.parse(SYMBOLIC)})
    assert not new.stem.training
    assert not new.stem.weight.requires_grad


def test_a_layer_used_under_two_names_is_replaced_under_both():
    layer = nn.Conv2d(3, 8, 3, stride=2, padding=1)
    model = nn.ModuleDict({"a": layer, "b": layer})
    model.forward = lambda x: model["a"](x) + model["b"](x)
    found = sites(model, torch.randn(1, 3, 12, 12), repeats=1)
    assert found["b"].call_count == 2
    new = replace(model, {found["a"]: Operator.parse(SYMBOLIC)})
    assert new["a"] is new["b"]


def test_names_choose_a_valuation_by_channels():
    new = replace(Net(), {"body": Operator.parse(SYMBOLIC)})
    assert new.body.operator.shapes["w"] == (16, 8, 3, 3)


@pytest.mark.parametrize(
    ("key", "operator", "error", "message"),
    [
        ("nope", Operator.parse(SYMBOLIC), UnknownName, r"no module 'nope'.*stem, body"),
        ("norm", Operator.parse(SYMBOLIC), ShapeError, "neither a convolution nor linear"),
        ("head", Operator.parse(SYMBOLIC), ShapeError, "no valuation has 16 channels in and 4"),
        ("stem", OPERATORS["matmul"], ShapeError, "no valuation has|channels"),
    ],
)
def test_impossible_replacements_get_a_sentence(key, operator, error, message):
    with pytest.raises(error, match=message):
        replace(Net(), {key: operator})


def test_inputs_of_other_channels_get_a_sentence():
    _, new, _ = swapped()
    with pytest.raises(
        ShapeError, match=r"3 input channels; it got an input of shape \(1, 4, 8, 8\)"
    ):
        new.stem(torch.randn(1, 4, 8, 8))


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from([(), (3,), (2, 3), (2, 3, 2)]),
    st.booleans(),
)
def test_linear_layers_of_any_leading_dimensions_are_replaced(leading, bias):
    layer = nn.Linear(6, 4, bias=bias)
    x = torch.randn(*leading, 6)
    rank = max(len(leading) - 1, 0)
    indices = ",".join(["n", *"ab"[:rank]])
    sizes = dict(zip(["n", *"ab"], (max(1, s) for s in (1, 2, 3)), strict=False))
    used = {k: v for k, v in sizes.items() if k in indices}
    operator = Operator.parse(f"y[{indices},o] = sum[c] x[{indices},c] * w[o,c]", o=4, c=6, **used)
    new = replace(layer, {sites(layer, x, repeats=1)[0]: operator})
    new.load_state_dict(layer.state_dict())
    torch.testing.assert_close(new(x), layer(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["half", "training", "parameters", "type", "bias", "operator", "function", "forward"]
)
def test_a_weight_may_be_named_like_something_of_a_module(name: str) -> None:
    operator = syno.Operator.parse(f"y[i,j] = sum[k] a[i,k] * {name}[k,j]", i=2, j=3, k=4)
    module = Op(operator)
    ((own, weight),) = module.named_parameters()
    assert own == f"{name}_"
    x = torch.randn(2, 4)
    module.eval()
    torch.testing.assert_close(module(x), x @ weight)
    module.train()(x).sum().backward()
    assert weight.grad is not None
    module.load_state_dict(Op(operator).state_dict())
