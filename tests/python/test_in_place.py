"""Concatenations without work: what is joined is written where the whole lies, where that is possible, and nowhere else."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn

import syno
from syno import _core
from syno.errors import FormatError
from syno.graph import bundle, in_place
from syno.graph.compiled import CompiledNetwork
from syno.graph.in_place import joined_in_place

TOLERANCE = 1e-5


class Net(nn.Module):
    """Convolutions to 8 channels, and what a test makes of them."""

    def __init__(self, made: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        # Not alike: layers of one input that are would become one.
        self.a, self.b, self.c = (nn.Conv2d(3, 8, 3, padding=n, dilation=n) for n in (1, 2, 3))
        self.made = made

    def forward(self, x: Tensor) -> Any:
        return self.made(self, x)


def compiled(made: Callable[[Any, Tensor], Any], batch: int = 1, **options: Any) -> CompiledNetwork:
    """Compiled and compared with eager."""
    torch.manual_seed(0)
    model, x = Net(made).eval(), torch.randn(batch, 3, 24, 24)
    fast = syno.compile(model, x, **options)
    with torch.no_grad():
        wanted, got = model(x), fast(x)
    for one, other in zip(_several(wanted), _several(got), strict=True):
        assert (one - other).abs().max() <= TOLERANCE * one.abs().max()
    network = fast.network
    assert isinstance(network, CompiledNetwork)
    return network


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def joins(network: CompiledNetwork) -> list[Any]:
    return [stage for stage in network.stages if stage.kind == "view" and len(stage.inputs) > 1]


def test_parts_are_written_into_the_whole() -> None:
    network = compiled(lambda m, x: torch.cat([m.a(x), m.b(x), m.c(x).relu()], 1).relu())
    (join,) = joins(network)
    places = network.storage.places
    whole = places[join.outputs[0]]
    assert [places[name].at - whole.at for name in join.inputs] == [0, 4 * 8 * 576, 4 * 16 * 576]
    assert len([stage for stage in network.stages if stage.kind == "kernel"]) == 4
    assert network.arena_bytes == network.live_bytes == 4 * 24 * 576
    assert "view" in str(network)


def test_parts_of_parts_and_parts_of_several_wholes_have_one_place() -> None:
    def nested(m: Any, x: Tensor) -> Tensor:
        inner = torch.cat([m.a(x), m.b(x)], 1)
        return torch.cat([inner, m.c(x)], 1).relu() + torch.cat([inner, inner], 1)[:, :24].exp()

    def growing(m: Any, x: Tensor) -> Tensor:
        a, b = m.a(x), m.b(x)
        one = torch.cat([a, b], 1)
        c = m.c(one[:, 5:8])
        return torch.cat([a, b, c], 1).relu().sum(1) + one.exp().sum(1)

    for made in (nested, growing):
        network = compiled(made)
        found = joins(network)
        assert len(found) == 2
        places = network.storage.places
        assert places[found[0].outputs[0]].at == places[found[1].outputs[0]].at


@pytest.mark.parametrize(
    "made",
    [
        lambda m, x: torch.cat([m.a(x), m.b(x)], 2).relu(),  # rows of one between rows of the other
        lambda m, x: torch.cat([m.a(x), m.b(x)], 1),  # the caller's memory
        lambda m, x: torch.cat([x, m.b(x)], 1).relu(),  # in the caller's memory already
        lambda m, x: (lambda a: torch.cat([a, a], 1).exp())(m.a(x)),  # at two places
        lambda m, x: torch.cat([m.a(x)[:, :, :, 1:], m.b(x)[:, :, :, 1:]], 1).exp(),  # would be copied for it
        lambda m, x: torch.cat([m.a(x)[0].sum(1), m.b(x)[0].sum(1)], 0).exp(),  # little
        # behind another's vectors: 4 * 577 bytes
        lambda m, x: torch.cat([m.a(x).flatten().cumsum(0)[: 8 * 576 - 7].exp().sin(), m.b(x).flatten().exp()]).exp(),
    ],
)  # fmt: skip
def test_what_cannot_lie_so_is_computed(made: Callable[[Any, Tensor], Any]) -> None:
    assert joins(compiled(made)) == []


def test_a_batch_lies_part_by_part() -> None:
    assert joins(compiled(lambda m, x: torch.cat([m.a(x), m.b(x)], 1).relu(), batch=2)) == []
    assert len(joins(compiled(lambda m, x: torch.cat([m.a(x), m.b(x)], 0).relu(), batch=2))) == 1


def test_a_part_has_one_place_only() -> None:
    def twice(m: Any, x: Tensor) -> Tensor:
        a, b = m.a(x), m.b(x)
        return torch.cat([a, b], 1).relu() + torch.cat([b, a], 1).exp()

    def behind(m: Any, x: Tensor) -> Tensor:
        a, b, c = m.a(x), m.b(x), m.c(x)
        return torch.cat([a, b], 1).relu() + torch.cat([a, c], 1).exp()

    for made in (twice, behind):
        assert len(joins(compiled(made))) == 1


def test_a_part_that_is_an_output_stays_the_callers() -> None:
    def outputs(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        a = m.a(x)
        return a, torch.cat([a, m.b(x)], 1).relu()

    assert joins(compiled(outputs)) == []


def test_views_of_parts_and_of_wholes() -> None:
    def views(m: Any, x: Tensor) -> Tensor:
        whole = torch.cat([m.a(x).flatten(2), m.b(x).flatten(2)], 1)
        return whole.reshape(1, 16, 24, 24).exp() + m.c(x).repeat(1, 2, 1, 1)

    assert len(joins(compiled(views))) == 1


def test_other_layouts_convert_it() -> None:
    made = compiled(lambda m, x: torch.cat([m.a(x), m.b(x)], 1).relu(), layouts="channels-last")
    assert joins(made) == []


def test_on_several_threads_and_again() -> None:
    network = compiled(lambda m, x: torch.cat([m.a(x), m.b(x)], 1).relu(), threads=2)
    assert len(joins(network)) == 1
    x = torch.randn(1, 3, 24, 24)
    first = network(x)
    network(torch.randn(1, 3, 24, 24))
    assert torch.equal(network(x), first)


def test_bundles_hold_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Net(lambda m, x: torch.cat([m.a(x), m.b(x), m.c(x)], 1).relu()).eval()
    x = torch.randn(1, 3, 24, 24)
    fast = syno.compile(model, x)
    path = syno.export(fast, tmp_path / "net.syno", example=x)
    read = syno.load(tmp_path / "net.syno")
    assert torch.equal(read(x), fast(x)), path
    assert read.verify()
    # A part that nobody writes is found before anything runs.
    file = tmp_path / "net.syno" / bundle.MANIFEST
    manifest = msgspec.json.decode(file.read_bytes(), type=bundle.Manifest)
    steps = [step for number, step in enumerate(manifest.steps) if number != 1]
    changed = msgspec.structs.replace(manifest, steps=steps)
    file.write_bytes(msgspec.json.encode(changed.sealed()))
    with pytest.raises(FormatError, match="which is not there then"):
        syno.load(tmp_path / "net.syno")


def test_any_network_of_wholes_and_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random ones, whose tensors lie so wherever that is possible, compute what they did."""
    monkeypatch.setattr(in_place, "_LEAST_BYTES", 0)
    draw = random.Random(5)
    found = 0
    for _ in range(8):
        plan = [
            (draw.choice(("exp", "cat", "cat", "add", "slice")), draw.random(), draw.random(), draw.random())
            for _ in range(9)
        ]  # fmt: skip

        class Drawn(nn.Module):
            def __init__(self, plan: Any) -> None:
                super().__init__()
                self.plan = plan

            def forward(self, x: Tensor) -> Tensor:
                made = [x.sigmoid(), x.tanh()]
                for kind, *shares in self.plan:
                    some = [made[int(share * len(made))] for share in shares]
                    if kind == "exp":
                        made.append(some[0].sin())
                    elif kind == "cat":
                        made.append(torch.cat(some[: 2 + int(3 * shares[0]) % 2], 1))
                    elif kind == "add":
                        least = min(each.shape[1] for each in some)
                        made.append(some[0][:, :least] + some[1][:, -least:])
                    else:
                        made.append(some[0][:, some[0].shape[1] // 3 :])
                return torch.stack([each.sum((1, 2, 3)) for each in made]) + made[-1].mean()

        x = torch.randn(1, 4, 4, 4)
        fast = syno.compile(Drawn(plan), x)
        assert (fast(x) - Drawn(plan)(x)).abs().max() < 1e-4
        found += len(joins(fast.network))
    assert found > 6


def test_no_other_program_is_taken_for_one() -> None:
    shapes = {"a": (3, 4), "b": (5, 4)}

    def parts(text: str) -> list[int]:
        program = syno.Operator.parse(text, shapes=shapes).program
        graph = _core.Graph("g")
        for name in program.inputs:
            graph.add_input(name, list(shapes[name]), "float32")
        graph.add_program("n", program, list(program.inputs), ["y"])
        assert joined_in_place(graph).nodes == {}  # parts that are inputs
        return list(graph.joined_parts("n"))

    assert parts("y[i: 8, j: 4] = select(i < 3, a[i, j], b[i - 3, j])") == [0, 12]
    assert parts("y[i: 8, j: 4] = select(i < 5, b[i, j], a[i - 5, j])") == [0, 20]
    for text in (
        "y[i: 8, j: 4] = select(i < 4, a[i, j], b[i - 3, j])",
        "y[i: 8, j: 4] = select(i < 3, a[i, j], b[i - 2, j])",
        "y[i: 8, j: 4] = select(i < 3, a[i, 3 - j], b[i - 3, j])",
        "y[i: 8, j: 4] = select(i < 3, b[i, j], a[i - 3, j])",
        "y[i: 8, j: 4] = select(i < 3, a[i, j], 2 * b[i - 3, j])",
        "y[i: 7, j: 4] = select(i < 3, a[i, j], b[i - 3, j])",
        "y[i: 8, j: 4] = select(j < 3, a[i, j], b[i - 3, j])",
        "y[i: 3, j: 4] = a[i, j] + b[i, j]",
    ):
        assert parts(text) == [], text
