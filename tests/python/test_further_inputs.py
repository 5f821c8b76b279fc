"""Operators of several data inputs: searched, explained, stored, emitted, compiled and trained from Python."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from typer.testing import CliRunner  # noqa: E402

import syno  # noqa: E402
from syno import _core  # noqa: E402
from syno.cli.main import app  # noqa: E402
from syno.nn import Op  # noqa: E402
from syno.operators.explain import explain  # noqa: E402
from syno.operators.features import features  # noqa: E402
from syno.operators.operator import Operator  # noqa: E402
from syno.policies.derivation import derivation  # noqa: E402

SIZES = {"B": 2, "H": 3, "I": 8, "J": 10, "D": 4, "k": 3, "s": 2}


def dims(text: str) -> list[dict[str, Any]]:
    """``b:B j:s*J`` as a list of dimensions."""
    words = [word.split(":") for word in text.split()]
    return [{"name": name, "extent": extent} for name, extent in words]


def spec(output: str, first: str, second: str, **budgets: Any) -> Any:
    """A spec whose first dimensions are the batch."""
    document = {
        "name": "attention",
        "variables": [
            {"name": n, "kind": "primary" if n.isupper() else "coefficient", "occurrences": o}
            for n, o in zip(SIZES, (0, 1, 1, 1, 4, 1, 2), strict=True)
        ],
        "valuations": [SIZES],
        "output": dims(output),
        "input": dims(first),
        "fixed": [[0, 0]],
        "further_inputs": [{"dims": dims(second), "fixed": [[0, 0]]}],
        "budgets": {
            "max_steps": 4,
            "max_weights": 0,
            "max_reductions": 2,
            "min_weight_params": 1,
            "max_merges": 0,
            "max_shifts": 0,
            "max_unfolds": 1,
            **budgets,
        },
    }
    return _core.Spec.from_json(json.dumps(document))


SCORES = ("b:B h:H i:I j:J", "b:B h:H i:I d:D", "b:B h:H j:J d:D")
POOLED = ("b:B h:H i:I j:J", "b:B h:H i:I d:D", "b:B h:H j:s*J d:D")


def pooled_einsum(x: Any, x2: Any) -> Any:
    return torch.einsum("bhid,bhjrd->bhij", x, x2.unflatten(2, (-1, SIZES["s"])))


CASES = {
    "scores": ("scores", spec(*SCORES), lambda x, x2: torch.einsum("bhid,bhjd->bhij", x, x2)),
    "pooled_scores": ("pooled_scores", spec(*POOLED), pooled_einsum),
    "weighted_values": (
        "scores",
        spec("b:B h:H i:I d:D", "b:B h:H i:I j:J", "b:B h:H j:J d:D"),
        lambda x, x2: torch.einsum("bhij,bhjd->bhid", x, x2),
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Any, Any, Operator, Any]:
    """A spec, the named pGraph, the operator as the search found it, and PyTorch's own."""
    name, where, meaning = CASES[request.param]
    graph = _core.named_operator(name, where)
    for found in _core.enumerate_operators(where, max_steps=4).operators:
        if found.operator_key() == graph.operator_key():
            return where, graph, Operator.from_pgraph(found, 0), meaning
    raise AssertionError(f"{request.param} is not in the space of {where}")


def tensors(op: Operator, dtype: Any, batch: int | None = None) -> list[Any]:
    generator = torch.Generator().manual_seed(4)
    shapes = [op.shapes[name] for name in op.data]
    if batch is not None:
        shapes = [(batch, *shape[1:]) for shape in shapes]
    return [torch.randn(s, generator=generator, dtype=dtype, requires_grad=True) for s in shapes]


def test_the_inputs_are_data_in_order(case: Any) -> None:
    _, graph, op, _ = case
    assert op.data == ["x", "x2"]
    assert op.weights == []
    assert op.params == 0
    assert graph.signature["further"][0]["fixed"] == [(0, 0)]
    assert graph.signature["further"][0]["dims"][0]["name"] == "b"


def test_the_reference_is_pytorchs_own(case: Any) -> None:
    _, _, op, meaning = case
    x, x2 = tensors(op, torch.float64)
    expected = meaning(x, x2).detach().numpy()
    np.testing.assert_allclose(
        op.reference(x.detach().numpy(), x2.detach().numpy()), expected, atol=1e-12
    )


@pytest.mark.parametrize("native", [True, False])
def test_a_module_runs_forward_and_backward_on_both_inputs(case: Any, native: bool) -> None:
    _, _, op, meaning = case
    module = Op(op, native=native)
    assert not list(module.parameters())
    for batch in (None, 5):
        given = tensors(op, torch.float32, batch)
        wanted = [t.detach().double().requires_grad_() for t in given]
        y, expected = module(*given), meaning(*wanted)
        torch.testing.assert_close(y.double(), expected, atol=1e-4, rtol=1e-4)
        cotangent = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
        y.backward(cotangent)
        expected.backward(cotangent.double())
        for ours, theirs in zip(given, wanted, strict=True):
            torch.testing.assert_close(ours.grad.double(), theirs.grad, atol=1e-4, rtol=1e-4)


