"""Timings are medians of turns; contestants that cannot run get a sentence."""

from __future__ import annotations

import itertools
import json
import types

import pytest

torch = pytest.importorskip("torch")

import syno  # noqa: E402
import syno.timing.bench as bench_module  # noqa: E402
from syno.errors import ShapeError  # noqa: E402
from syno.timing.bench import waiting  # noqa: E402


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only where a function says that it took them."""
    now = types.SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(
        bench_module, "time", types.SimpleNamespace(perf_counter=lambda: now.seconds)
    )

    def taking(seconds):
        def work(*_):
            now.seconds += seconds

        return work

    return taking


def test_a_slower_function_is_shown_slower(clock):
    result = syno.bench({"slow": clock(0.004), "fast": clock(0.001)}, 0, turns=5)
    assert result["fast"].speed_up == pytest.approx(4)
    assert result["slow"].speed_up == 1
    assert result["slow"].median_us == pytest.approx(4000)
    assert result["fast"].samples == 5
    assert (result["slow"].calls, result["fast"].calls) == (1, 2)  # a sample takes 2 ms at least


def test_a_disturbance_of_a_whole_turn_changes_no_ratio(clock):
    """Contestants take turns: what slows a turn slows both, and their ratio is taken within it."""
    slow = iter([1, 1, 1, 5, 1, 7, 1, 1, 3] * 2)
    factor = {"now": 1.0}

    def first():
        factor["now"] = next(slow)
        clock(0.004 * factor["now"])()

    timings = bench_module.measure(
        {"a": first, "b": lambda: clock(0.002 * factor["now"])()}, turns=7
    )
    assert timings[1].speed_up == pytest.approx(2) and timings[1].speed_up_iqr == pytest.approx(0)
    assert timings[0].iqr_us > 0


@pytest.mark.parametrize(
    ("how", "untimed"),
    [({"threads": 2}, (15, 60)), ({"threads": 2, "one_pool": True}, (0, 0)), ({}, (0, 0))],
)
def test_other_runtimes_threads_come_to_rest_before_a_sample(clock, how, untimed):
    """They spin for up to 45 ms for a call that may come next; 60 ms of calls go before those that are timed."""
    called = []

    def calling(name, seconds):
        def call():
            called.append(name)
            clock(seconds)()

        return call

    functions = {"a": calling("a", 0.004), "b": calling("b", 0.001)}
    timings = bench_module.measure(functions, turns=3, **how)
    assert [round(timing.median_us) for timing in timings] == [4000, 1000]
    runs = ["".join(run) for _, run in itertools.groupby(called)]
    assert [len(run) for run in runs[4:]] == 3 * [untimed[0] + 1, untimed[1] + 2]


def test_one_alone_has_nothing_to_wait_for(clock):
    calls = []
    bench_module.measure({"a": lambda: calls.append(clock(0.004)())}, turns=3, threads=2)
    assert len(calls) == 5


def test_the_module_is_left_as_it_was_and_runs_without_gradients():
    seen = []

    class Probe(torch.nn.Module):
        def forward(self, x):
            seen.append((self.training, torch.is_grad_enabled(), torch.get_num_threads()))
            return x

    probe = Probe()
    threads = torch.get_num_threads()
    syno.bench({"probe": probe}, torch.zeros(1), turns=3, threads=1)
    assert set(seen) == {(False, False, 1)}
    assert probe.training
    assert torch.get_num_threads() == threads


def test_short_calls_are_repeated_within_a_sample():
    timings = bench_module.measure({"nothing": lambda: None}, turns=3)
    assert timings[0].calls > 100


def test_a_time_limit_ends_the_turns_early(clock):
    timings = bench_module.measure({"s": clock(0.02)}, turns=1000, timeout_s=0.1)
    assert timings[0].samples == 6  # the one under way when the time is up ends
    timings = bench_module.measure({"s": clock(60)}, turns=1000, timeout_s=0.1)
    assert timings[0].samples == 3


def test_a_missing_compiler_is_a_row_with_a_reason(monkeypatch):
    monkeypatch.setattr(bench_module.shutil, "which", lambda _: None)
    model = torch.nn.Linear(2, 2)
    result = syno.bench({"eager": model}, torch.zeros(1, 2), compile="eager", turns=3)
    assert "C++ compiler" in result.skipped["eager, torch.compile"]
    assert "C++ compiler" in repr(result)


def test_results_print_and_serialise():
    result = syno.bench({"a": lambda x: x, "b": lambda x: x}, 0, turns=3)
    assert "speed-up" in repr(result)
    assert "1 thread" in repr(result)
    assert "<td>a</td>" in result._repr_html_()
    assert [t["name"] for t in json.loads(json.dumps(result.to_dict()))["timings"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": {}}, "nothing to time"),
        ({"models": {"a": abs}, "turns": 1}, "at least 3"),
        ({"models": {"a": abs}, "compile": "b"}, "compile='b' is not one of the models: a"),
    ],
)
def test_mistakes_get_a_sentence(arguments, message):
    models = arguments.pop("models")
    with pytest.raises(ShapeError, match=message):
        syno.bench(models, 1, **arguments)


def test_a_gpu_is_waited_for(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append("cuda"))
    elsewhere = types.SimpleNamespace(device=torch.device("cuda", 0))
    called = []
    syno.bench({"a": lambda x: called.append(x)}, elsewhere, turns=3)
    assert called and len(waited) == len(called)
    waiting([elsewhere, torch.zeros(1), 3])()
    assert len(waited) == len(called) + 1
    waiting([torch.zeros(1), torch.zeros(1, device="meta")])()
    assert len(waited) == len(called) + 1


def test_no_model_to_compile_can_be_said_in_every_way():
    model = torch.nn.Linear(2, 2)
    for nothing in (None, (), []):
        assert list(syno.bench({"m": model}, torch.zeros(1, 2), compile=nothing, turns=3)) == ["m"]
    for wrong in (3, [None], True):
        with pytest.raises(ShapeError, match="names no model"):
            syno.bench({"m": model}, torch.zeros(1, 2), compile=wrong, turns=3)
    with pytest.raises(ShapeError, match="threads=0"):
        syno.bench({"m": model}, torch.zeros(1, 2), threads=0, turns=3)


def test_named_arguments_reach_the_models():
    result = syno.bench(
        {"f": lambda a, b: a + b}, torch.zeros(1), named={"b": torch.ones(1)}, turns=3
    )
    assert result["f"].samples == 3
