"""Modules that pack their weights once: same results, every change noticed, nothing packed where it may not be."""

from __future__ import annotations

import copy
import pickle
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import written_machine

from syno.errors import ShapeError
from syno.machines.model import fixed_kernels
from syno.operators.operator import Operator

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from syno.torch import Op  # noqa: E402
from syno.torch.layouts import memory_format  # noqa: E402
from syno.torch.packed import KEPT_PACKINGS, PackedWeights  # noqa: E402

CONV = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"
OPERATORS = {
    "conv": (Operator.parse(CONV, n=1, o=24, c=5, h=7, w=6, r=3, s=3), ["k"]),
    "matmul": (Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=3, n=40, k=17), ["w"]),
    "two stages": (
        Operator.parse(
            "t[n,o,h] = sum[c] x[n,c,h] * a[o,c]; y[n,p,h] = sum[o] t[n,o,h] * b[p,o]",
            n=2, o=40, c=24, h=9, p=33,
        ),
        ["a", "b"],
    ),
}  # fmt: skip


@pytest.fixture(params=OPERATORS)
def op(request: Any) -> Iterator[Any]:
    torch.manual_seed(0)
    operator, weights = OPERATORS[request.param]
    assert list(operator.weights) == weights
    with fixed_kernels(written_machine().to_json()):  # which packs the weights, others need not
        yield Op(operator, prepack=True).eval()


def data(op: Any, dtype: Any = torch.float32, seed: int = 1) -> Any:
    torch.manual_seed(seed)
    return torch.randn(op.operator.shapes["x"], dtype=dtype)


def check(op: Any, x: Any) -> None:
    expected = op.function.emitted(
        [x if name == "x" else getattr(op, name) for name in op.operator.inputs]
    )
    with torch.no_grad():
        torch.testing.assert_close(op(x), expected.detach(), rtol=1e-4, atol=1e-4)


def test_packed_weights_compute_the_same(op: Any) -> None:
    x = data(op)
    check(op, x)
    assert op.packed_bytes > 0
    check(op, data(op, seed=2))
    for strange in (x.flip(0), x.transpose(0, 1).contiguous().transpose(0, 1)):
        check(op, strange)
    with torch.inference_mode():
        check(op, data(op))
    op.double()
    check(op, data(op, torch.float64))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda p: p.mul_(-2),
    "one element": lambda p: p.view(-1)[3].add_(5),
    "a view": lambda p: p.view(-1)[:4].zero_(),
    "copied": lambda p: p.copy_(torch.randn_like(p)),
    "other memory": lambda p: setattr(p, "data", torch.randn_like(p)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_weight_is_packed_again(op: Any, change: str) -> None:
    x = data(op)
    with torch.no_grad():
        for parameter in op.parameters():
            before = op(x)
            CHANGES[change](parameter)
            assert not torch.equal(op(x), before)
            check(op, x)


def test_another_parameter_is_packed(op: Any) -> None:
    x = data(op)
    check(op, x)
    for name, parameter in list(op.named_parameters()):
        setattr(op, name, torch.nn.Parameter(torch.randn_like(parameter)))
        check(op, x)
    op.load_state_dict({n: torch.randn_like(p) for n, p in op.named_parameters()})
    check(op, x)
    other = {n: torch.randn_like(p) for n, p in op.named_parameters()}
    with torch.no_grad():
        before = op(x)
        assert not torch.equal(torch.func.functional_call(op, other, x), before)
        assert torch.equal(op(x), before)


def test_sizes_share_what_is_packed_alike() -> None:
    op = Op(OPERATORS["matmul"][0], prepack=True).eval()
    # On a machine that packs for five rows as for three; others need not.
    with fixed_kernels(written_machine().to_json()), torch.no_grad():
        op(torch.randn(3, 17))
        once = op.packed_bytes
        for _ in range(3):
            op(torch.randn(3, 17))
        assert op.packed_bytes == once
        op(torch.randn(5, 17))
        assert op.packed_bytes == once


def test_a_module_keeps_a_bounded_number_of_packed_copies() -> None:
    """Kernels of many shapes may each want the weights in another way."""
    operator = Operator.parse("y[m,n] = sum[k] x[m,k] * w[n,k]", m=2, n=5, k=3)
    weights = PackedWeights(operator)
    w = torch.randn(5, 3)

    class Kernel:
        def __init__(self, number: int) -> None:
            self.packing = str(number)

        def pack(self, **given: Any) -> Any:
            return types.SimpleNamespace(buffers={"w": given["w"].numpy().copy()})

    kernels: list[Any] = [Kernel(i) for i in range(KEPT_PACKINGS + 3)]
    for kernel in kernels:
        weights._packed_for(kernel, [w])
    assert weights.bytes == KEPT_PACKINGS * w.nbytes
    last = weights._packed_for(kernels[-1], [w])
    assert weights._packed_for(kernels[-1], [w]) is last
    assert torch.equal(weights._packed_for(kernels[0], [w])[0], w)


CALLS = st.lists(
    st.tuples(
        st.sampled_from(
            ["same", "contiguous", "channels-last", "sliced", "batch", "wide", "gradient"]
        ),
        st.sampled_from(["kept", "changed", "replaced", "trained"]),
    ),
    min_size=2,
    max_size=8,
)


@given(CALLS)
@settings(max_examples=30, deadline=None)
def test_any_call_may_follow_any_other(calls: Any) -> None:
    torch.manual_seed(0)
    op = Op(OPERATORS["conv"][0], prepack=True).eval()
    shape = op.operator.shapes["x"]
    x = torch.randn(shape)
    for kind, weights in calls:
        with torch.no_grad():
            if weights == "changed":
                op.k.mul_(-1.5)
            elif weights == "replaced":
                op.k = torch.nn.Parameter(torch.randn(op.k.shape))
            elif weights == "trained":
                op.train()
                op.eval()
        op.to(torch.float64 if kind == "wide" else torch.float32)
        x_given = {
            "contiguous": lambda: torch.randn(shape),
            "channels-last": lambda: torch.randn(shape).to(memory_format=torch.channels_last),
            "sliced": lambda: torch.randn(*shape[:3], 2 * shape[3])[..., ::2],
            "batch": lambda: torch.randn(3, *shape[1:]),
            "wide": lambda: torch.randn(shape, dtype=torch.float64),
            "gradient": lambda: torch.randn(shape, requires_grad=True),
        }.get(kind, lambda: x)()
        with torch.set_grad_enabled(kind == "gradient"):
            y = op(x_given)
        expected = torch.nn.functional.conv2d(x_given, op.k, padding=1)
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4, check_stride=False)
        assert y.requires_grad == (kind == "gradient") and y.dtype == x_given.dtype
        followed = torch.empty_like(y, memory_format=memory_format(x_given))
        assert y.stride() == followed.stride()


