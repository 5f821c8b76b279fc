"""Functions of PyTorch inside compiled networks: what they are passed, from however many threads."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import syno
from syno.graph.building import Value
from syno.graph.host import HostCall, Result, Slot, slots


class Pair(NamedTuple):
    """A structure of its own, as some functions take."""

    first: Any
    second: Any


def value_named(name: str) -> Value:
    return Value(name, (2,), "float32")


#: Structures over tensors by name, constants of every kind, and nothing.
LEAVES = st.one_of(
    st.sampled_from(["a", "b", "c"]).map(value_named),
    st.sampled_from([None, 3, 2.5, True, "mean", torch.float64, torch.arange(3), torch.ones(2)]),
)
STRUCTURES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.sampled_from("xyz"), inner, max_size=2),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=8,
)


def filled(structure: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """What a function is to be passed, written plainly."""
    if isinstance(structure, Value):
        return tensors[structure.name]
    if isinstance(structure, Pair):
        return Pair(filled(structure.first, tensors), filled(structure.second, tensors))
    if isinstance(structure, (list, tuple)):
        return type(structure)([filled(each, tensors) for each in structure])
    if isinstance(structure, dict):
        return {name: filled(each, tensors) for name, each in structure.items()}
    return structure


def same(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    return a is b or bool(not isinstance(a, torch.Tensor) and a == b)


@given(
    st.lists(STRUCTURES, max_size=3), st.dictionaries(st.sampled_from("pq"), STRUCTURES, max_size=2)
)
def test_arguments_hold_the_tensors_where_they_stand(
    args: list[Any], named: dict[str, Any]
) -> None:
    got: list[Any] = []
    call = HostCall(lambda *a, **n: got.append((a, n)), *slots((tuple(args), named)))
    for _ in range(2):  # the second time as it was found the first
        tensors = {name: torch.randn(2) for name in "abc"}
        call(*(tensors[value.name] for value in call.values))
        wanted = (filled(tuple(args), tensors), filled(named, tensors))
        assert same(got[-1], wanted)


def test_constant_tensors_are_of_the_type_that_is_asked_for() -> None:
    call = HostCall(lambda a, b, n: (a + b, n), (Slot(value_named("a")), torch.ones(2), 3), {})
    wide, *_ = call(torch.zeros(2, dtype=torch.float64), floats=torch.float64)
    assert wide.dtype == torch.float64


def test_a_call_that_two_arguments_hold_is_made_once() -> None:
    made: list[int] = []

    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made.append(1)
        return x + 1, x + 2

    inner = HostCall(both, (Slot(value_named("a")),), {})
    outer = HostCall(lambda x, y: x * y, (Result(inner, 0), Result(inner, 1)), {})
    torch.testing.assert_close(outer(torch.ones(2)), torch.full((2,), 6.0))
    assert len(made) == 1


class Correlated(nn.Module):
    """Two functions that have no rows, between kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.fft.rfft(x)
        z = torch.fft.irfft(y * torch.conj(y), n=8)
        values, places = z.topk(3)
        return self.linear(z) + values.sum(-1, keepdim=True), places


@pytest.mark.parametrize("threads", [1, 4])
def test_threads_and_inference_mode_do_not_share_tensors(threads: int) -> None:
    torch.manual_seed(0)
    model, example = Correlated().eval(), torch.randn(4, 8)
    with torch.no_grad():
        net = syno.compile(model, example)
        inputs = [torch.randn(4, 8) for _ in range(20)]
        wanted = [model(x) for x in inputs]
    assert "PyTorch" in str(net)
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(12):
            for x, (y, places) in zip(inputs, wanted, strict=True):
                with torch.inference_mode((turn + number) % 3 == 0), torch.no_grad():
                    got, where = net(x)
                if not torch.allclose(got, y, atol=1e-5) or not torch.equal(where, places):
                    wrong.append(number)

    all_threads = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    assert not wrong
