"""PyTorch's own exporters take a network with operators in it: with free extents, or as functions others know."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from syno.operators.operator import Operator  # noqa: E402
from syno.torch import Op, replace, sites  # noqa: E402
from syno.torch.ops import as_function  # noqa: E402
from syno.torch.symbols import symbolic_shape  # noqa: E402

SEPARABLE = Operator.parse(
    "t[n,c,h,w] = sum[r,s] x[n,c,h+r-1,w+s-1] * k[c,r,s]; y[n,o,h,w] = sum[c] t[n,c,h,w] * p[o,c]",
    n=2, o=6, c=4, h=6, w=6, r=3, s=3,
)  # fmt: skip
LINEAR = Operator.parse("y[n,o] = sum[c] x[n,c] * k[o,c]", n=2, o=5, c=216)


@pytest.fixture
def network() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 6, 3, padding=1), nn.Flatten(),
        nn.Linear(6 * 36, 5),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 6, 6)
    found = sites(model, x, repeats=1)
    return replace(model, {found["2"]: SEPARABLE, found["4"]: LINEAR}).eval(), x


def close(got: Any, wanted: Any) -> None:
    torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_network_takes_any_batch(network: Any, strict: bool) -> None:
    fast, x = network
    free = {"input": {0: torch.export.Dim("batch", min=1, max=64)}}
    program = torch.export.export(fast, (x,), dynamic_shapes=free, strict=strict)
    assert "syno" in str(program.graph)
    for batch in (1, 2, 5):
        inputs = torch.randn(batch, 3, 6, 6)
        close(program.module()(inputs), fast(inputs))


def test_a_trace_runs_where_there_is_no_syno_and_spoils_nothing(network: Any) -> None:
    fast, x = network
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript as a whole
        traced = torch.jit.trace(fast, x)
    close(traced(x), fast(x))
    assert "syno::" not in str(traced.inlined_graph)
    assert all(
        type(n) is int for m in fast.modules() if isinstance(m, Op) for s in m._fits for n in s
    )
    program = torch.export.export(fast, (x,))
    close(program.module()(x), fast(x))
    assert "syno" in str(program.graph)


@pytest.mark.filterwarnings("ignore")  # PyTorch's exporter uses what PyTorch deprecates
def test_onnx_export_writes_standard_operations(network: Any, tmp_path: Any) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    fast, x = network
    path = str(tmp_path / "model.onnx")
    torch.onnx.export(fast, (x,), dynamo=True, verbose=False).save(path)
    assert {node.domain for node in onnx.load(path).graph.node} == {""}
    session = runtime.InferenceSession(path)
    (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    close(torch.from_numpy(got), fast(x).detach())
    assert fast(x).requires_grad  # and goes on with its kernels
    free = {"input": {0: torch.export.Dim("batch")}}
    with pytest.raises(Exception, match=r"call torch\.onnx\.export without dynamic_shapes"):
        torch.onnx.export(fast, (x,), dynamo=True, verbose=False, dynamic_shapes=free)


@pytest.mark.parametrize(
    ("text", "sizes", "dynamic"),
    [
        ("y[i,j] = sum[k] a[i,k] * b[k,j]", {"i": 4, "j": 5, "k": 6}, {0: (0, "m"), 1: (1, "n")}),
        ("y[n,h] = sum[r] x[n,h+r-1] * k[r]", {"n": 3, "h": 7, "r": 3}, {0: (0, "n")}),
        ("y[n,h] = sum[r] x[n,2*h+r] * k[r]", {"n": 3, "h": 5, "r": 2}, {0: (0, "n")}),
    ],
)
def test_shapes_of_results_follow_free_extents(text: str, sizes: Any, dynamic: Any) -> None:
    operator = Operator.parse(text, **sizes)
    function = as_function(operator)

    class Call(nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return function(*tensors)

    given = [torch.randn(operator.shapes[name]) for name in operator.inputs]
    free = tuple(
        {dynamic[i][0]: torch.export.Dim(dynamic[i][1], min=2, max=40)} if i in dynamic else None
        for i in range(len(given))
    )
    program = torch.export.export(Call(), tuple(given), dynamic_shapes=(free,))
    for more in (0, 3):
        changed = []
        for i, t in enumerate(given):
            shape = list(t.shape)
            if i in dynamic:
                shape[dynamic[i][0]] += more
            changed.append(torch.randn(shape))
        close(program.module()(*changed), function(*changed))


def test_an_extent_that_is_no_sum_of_the_inputs_becomes_a_number() -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    environment = ShapeEnv()
    from torch._dynamo.source import ConstantSource
    from torch._subclasses import FakeTensorMode

    mode = FakeTensorMode(shape_env=environment)
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.DYNAMIC])
    x = mode.from_tensor(torch.zeros(3, 5), symbolic_context=context, source=ConstantSource("x"))
    product = symbolic_shape(lambda shapes: (shapes[0][0] * shapes[0][1],), [x])
    assert product == (15,) and type(product[0]) is int
    y = mode.from_tensor(torch.zeros(3, 5), symbolic_context=context, source=ConstantSource("y"))
    total = symbolic_shape(lambda shapes: (shapes[0][0] + 2 * shapes[0][1] + 1, 7), [y])
    assert isinstance(total[0], torch.SymInt) and total[0].node.hint == 14 and total[1] == 7