def test_the_kernel_agrees_with_pytorch(case: Any) -> None:
    _, _, op, meaning = case
    x, x2 = (t.detach() for t in tensors(op, torch.float32))
    y = op.compile()(x.numpy(), x2.numpy())
    np.testing.assert_allclose(y, meaning(x, x2).numpy(), atol=1e-4)


def test_the_emitted_module_takes_both(case: Any) -> None:
    _, _, op, meaning = case
    source = _core.emit_pytorch(op.program)
    assert "def forward(self, x, x2):" in source
    module = op.to_torch().double()
    given = tensors(op, torch.float64)
    torch.testing.assert_close(module(*given), meaning(*given))
    assert "x2" in _core.emit_c(op.program)
    assert "x2" in _core.emit_te(op.program)


def test_a_file_gives_the_operator_back(case: Any, tmp_path: Path) -> None:
    _, graph, op, _ = case
    again = Operator.load(op.save(tmp_path / "op.syno.json"))
    assert again == op
    assert again.pgraph == op.pgraph
    assert again.shapes == op.shapes
    text = graph.text()
    assert _core.PGraph.parse(text) == graph
    assert _core.PGraph.parse(text).text() == text


def test_the_derivation_is_explained(case: Any, tmp_path: Path) -> None:
    where, _, op, _ = case
    way = explain(op, where, neighbours=2)
    assert way.legal
    assert any(step["step"].startswith("data x2 = ") for step in way.steps)
    assert "x2 [" in way.to_svg()
    assert any(term.startswith("x2 share") for term in derivation(op.pgraph))
    (tmp_path / "spec.json").write_text(where.to_json())
    op.save(tmp_path / "op.syno.json")
    result = CliRunner().invoke(
        app, ["explain", str(tmp_path / "op.syno.json"), "--spec", str(tmp_path / "spec.json")]
    )
    assert result.exit_code == 0, result.output
    assert "data x2 = " in result.output
    assert "kept: rules, budgets and distance allow every step" in result.output


def test_features_are_numbers(case: Any) -> None:
    found = dataclasses.asdict(features(case[1]))
    assert all(np.isfinite(value) for value in found.values())
    assert found["weights"] == 0


def test_unordered_dimensions_of_a_further_input_are_the_signatures() -> None:
    where = json.loads(spec(*SCORES).to_json())
    ordered = Operator.from_pgraph(_core.named_operator("scores", spec(*SCORES)), 0)
    where["further_inputs"][0]["dims"][2]["unordered"] = True
    loose = _core.Spec.from_json(json.dumps(where))
    graph = _core.named_operator("scores", loose)
    assert Operator.from_pgraph(graph, 0).canonical_hash != ordered.canonical_hash
    assert Operator.from_pgraph(graph).canonical_hash == graph.operator_key()


def test_a_weight_between_the_inputs_is_a_parameter() -> None:
    where = spec(*SCORES, max_weights=1)
    formula = Operator.parse(
        "y[b,h,i,j] = sum[d,e] x[b,h,i,d] * w1[d,e] * x2[b,h,j,e]",
        weights=["w1"],
        **{n.lower(): SIZES[n] for n in "BHIJD"},
        e=SIZES["D"],
    )
    operators = [
        Operator.from_pgraph(g, 0) for g in _core.enumerate_operators(where, max_steps=4).operators
    ]
    found = [op for op in operators if op.weights and op.params == SIZES["D"] ** 2]
    assert formula in found
    op = found[found.index(formula)]
    module = Op(op)
    assert [name for name, _ in module.named_parameters()] == ["w1"]
    x, x2 = tensors(op, torch.float32)
    module(x, x2).square().sum().backward()
    w = module.get_parameter("w1")
    assert w.grad is not None
    y = op.reference(*(t.detach().numpy() for t in (x, x2, w)))
    np.testing.assert_allclose(module(x, x2).detach().numpy(), y, atol=1e-4)


def test_a_layer_has_one_data_input() -> None:
    op = Operator.from_pgraph(_core.named_operator("scores", spec(*SCORES)), 0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 3, padding=1))
    with pytest.raises(syno.errors.ShapeError, match="2 data inputs"):
        syno.replace(model, {"0": op})


def test_the_named_spec_holds_scores() -> None:
    where = _core.spec_named("attention")
    assert _core.allowed(where, _core.named_operator("scores", where))
    assert _core.Spec.from_json(where.to_json()) == where
    with pytest.raises(_core.SpecError, match="name a further one"):
        _core.named_operator("scores", _core.spec_named("conv"))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"further_inputs": [{"dims": []}]}, _core.SpecError, "needs one that is open"),
        ({"further_inputs": [{"dim": []}]}, _core.FormatError, r"further_inputs\[0\]"),
        (
            {"further_inputs": [{"dims": dims("m:B"), "fixed": [[1, 0]]}]},
            _core.SpecError,
            "which differ",
        ),
        ({"budgets": {"max_weights": 4}}, _core.SpecError, "must lie in 0 to 3"),
    ],
)
def test_bad_further_inputs_are_refused(
    change: dict[str, Any], error: type[Exception], words: str
) -> None:
    document = {**json.loads(spec(*SCORES).to_json()), **change}
    with pytest.raises(error, match=words):
        _core.Spec.from_json(json.dumps(document))
