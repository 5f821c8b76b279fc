"""What a model already learned counts: it is judged as handed in, trainings begin with its weights, and what candidates
must hold is the better of that and the original trained like them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

import syno  # noqa: E402
from syno.cli.main import app  # noqa: E402
from syno.errors import SessionError, TaskError  # noqa: E402
from syno.report import to_html, to_markdown  # noqa: E402
from syno.searching.result import Result  # noqa: E402
from syno.session import Prune, Session  # noqa: E402
from syno.torch import Op  # noqa: E402
from syno.torch import replace as put_operators  # noqa: E402
from syno.training.fitting import fit_operators  # noqa: E402
from syno.training.task import Task  # noqa: E402
from syno.training.train import judge, train  # noqa: E402

Batches = list[tuple[Any, Any]]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.second = nn.Conv1d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        h = torch.relu(self.second(torch.relu(self.norm(self.first(x)))))
        return self.head(h.mean(-1))


def batches(count: int, seed: int) -> Batches:
    """Is there a rising step in the noise? Either class has the same mean."""
    draw = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        x = 0.3 * torch.randn(32, 1, 16, generator=draw)
        y = torch.randint(0, 2, (32,), generator=draw)
        x[:, 0, 5:9] += torch.where(y[:, None] > 0, 1.0, -1.0) * torch.tensor(
            [-1.0, 1.0, 1.0, -1.0]
        )
        found.append((x, y))
    return found


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    torch.manual_seed(0)
    model = Net()
    task = Task(model=lambda: model, train=batches(20, 1), validation=batches(4, 2), epochs=6)
    assert train(task, model).value > 0.95
    return model


def searched(model: nn.Module, directory: Path, **more: Any) -> Result:
    x = batches(1, 3)[0][0][:1]
    found = syno.sites(model, x, repeats=1).where(
        kind="conv1d", predicate=lambda s: s.name == "second"
    )
    options: dict[str, Any] = {
        "budget": 1, "finalists": 1, "final_seeds": 2, "batch_width": 1, "policy": "random", "prune": Prune(),
        "progress": "log", **more,
    }  # fmt: skip
    return syno.search(
        model, x, sites=found, data=(batches(4, 1), batches(4, 2)), session=directory, **options
    )


@pytest.fixture
def no_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "syno.searching.pipeline.compare_finalists", lambda *_: None
    )  # compiles for long


def test_a_trained_model_is_judged_first_and_its_weights_are_where_trainings_begin(
    trained: nn.Module, tmp_path: Path, no_bench: None, capfd: pytest.CaptureFixture[str]
) -> None:
    before = copy.deepcopy(trained.state_dict())
    result = searched(trained, tmp_path / "run", learning_rate=1e-9)
    for name, value in trained.state_dict().items():
        assert torch.equal(value, before[name]), name
    view = result.view
    given = view.given["validation"]
    assert given.value > 0.95 and given.count == 128
    baseline = view.baseline
    assert baseline is not None and baseline.score is not None
    # So short a step leaves what was learned, in the original and around the operator.
    assert baseline.score.value == pytest.approx(given.value, abs=0.02)
    found = result[view.candidates()[0].id].apply(measured=False)
    torch.testing.assert_close(
        found.get_parameter("head.weight"), trained.head.weight, atol=1e-4, rtol=0
    )
    assert view.recipe["begins with"] == "the model's own weights"
    assert "learning rate 1e-09" in view.recipe["optimizer"]
    # It stands wherever the numbers stand.
    said = capfd.readouterr().err
    assert "the model as handed in: accuracy" in said
    assert said.index("as handed in") < said.index("trained")
    assert view.status()["given"]["validation"]["value"] == given.value
    shown = CliRunner().invoke(app, ["status", str(tmp_path / "run")])
    assert "the model as handed in: accuracy" in shown.output
    report = result.report
    assert report.given["test"].value == given.value  # without a test part it is the same
    assert "The model as it was handed in" in to_markdown(report)
    assert "the model as handed in" in to_html(report)
    assert not view.lost_by_training()


def test_a_recipe_that_undoes_the_training_is_named_and_nothing_wins_by_it(
    trained: nn.Module, tmp_path: Path, no_bench: None, capfd: pytest.CaptureFixture[str]
) -> None:
    result = searched(trained, tmp_path / "run", pretrained=False, steps=1, learning_rate=1e-4)
    view = result.view
    assert view.baseline is not None and (view.baseline.value or 1.0) < 0.9
    said = capfd.readouterr().err
    for words in ("as it was handed in", "learning_rate=", "epochs=", "pretrained=True"):
        assert words in view.lost_by_training() and words in said
    assert view.lost_by_training() in view.status()["notes"]
    assert result.best(max_accuracy_drop=0.05) is None
    # The session goes on as it was begun, and says so where something else is asked for.
    again = searched(trained, tmp_path / "run", budget=2, steps=1, learning_rate=1e-4)
    assert again.view.recipe["begins with"] == "weights drawn anew"
    assert "fit" not in again.view.config.evaluator.options
    with pytest.raises(SessionError, match="pretrained=False"):
        searched(trained, tmp_path / "run", pretrained=True)


def test_a_named_task_begins_with_what_its_function_returns(
    trained: nn.Module, tmp_path: Path
) -> None:
    with pytest.raises(TaskError, match="model function"):
        syno.search(
            trained, torch.randn(1, 1, 16), data="digits", pretrained=True, session=tmp_path / "run"
        )


def test_operators_begin_close_to_the_layers_they_replace(trained: nn.Module) -> None:
    task = Task(model=lambda: copy.deepcopy(trained), train=batches(4, 1), validation=batches(1, 2))
    same = "y[n,o,w] = sum[c,r] x[n,c,w+r-1] * k[o,c,r]"
    operator = syno.Operator.parse(same, n=1, o=8, c=8, w=16, r=3)

    def fitted(steps: int = 40) -> tuple[nn.Module, float]:
        torch.manual_seed(5)
        model = put_operators(trained, {"second": operator}, native=False)
        torch.manual_seed(torch.initial_seed() + steps)  # what was drawn before is of no account
        error = fit_operators(model, task.make_model(0), ["second"], task, seed=3, steps=steps)
        return model, error["second"]

    model, error = fitted()
    # The operator can be the layer: hardly anything is left of what random weights miss.
    assert error < 0.05
    assert fitted(1)[1] > 0.5
    again, _ = fitted()
    for name, value in again.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name
    for name, value in model.named_parameters():
        assert value.grad is None
        if not name.startswith("second"):
            assert torch.equal(value, trained.get_parameter(name)), name
    assert judge(task, model, "validation").value > 0.9


def test_an_operator_that_no_fit_improves_keeps_its_values() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4))
    huge = [(torch.full((2, 4), 1e30), torch.zeros(2, dtype=torch.long))]
    task = Task(model=lambda: copy.deepcopy(model), train=huge, validation=huge)
    operator = syno.Operator.parse("y[n,o] = sum[c] x[n,c] * k[o,c]", n=1, o=4, c=4)
    new = put_operators(model, {"0": operator}, native=False)
    assert isinstance(new[0], Op)
    before = copy.deepcopy(new.state_dict())
    fit_operators(new, task.make_model(0), ["0"], task, seed=0, steps=3)
    for name, value in new.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_session_judges_what_was_handed_in_once_whatever_ends_a_run(tmp_path: Path) -> None:
    from session_fakes import Trainer

    from syno.session import Component
    from syno.session.protocols import TrainRequest

    calls: list[int] = []

    def given() -> list[Any]:
        calls.append(len(calls))
        if len(calls) == 1:
            raise KeyboardInterrupt
        request = TrainRequest(
            candidate=0, assignment={}, seed=0, part="validation", threads=1, time_limit_s=1.0
        )
        return [Trainer().evaluate(request, lambda step, **metrics: None)]

    def run(**more: Callable[[], Any]) -> str:
        parts = {"trainer": Trainer}
        from syno.session import InlineExecutor

        with Session.open(
            tmp_path,
            proposer=Component(reference="session_fakes:Climber"),
            evaluator=Component(reference="trainer"),
            parts=parts,
        ) as session:
            executor = InlineExecutor({"trainer": Trainer()})
            return session.run(budget=1, executor=executor, progress="off", **more).why

    assert run(given=given) == "interrupted"
    assert run(given=given) == "budget"
    assert run(given=given) == "budget"
    assert len(calls) == 2
    stored = json.loads((tmp_path / "logs" / "events.jsonl").read_text().splitlines()[0])
    assert stored["what"] == "session created"


TASK = """
import torch
from torch import nn
from syno.training.task import Task

