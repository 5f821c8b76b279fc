"""The same seed and machine file search the same, whatever clocks say, however many work, whenever they are killed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import drawing_task
import noisy_task
import pytest
import torch
from session_fakes import Clock
from test_kills import kill, progress
from test_session import run, start
from torch import nn

import syno
from syno import _core
from syno.errors import SessionError, UnknownName
from syno.machines.model import machine_model
from syno.searching.network import _dtype
from syno.session import (
    Component,
    Limits,
    ProcessExecutor,
    Prune,
    RecordedMeasurer,
    Session,
    open_view,
)
from syno.session.config import read_config
from syno.timing.predicting import Predictor, layer_operator

NOISE: dict[str, Any] = {"jitter": 400.0}


def decisions(view: Any) -> list[tuple[Any, ...]]:
    """What was proposed, pruned, told and chosen; to the digit."""
    rows: list[tuple[Any, ...]] = []
    for c in [view.baseline, *view.candidates()]:
        score = c.score and (c.score.value, c.score.steps)
        rows.append((c.id, c.key, c.batch, c.ticket, c.state, c.reason, c.why, c.reward, score))
        rows.append((c.predicted_us, c.flops, c.params, view.curve(c)))
    rows.append(tuple((s["name"], s["chosen"]) for s in view.status()["stages"]))
    return rows


# --- decisions of sessions


def session(path: Path, **options: Any) -> Session:
    stages = [
        syno.session.Stage(name=name, proposer=Component(reference="session_fakes:Climber"))
        for name in ("first", "second")
    ]
    settings: dict[str, Any] = {
        "stages": stages,
        "proposer": None,
        "clock": NOISE,
        "predicted_on": "2.0",
        "prune": Prune(max_latency_ratio=1.1, keep=0.5, after=3),
        **options,
    }
    return start(path, **settings)


def test_noise_decides_nothing_but_the_finalists(tmp_path: Path) -> None:
    found = []
    for number in range(3):
        with session(tmp_path / str(number)) as one:
            run(one, budget=24, finalists=2, final_seeds=1)
            found.append(decisions(one))
            assert one.repeatable == one.status()["repeatable"] == "from seed and machine file"
            latencies = {c.latency_us for c in one.candidates() if c.latency_us is not None}
            assert len(latencies) > 8, "they were timed all the same"
            pruned = [c for c in one.candidates() if "latency" in c.reason]
            assert pruned and not any(c.measured for c in pruned), "nobody waits for their clocks"
    assert found[0] == found[1] == found[2]


def test_with_measured_latencies_the_same_noise_does_decide(tmp_path: Path) -> None:
    """The tests above and below would notice."""
    found = []
    for number in range(2):
        with session(tmp_path / str(number), predicted_on=None) as one:
            run(one, budget=24)
            assert one.repeatable == "from its record only"
            found.append([row[1] for row in decisions(one)])
    assert found[0] != found[1]


def test_any_number_of_workers_and_any_interruption_decide_the_same(tmp_path: Path) -> None:
    with session(tmp_path / "whole") as one:
        run(one, budget=16, finalists=1, final_seeds=1)
        expected = decisions(one)
    for workers in (1, 2, 4):
        with session(tmp_path / str(workers)) as one, ProcessExecutor(workers) as executor:
            run(one, budget=16, finalists=1, final_seeds=1, executor=executor)
            assert decisions(one) == expected
    seed = random.randrange(1 << 32)
    print("seed", seed)  # of this test: shown when it fails
    draw = random.Random(seed)

    def interrupt(what: str, candidate: Any, view: Any) -> None:
        if draw.random() < 0.1:
            raise KeyboardInterrupt

    interrupted = True
    while interrupted:
        with session(tmp_path / "pieces") as one:
            summary = run(one, budget=16, finalists=1, final_seeds=1, callbacks=[interrupt])
            interrupted = summary.interrupted
            if not interrupted:
                assert decisions(one) == expected


def test_the_machine_file_is_the_sessions_wherever_it_goes_on(tmp_path: Path) -> None:
    with session(tmp_path / "moved") as one:
        run(one, budget=8)
    assert read_config(tmp_path / "moved" / "session.toml").predicted_on == "2.0"
    with session(tmp_path / "moved", predicted_on=None) as one:  # left out: as it was
        run(one, budget=16)
        moved = decisions(one)
    with pytest.raises(SessionError, match="predicted_on"):
        session(tmp_path / "moved", predicted_on="3.0")
    with session(tmp_path / "stayed") as one:
        run(one, budget=8)
        run(one, budget=16)
        assert decisions(one) == moved
        predicted = [c.predicted_us for c in one.candidates()]
        assert all(us is not None and us >= 20 for us in predicted), "by that machine"


class Curious:
    """A reward that would read everything there is."""

    seen: list[Any]

    def __init__(self) -> None:
        self.seen = []

    def __call__(self, candidate: Any, baseline: Any) -> float:
        self.seen += [candidate, baseline]
        return 1.0 / (candidate.latency_us or 1.0)


def test_a_reward_sees_no_clock_before_finalists_are_chosen(tmp_path: Path) -> None:
    curious = Curious()
    with session(tmp_path, reward="curious", parts={"curious": lambda: curious}) as one:
        run(one, budget=8)
        assert curious.seen
        for c in curious.seen:
            assert c.latency_us == c.predicted_us
            assert (c.timings, c.notes, c.started, c.ended) == ([], [], None, None)
            assert c.latency_iqr_us is None and c.op_latency_us is None
            assert c.score is None or c.score.seconds == c.score.examples_per_s == 0
        curious.seen.clear()
        run(one, budget=8, finalists=1, final_seeds=1)
        assert any(c.timings for c in curious.seen), "measured latencies choose the finalists"


def test_a_finalist_holds_its_limits_as_measured(tmp_path: Path) -> None:
    """Predicted at half its time, an operator is trained; as slow as it is, it is no finalist."""
    prune = Prune(max_latency_ratio=1.1, after=1_000)
    optimist = {"clock": {}, "measurer": Component(reference="test_repeatable:Optimist")}
    with session(tmp_path, prune=prune, **optimist) as one:
        run(one, budget=40, finalists=3, final_seeds=1)
        slow = [c for c in one.candidates() if c.state == "done" and c.latency_us > 1.1 * 40]
        assert slow, "predictions let some pass"
        assert len(one.finalists) == 3
        assert not {c.number for c in slow} & set(one.finalists)


class Optimist(Clock):
    """Predicts that everything but the original is fast."""

    def predict(self, request: Any) -> Any:
        found = super().predict(request)
        half = 0.5 if request.assignment else 1.0
        return type(found)(latency_us=half * found.latency_us, flops=found.flops)


def test_what_cannot_be_timed_in_time_is_trained_all_the_same(tmp_path: Path) -> None:
    limits = Limits(workers=1, train_limit_s=60, measure_limit_s=0.3, start_limit_s=600, retries=0)
    for name, clock in (("busy", {"hang": [30]}), ("idle", {})):
        with (
            session(tmp_path / name, clock=clock, limits=limits, batch_width=2) as one,
            ProcessExecutor(1) as executor,
        ):
            run(one, budget=4, executor=executor)
    with open_view(tmp_path / "busy") as busy, open_view(tmp_path / "idle") as idle:
        assert [c.measured for c in busy.candidates()] != [c.measured for c in idle.candidates()]
        assert decisions(busy) == decisions(idle)
        assert any("is not timed" in event["what"] for event in busy.events(1_000))


def test_a_record_repeats_predictions_too(tmp_path: Path) -> None:
    with session(tmp_path / "first") as one:
        run(one, budget=12)
        expected = decisions(one)
    recorded = Component(
        reference="syno.session:RecordedMeasurer", options={"session": str(tmp_path / "first")}
    )
    with session(tmp_path / "again", measurer=recorded, predicted_on="7.0") as one:
        run(one, budget=12)
        assert decisions(one) == expected
    assert isinstance(RecordedMeasurer(str(tmp_path / "first")), RecordedMeasurer)


def test_predictions_need_somebody_who_predicts(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="predicted_on without a measurer"):
        start(tmp_path, measurer=None, predicted_on="2.0")


# --- predictions of networks


class Net(nn.Module):
    """Layers of every kind, and much beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.grouped = nn.Conv2d(8, 16, (3, 5), padding=(1, 2), groups=4, bias=False)
        self.dilated = nn.Conv2d(16, 16, 3, padding=2, dilation=2)
        self.line = nn.Conv1d(16, 8, 2, stride=2)
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = self.dilated(torch.relu(self.grouped(x)))
        x = self.line(x.flatten(2))
        return self.head(x.transpose(1, 2)).softmax(-1).mean(1)