def test_too_many_data_get_a_sentence() -> None:
    op = Op(OPERATORS["matmul"][0])
    with pytest.raises(ShapeError, match="2 tensors for the data inputs x"):
        op(torch.randn(3, 17), torch.randn(3, 17))


def test_a_parametrised_weight_is_computed_in_every_call() -> None:
    op = Op(OPERATORS["matmul"][0], prepack=True).eval()
    torch.nn.utils.parametrizations.weight_norm(op, "w")
    x = torch.randn(3, 17)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(op(x), x @ op.w.T, rtol=1e-4, atol=1e-4)
            op.parametrizations.w.original0.mul_(2)


def test_training_packs_nothing(op: Any) -> None:
    x = data(op)
    check(op, x)
    op.train()
    assert op.packed_bytes == 0
    op(x).sum().backward()
    assert op.packed_bytes == 0
    assert all(p.grad is not None for p in op.parameters())
    op.eval()
    with torch.no_grad():
        for p in op.parameters():
            p.sub_(0.1 * p.grad)
    check(op, x)
    assert op.packed_bytes > 0


def test_gradients_in_evaluation_mode_are_those_of_the_weights(op: Any) -> None:
    x = data(op).requires_grad_()
    check(op, x)
    grads = torch.autograd.grad(op(x).sum(), [x, *op.parameters()])
    op.prepack = False
    expected = torch.autograd.grad(op(x).sum(), [x, *op.parameters()])
    for got, wanted in zip(grads, expected, strict=True):
        torch.testing.assert_close(got, wanted)


def test_modes_and_exports_see_the_operator() -> None:
    op = Op(OPERATORS["matmul"][0], prepack=True).eval().requires_grad_(False)
    x = data(op)
    check(op, x)
    seen: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Watch():
        op(x)
    assert any(op.function.name in name for name in seen)
    exported = torch.export.export(op, (x,))
    torch.testing.assert_close(exported.module()(x), op(x))


def test_copies_pack_for_themselves(op: Any) -> None:
    x = data(op)
    check(op, x)
    for twin in (copy.deepcopy(op), pickle.loads(pickle.dumps(op)), op.to_aten()):
        assert twin.packed_bytes == 0
    twin = copy.deepcopy(op)
    with torch.no_grad():
        for p in twin.parameters():
            p.zero_()
    check(twin, x)
    check(op, x)


