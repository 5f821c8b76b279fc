"""Where trainings run: a device that is not there is refused before work starts, "auto" goes on with the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")

import syno  # noqa: E402
from syno.cli.main import app  # noqa: E402
from syno.errors import TaskError, UnknownName  # noqa: E402
from syno.gpu import no_cuda, usable_device  # noqa: E402
from syno.searching.network import NetworkEvaluator  # noqa: E402
from syno.session.worker import perform  # noqa: E402
from syno.training.checkpoint import Checkpoint  # noqa: E402
from syno.training.task import Task  # noqa: E402
from syno.training.tasks import TASKS  # noqa: E402
from syno.training.train import judge, train  # noqa: E402

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
SENTENCE = r"no CUDA device: torch .*\n  fix: train on the CPU with device='cpu'"


def made(**changes: Any) -> Task:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 3, 8, 8, generator=generator)
    batches = [(x[i : i + 16], (x[i : i + 16, 0].sum((1, 2)) > 0).long()) for i in range(0, 64, 16)]
    return Task(
        model=lambda: torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 2)
        ),
        train=batches,
        validation=batches,
        **{"epochs": 2, **changes},
    )


@without_cuda
def test_a_device_that_is_not_there_is_refused_before_work_starts(tmp_path: Path) -> None:
    assert no_cuda()
    for device in ("cuda", "cuda:0", "cuda:7"):
        task = made(device=device)
        with pytest.raises(TaskError, match=SENTENCE):
            train(task)
        with pytest.raises(TaskError, match=SENTENCE):
            judge(task, task.make_model(0), "validation")
        with pytest.raises(TaskError, match=SENTENCE):
            syno.search(
                task.make_model(0), torch.zeros(1, 3, 8, 8), budget=1, session=tmp_path / "run",
                data=(task.train, task.validation), device=device,
            )  # fmt: skip
        command = ["search", "digits", "-o", str(tmp_path / "run"), "-O", f"device={device}"]
        refused = CliRunner().invoke(app, command)
        assert refused.exit_code == 1 and "no CUDA device" in " ".join(refused.output.split())
        assert not list(tmp_path.iterdir())
    assert "built without CUDA" in no_cuda() or "driver" in no_cuda()


@without_cuda
def test_machines_that_train_are_asked_for_the_device() -> None:
    evaluator = NetworkEvaluator(made(device="cuda"), stages={})
    with pytest.raises(TaskError, match=SENTENCE):
        perform(evaluator, "check", None, lambda: None)
    assert perform(NetworkEvaluator(made(), stages={}), "check", None, lambda: None) is None


@without_cuda
def test_auto_goes_on_with_the_cpu_to_the_same_digits() -> None:
    assert usable_device("auto") == "cpu" and made(device="auto").here().device == "cpu"
    assert made().here() is not None and "device" not in made().recipe()
    assert made(device="auto").recipe()["device"] == "auto"
    assert train(made(device="auto")).value == train(made()).value


@pytest.mark.parametrize("device", ["gpu?", "", "cuda:", "cuda:x", "CUDA"])
def test_what_is_no_device_is_said(device: str) -> None:
    with pytest.raises(TaskError, match="auto"):
        made(device=device)


def test_devices_that_torch_does_not_know_are_said() -> None:
    with pytest.raises(TaskError, match="is no torch device"):
        usable_device("tape")


def test_built_in_tasks_take_a_device() -> None:
    import inspect

    assert all("device" in inspect.signature(make).parameters for make in TASKS.values())


def test_autocast_computes_in_what_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[torch.dtype] = set()
    kinds = {}
    for autocast in (None, "bfloat16", "float16"):
        task = made(autocast=autocast)
        model = task.make_model(0)
        model[0].register_forward_hook(lambda m, given, out: seen.add(out.dtype))
        result = train(task, model)
        assert result.state == "done" and model[0].weight.dtype == torch.float32
        kinds[autocast] = set(seen)
        seen.clear()
    assert kinds == {
        None: {torch.float32},
        "bfloat16": {torch.bfloat16},
        "float16": {torch.float16},
    }
    assert made(autocast="bfloat16").recipe()["autocast"] == "bfloat16"
    with pytest.raises(UnknownName, match="bfloat16, float16"):
        made(autocast="float32")


def test_scaled_gradients_go_on_from_a_checkpoint_to_the_same_digits(tmp_path: Path) -> None:
    task = made(autocast="float16", epochs=3)
    whole = train(task)

    class Stopped(Exception):
        pass

    def stop(step: int, **metrics: float) -> None:
        if step > 6:
            raise Stopped

    kept = Checkpoint(tmp_path / "c", ["key"], 0.0)
    with pytest.raises(Stopped):
        train(task, checkpoint=kept, report=stop)
    again = train(task, checkpoint=Checkpoint(tmp_path / "c", ["key"], 0.0))
    assert again.value == whole.value and again.metrics == whole.metrics


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("autocast", [None, "bfloat16", "float16"])
def test_trainings_on_the_device(autocast: str | None) -> None:
    task = made(device="cuda", autocast=autocast, channels_last=True)
    assert train(task).state == "done"