def predictor(machine: Any = None, threads: int = 1) -> tuple[Any, Predictor]:
    model, x = Net().eval(), torch.randn(2, 3, 16, 16)
    sites = syno.sites(model, x, repeats=1)
    made = Predictor(model, x, sites, machine or machine_model(), threads=threads, dtype=_dtype)
    return sites, made


def test_a_layer_is_predicted_as_what_it_computes() -> None:
    sites, _ = predictor()
    model = Net().eval()
    assert len(sites) == 5
    for site in sites:
        layer = model.get_submodule(site.name)
        for call in site.calls:
            operator = layer_operator(site, call)
            x = torch.randn(call.input)
            given = {"x": x.reshape(operator.shapes["x"]), "w": layer.weight.detach()}
            computed = operator.reference(*(given[name].numpy() for name in operator.inputs))
            wanted = layer(x).detach()
            if layer.bias is not None:
                axes = wanted.ndim - 2 if site.kind != "linear" else 0
                wanted -= layer.bias.detach().reshape(-1, *[1] * axes)
            found = torch.from_numpy(computed).float().reshape(wanted.shape)
            assert torch.allclose(found, wanted, atol=1e-5)
            assert operator.flops * call.count == site.flops


def test_a_network_is_predicted_as_the_sum_of_its_parts() -> None:
    sites, made = predictor()
    whole = made.latency_us({})
    assert whole > made._others_us > 0
    group = max(sites.groups(), key=lambda group: group.flops)
    spec = _core.Spec.from_json(group.to_json(min_flops_ratio=0.01, max_steps=5))
    graph = _core.enumerate_operators(spec, max_steps=5).operators[0]
    operator = syno.Operator.from_pgraph(graph)
    names = [site.name for site in group.sites]
    one = made.latency_us(dict.fromkeys(names, operator))
    assert one != whole
    again = predictor()[1].latency_us(dict.fromkeys(names, operator))
    assert again == one