def model():
    with torch.random.fork_rng():  # stands for weights that somebody trained
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Conv1d(8, 32, 3, padding=1), nn.ReLU(), nn.Conv1d(32, 32, 3, padding=1), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 8, 2),
        )

def batches(seed):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(6, 16, 8, 8, generator=draw)
    return [(a, (a[:, 0].mean(-1) > 0).long()) for a in x]

def make():
    return Task(model=model, train=batches, validation=batches(100), metric="loss", learning_rate=0.02)
"""


def test_workers_fit_operators_as_this_process_does(tmp_path: Path) -> None:
    from syno.searching.pipeline import search_task
    from syno.searching.revisit import replay_candidate

    (tmp_path / "own.py").write_text(TASK)
    reference = f"{tmp_path / 'own.py'}:make"
    result = search_task(
        reference, tmp_path / "run", budget=1, finalists=0, batch_width=1, workers=1, groups=1, policy="random",
        prune=Prune(), progress="off",
    )  # fmt: skip
    assert result.view.config.evaluator.options["fit"] > 0
    assert result.view.recipe["begins with"] == "the model's own weights"
    trained = [c for c in result.view.candidates() if c.score is not None]
    assert trained
    again = replay_candidate(tmp_path / "run", trained[0].id, tolerance=0.0, latency_tolerance=1e9)
    (row,) = [row for row in again["rows"] if row["quantity"] == "loss"]
    assert row["same"], row
