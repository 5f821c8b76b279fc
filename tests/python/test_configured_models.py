"""Models of `transformers`, small ones from their configurations, through `torch.compile(backend="syno")`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
configured: Any = pytest.importorskip("configured")


@pytest.mark.parametrize("name", configured.MODELS)
def test_a_configured_model_agrees_with_eager(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, inputs = configured.MODELS[name].make(small=True)
    with torch.no_grad():
        wanted = configured.tensors_of(model(**inputs))
        with configured.graphs_compiled() as graphs:
            got = configured.tensors_of(torch.compile(model, backend="syno")(**inputs))
    assert wanted and configured.difference(got, wanted) < 2e-5
    assert graphs, "nothing was compiled"
    for made in graphs:
        assert not isinstance(made, str), f"a graph runs in PyTorch: {made}"
        assert not made.fallbacks
    assert sum(stage.kind == "kernel" for made in graphs for stage in made.stages) >= 4


def test_a_graph_that_runs_in_pytorch_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    from syno.errors import UnsupportedOp
    from syno.graph import backend

    def refuses(*arguments: Any, **settings: Any) -> Any:
        raise UnsupportedOp("[compile] sin_of_all is no function of the table", fix="")

    monkeypatch.setattr(backend, "from_fx", refuses)
    torch._dynamo.reset()
    fast = torch.compile(torch.nn.Linear(3, 2), backend="syno")
    with backend.graphs_compiled() as graphs, torch.no_grad():
        fast(torch.ones(1, 3))
    assert len(graphs) == 1 and isinstance(graphs[0], str) and "sin_of_all" in graphs[0]
    with torch.no_grad():
        fast(torch.ones(1, 3))
    assert len(graphs) == 1, "it is not told any more once it is closed"


def test_differences_and_outputs_are_told() -> None:
    a = torch.tensor([1.0, -2.0])
    assert configured.difference([a + 0.5], [a]) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="not"):
        configured.difference([a], [a.reshape(1, 2)])
    assert len(configured.tensors_of({"x": a, "more": (a, [a]), "none": None})) == 3


def test_the_benchmark_refuses_names_it_has_not() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/configured.py"), "--models", "brt"],
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and "bert" in done.stderr