def test_predictions_follow_from_the_machine_file_alone(monkeypatch: Any) -> None:
    draw = random.Random(5)
    machines = [noisy_task.machine(draw) for _ in range(3)]
    there = [predictor(machine)[1].latency_us({}) for machine in machines]
    assert len(set(there)) == 3
    for cpu in ("generic", "x86-64-v2"):  # another machine that has the file
        monkeypatch.setenv("SYNO_CPU", cpu)
        assert [predictor(machine)[1].latency_us({}) for machine in machines] == there


# --- whole searches

SCRIPT = """
import sys
from pathlib import Path
from test_repeatable import search
search(Path(sys.argv[1]), int(sys.argv[2]))
print("ended", flush=True)
"""


def search(path: Path, workers: int, **options: Any) -> None:
    task = drawing_task.make()
    syno.search(
        task.make_model(0),
        task.example(1),
        data=f"{noisy_task.__file__}:make",
        session=path,
        budget=6,
        batch_width=2,
        workers=workers,
        finalists=0,
        policy="mcts",  # no enumeration: seconds less
        min_flops_ratio=0.05,
        max_steps=6,
        progress="off",
        **options,
    )


def started(path: Path, workers: int) -> subprocess.Popen[str]:
    folders = [str(Path(__file__).parent), *filter(None, sys.path)]
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), str(workers)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(folders),
            "TEST_NOISE": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.mark.timeout(1_200)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to find the workers")
def test_whole_searches_under_noise_and_kills_propose_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "machine.json"
    file.write_text(noisy_task.machine(random.Random(1)).to_json())
    monkeypatch.setenv("SYNO_MACHINE", str(file))
    whole = started(tmp_path / "whole", 1)
    assert "ended" in whole.communicate()[0]
    with open_view(tmp_path / "whole") as view:
        expected = decisions(view)
        assert sum(c.state == "done" for c in view.candidates()) >= 3
    points = progress(tmp_path / "whole")
    seed = random.randrange(1 << 32)
    print("seed", seed)  # of this test: shown when it fails
    draw = random.Random(seed)
    path = tmp_path / "killed"
    for workers in (2, 4):
        process = started(path, workers)
        moment = draw.randrange(1, points)
        while process.poll() is None and (workers == 4 or progress(path) < moment):
            time.sleep(0.02)
        if process.poll() is None:
            kill(process, draw)
        else:
            out, _ = process.communicate()
            assert "ended" in out, out
        file.write_text(noisy_task.machine(draw).to_json())  # it goes on elsewhere
    with open_view(path) as view:
        assert decisions(view) == expected


def test_a_search_goes_by_what_it_was_begun_with(tmp_path: Path) -> None:
    from syno.searching.continuing import predicted_on

    with pytest.raises(UnknownName, match="predicted"):
        predicted_on(tmp_path, "guessed", None)
    assert predicted_on(tmp_path, "measured", None) is None
    assert predicted_on(tmp_path, None, "file") == "file"
    for kept, other in (("5.0", "measured"), (None, "predicted")):
        path = tmp_path / str(kept)
        session(path, predicted_on=kept).close()
        assert predicted_on(path, None, "another") == kept
        with pytest.raises(SessionError, match="was begun with latency="):
            predicted_on(path, other, None)