def test_bfloat16_is_packed_as_what_is_computed_with(op: Any) -> None:
    op.to(torch.bfloat16)
    for seed in (1, 2):
        x = data(op, torch.bfloat16, seed)
        with torch.no_grad():
            y = op(x)
            wide = [x if name == "x" else getattr(op, name) for name in op.operator.inputs]
            expected = op.function.emitted([t.double() for t in wide])
            assert y.dtype == torch.bfloat16
            torch.testing.assert_close(y.double(), expected, rtol=2**-8, atol=1e-5)
            op.get_parameter(next(iter(op.operator.weights))).mul_(-0.7)  # packed again
    assert op.packed_bytes > 0


def test_other_dtypes_are_not_packed() -> None:
    op = Op(OPERATORS["matmul"][0], prepack=True).eval().to(torch.float16)
    x = data(op, torch.float16)
    with torch.no_grad():
        torch.testing.assert_close(op(x), (x.float() @ op.w.float().T).half())
    assert op.packed_bytes == 0
    empty = Op(OPERATORS["matmul"][0], prepack=True).eval()
    with torch.no_grad():
        assert empty(torch.randn(0, 17)).shape == (0, 40)


def compiled(model: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(model, backend="aot_eager", fullgraph=True)


def plain(op: Any, x: Any) -> Any:
    tensors = [x if name == "x" else getattr(op, name) for name in op.operator.inputs]
    return op.function.emitted(tensors).detach()


def test_a_compiled_module_packs_its_weights_and_notices_their_changes(op: Any) -> None:
    run, x = compiled(op), data(op)
    weights = list(op.parameters())
    for grad in (False, True):  # none is needed where weights are frozen
        for weight in weights:
            weight.requires_grad_(not grad)
        with torch.set_grad_enabled(grad):
            op._packs = None
            torch.testing.assert_close(run(x), plain(op, x), rtol=1e-4, atol=1e-4)
            assert op.packed_bytes > 0
            held = op._packs
            for weight in weights:
                with torch.no_grad():
                    weight.mul_(2)
                torch.testing.assert_close(run(x), plain(op, x), rtol=1e-4, atol=1e-4)
            weights[0].data = weights[0].data + 1
            torch.testing.assert_close(run(x), plain(op, x), rtol=1e-4, atol=1e-4)
            assert op._packs is held


def test_a_compiled_module_packs_nothing_where_gradients_are_wanted(op: Any) -> None:
    run, x = compiled(op), data(op)
    y = run(x)
    y.sum().backward()
    assert op.packed_bytes == 0
    assert all(weight.grad is not None for weight in op.parameters())
    with torch.no_grad():
        op.train()
        run(x)
        assert op.packed_bytes == 0


def test_compiled_graphs_compute_with_the_weights_they_are_given(op: Any) -> None:
    """Others than the module's, and those of a module that is gone."""
    x = data(op)
    others = {name: torch.randn_like(weight) for name, weight in op.named_parameters()}
    tensors = [x if name == "x" else getattr(op, name) for name in op.operator.inputs]
    swapped = [x if name == "x" else others[name] for name in op.operator.inputs]
    with torch.no_grad():
        run = compiled(lambda x: torch.func.functional_call(op, others, (x,)))
        expected = op.function.emitted(swapped)
        torch.testing.assert_close(run(x), expected, rtol=1e-4, atol=1e-4)
        for given in (tensors, swapped):
            found = op.function.by_owner(given, op._owner)
            torch.testing.assert_close(found, op.function.emitted(given), rtol=1e-4, atol=1e-4)
            gone = op.function.by_owner(given, "nobody")
            torch.testing.assert_close(gone, op.function.emitted(given), rtol=1e-4, atol=1e-4)


def test_copies_of_a_compiled_module_pack_for_themselves(op: Any) -> None:
    x = data(op)
    twins = [copy.deepcopy(op), pickle.loads(pickle.dumps(op))]
    assert len({op._owner, *(twin._owner for twin in twins)}) == 3
    with torch.no_grad():
        for twin in twins:
            next(twin.parameters()).mul_(3)
            torch.testing.assert_close(compiled(twin)(x), plain(twin, x), rtol=1e-4, atol=1e-4)
            assert twin.packed_bytes > 0
            assert op.packed_bytes == 0


def test_an_exported_module_stands_for_itself(op: Any) -> None:
    x = data(op)
    with torch.no_grad():
        program = torch.export.export(op, (x,))
        assert "by_owner" not in str(program.graph)
        torch.testing.assert_close(program.module()(x), plain(op, x), rtol=1e-4, atol=1e-4)
