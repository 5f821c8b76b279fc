"""The joint search of layouts and loops: seeded, resumed, interrupted, with times that are made up; what it keeps is used."""

from __future__ import annotations

import builtins
import hashlib
import json
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import syno
from syno import _core
from syno.cli.main import app
from syno.errors import ArgumentError, KernelError, ScheduleError, UnknownName
from syno.kernels.prepack import prepacked
from syno.tuning.layouts.instance import Instance
from syno.tuning.layouts.proposals import LearnedProposer, RandomProposer
from syno.tuning.layouts.result import LaidTuned
from syno.tuning.layouts.search import Layouts
from syno.tuning.layouts.template import Template
from syno.tuning.records import Record, RecordStore, make_record

CONVOLUTION = "y[n,o,h] = sum[c,r] x[n,c,h+r-1] * k[o,c,r]"


def convolution(text: str = CONVOLUTION, h: int = 12) -> syno.Operator:
    names = {name: size for name, size in zip("nochr", (1, 16, 8, h, 3), strict=True)}
    if text != CONVOLUTION:
        names = {name: size for name, size in zip("abdef", (1, 16, 8, h, 3), strict=True)}
    return syno.Operator.parse(text, **names)


class MadeUp:
    """Times that follow from the schedule alone: tensors that lie in tiles are faster, by how large `o` is."""

    width = 1

    def __init__(self, stop_after: int = 10**9, laid_factor: float = 0.4) -> None:
        self.calls: list[str] = []
        self.stop_after, self.laid_factor = stop_after, laid_factor

    def us(self, schedule: _core.Schedule) -> float:
        text = str(schedule.text())
        noise = int(hashlib.blake2b(text.encode(), digest_size=4).hexdigest(), 16) / 2**32
        return (100 + 50 * noise) * (self.laid_factor if "lay_out" in text else 1)

    def measure(
        self,
        program: _core.Program,
        schedules: Sequence[_core.Schedule],
        options: _core.MeasureOptions,
    ) -> list[Record]:
        made = []
        for schedule in schedules:
            if len(self.calls) == self.stop_after:
                raise KeyboardInterrupt
            text = str(schedule.text())
            self.calls.append(text)
            us = self.us(schedule)
            measured: Any = types.SimpleNamespace(
                outcome="ok", reason="", median_s=us * 1e-6, q1_s=us * 1e-6, q3_s=us * 1e-6, samples=3, compile_ms=1.0,
                spills=0, note="",
            )  # fmt: skip
            made.append(make_record(program, schedule, measured, threads=options.threads))
        return made

    def compare(
        self,
        program: _core.Program,
        one: _core.Schedule,
        other: _core.Schedule,
        options: _core.MeasureOptions,
    ) -> float:
        return self.us(one) / self.us(other)


def search(
    bench: Any, how: Layouts, operator: syno.Operator | None = None, **options: Any
) -> LaidTuned:
    common: dict[str, Any] = {
        "trials": 12,
        "batch": 4,
        "model": "linear",
        "keep": False,
        "progress": "off",
    }
    found = syno.tune(
        operator or convolution(), layouts=how, executor=bench, **{**common, **options}
    )
    assert isinstance(found, LaidTuned)
    return found


RANDOM = Layouts(proposals="random", episode=4)


@pytest.fixture(params=["random", "ppo"])
def how(request: pytest.FixtureRequest) -> Layouts:
    if request.param == "ppo":
        pytest.importorskip("torch")
    return Layouts(proposals=request.param, episode=4)


def without_clock(found: LaidTuned) -> dict[str, Any]:
    made = found.to_dict()
    del made["seconds"], made["measured"]
    return made


def test_layouts_that_are_faster_are_found_and_told(how: Layouts) -> None:
    bench = MadeUp()
    found = search(bench, how)
    assert found.choice and found.layouts and found.ratio < 0.8 and found.gap < 0.8 and found.origin
    alone = min(bench.us(_core.Schedule.parse(t)) for t in bench.calls if "lay_out" not in t)
    # Seconds and microseconds differ by a rounding.
    assert found.joint_us < found.loops_us == pytest.approx(alone, rel=1e-12)
    assert found.trials == 12 and found.joint_trials == 4 and found.explored >= 1
    assert Template(convolution().program).layouts(Instance.parse(found.choice)) == found.layouts
    assert "loops alone:" in str(found) and found.choice in str(found)
    assert all(f"{name}: {text}" in str(found) for name, text in found.layouts.items())
    assert json.dumps(found.to_dict()) and found._repr_html_()
    assert sum(found.outcomes.values()) == 24 and found.measured == len(bench.calls) <= 24


def test_loops_alone_are_kept_where_no_layout_is_faster() -> None:
    found = search(MadeUp(laid_factor=3.0), RANDOM)
    assert not found.layouts and not found.choice and "lay_out" not in str(found.schedule.text())
    assert found.best_us == found.loops_us and "stay as they lie" in str(found)


def test_the_same_seed_searches_the_same(how: Layouts) -> None:
    one, two = MadeUp(), MadeUp()
    assert without_clock(search(one, how, seed=5)) == without_clock(search(two, how, seed=5))
    assert one.calls == two.calls
    other = MadeUp()
    search(other, how, seed=6)
    assert other.calls != one.calls


@pytest.mark.parametrize("stop", [1, 10, 15])
def test_an_interrupted_search_goes_on(tmp_path: Path, stop: int) -> None:
    how = Layouts(proposals="ppo" if stop == 15 else "random", episode=4)
    if stop == 15:
        pytest.importorskip("torch")
    whole = MadeUp()
    expected = search(whole, how)
    session = tmp_path / "trials.jsonl"
    cut = MadeUp(stop_after=stop)
    with pytest.raises(KeyboardInterrupt):
        search(cut, how, session=session)
    known = len(list(RecordStore(session)))
    assert stop - 4 < known <= stop, "a batch in flight is repeated"
    rest = MadeUp()
    found = search(rest, how, session=session)
    assert without_clock(found) == without_clock(expected)
    assert cut.calls[:known] + rest.calls == whole.calls
    assert [str(r.trace().text()) for r in RecordStore(session)] == whole.calls


def test_progress_counts_both_searches() -> None:
    told: list[tuple[int, int, float]] = []
    search(MadeUp(), RANDOM, progress=lambda *one: told.append(one))
    assert told[-1][:2] == (24, 24) and [one[0] for one in told] == sorted(one[0] for one in told)


def test_what_goes_wrong_is_counted_and_never_the_best() -> None:
    class Broken(MadeUp):
        def measure(self, *given: Any) -> list[Record]:
            import msgspec

            made = super().measure(*given)
            return [
                msgspec.structs.replace(r, outcome="crashed", median_us=1e-3, reason="as asked")
                if "lay_out" in str(r.trace().text()) else r
                for r in made
            ]  # fmt: skip

    found = search(Broken(), RANDOM)
    assert found.outcomes["crashed"] >= 1 and not found.layouts and found.best_us >= 100


def test_what_is_kept_is_compiled(tmp_path: Path) -> None:
    """The record serves kernels of the same operator, by other names, too; real times, copies included."""
    with syno.config.config(cache=str(tmp_path)):
        found = search(MadeUp(), RANDOM, keep=True)
        kernel = convolution().compile()
        assert kernel.origin == "recorded" and kernel.schedule == found.schedule
        assert "lay_out" in str(kernel.schedule.text()) and kernel.verification
        x = np.random.default_rng(0).standard_normal((1, 8, 12)).astype(np.float32)
        k = np.random.default_rng(1).standard_normal((16, 8, 3)).astype(np.float32)
        np.testing.assert_allclose(
            kernel(x, k), convolution().reference(x, k), rtol=2e-5, atol=2e-5
        )
        other = convolution("z[a,b,e] = sum[d,f] w[a,d,e+f-1] * v[b,d,f]").compile()
        assert other.origin == "recorded" and "lay_out" in str(other.schedule.text())


def test_constants_are_laid_out_before_calls(tmp_path: Path) -> None:
    how = Layouts(proposals="random", episode=4, constants=("k",))
    with syno.config.config(cache=str(tmp_path)):
        found = search(MadeUp(), how, keep=True)
        assert "k" in found.layouts and "prepack k_l" in str(found.schedule.text())
        assert convolution().compile().origin == "constructed", (
            "it is for calls with packed weights"
        )
        kernel = prepacked(convolution(), ["k"])
        assert kernel.schedule == found.schedule
        x = np.ones((1, 8, 12), np.float32)
        k = np.random.default_rng(1).standard_normal((16, 8, 3)).astype(np.float32)
        made = kernel.pack(k=k)(x)
        np.testing.assert_allclose(made, convolution().reference(x, k), rtol=2e-5, atol=2e-5)


def test_what_lies_so_already_is_not_copied(tmp_path: Path) -> None:
    with syno.config.config(cache=str(tmp_path)):
        bench = MadeUp()
        how = Layouts(proposals="random", episode=4, free=("x", "y"), constants=("k",))
        found = search(bench, how, keep=True)
        assert found.explored and not any("lay_out x_l" in call for call in bench.calls)
        assert convolution().compile().origin == "constructed", "nobody calls it so"


def test_two_levels(tmp_path: Path) -> None:
    found = search(MadeUp(), Layouts(proposals="random", levels=2, episode=4))
    assert "x" in found.choice.split("o=")[1].split(",")[0]


def test_real_times() -> None:
    options = _core.MeasureOptions()
    options.samples, options.sample_s, options.limit_s = 3, 1e-4, 60.0
    pytest.importorskip("sklearn")
    how = Layouts(proposals="random", episode=2)
    found = search(None, how, trials=6, options=options, model="boosted")
    assert found.outcomes == {"ok": 12} and 0 < found.best_us < 1e6


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"trials": 0}, KernelError, "trials=0"),
        ({"trials": 1}, KernelError, "trials=1"),
        ({"layouts": "yes"}, ArgumentError, "layouts='yes'"),
        ({"layouts": Layouts(proposals="genetic")}, UnknownName, "genetic.*ppo, random"),
        ({"layouts": Layouts(proposals="random", share=0)}, KernelError, "share=0"),
        ({"layouts": Layouts(proposals="random", levels=3)}, ArgumentError, "levels=3"),
        ({"layouts": Layouts(proposals="random", top=0)}, KernelError, "top=0"),
        ({"layouts": Layouts(proposals="random", constants=("z",))}, UnknownName, "'z'.*k, x"),
        ({"layouts": Layouts(proposals="random", free=("z",))}, UnknownName, "'z'.*k, x, y"),
        ({"model": "none"}, UnknownName, "boosted, linear"),
    ],
)  # fmt: skip
def test_bad_input_is_a_sentence(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    bench = MadeUp()
    given = {"trials": 4, "layouts": RANDOM, "executor": bench, "progress": "off", **options}
    with pytest.raises(error, match=f"(?s){message}"):
        syno.tune(convolution(), **given)
    assert not bench.calls, "before work starts"


def test_an_operator_without_a_template_is_refused() -> None:
    bench = MadeUp()
    with pytest.raises(ScheduleError, match=r"no template.*convolution and product"):
        search(bench, RANDOM, syno.Operator.parse("y[i] = sum[j] x[i,j]", i=4, j=4))
    assert not bench.calls


def said(result: Any) -> str:
    return " ".join(str(result.output + result.stderr).replace("│", " ").split())


MATMUL = ["tune", "y[m,n] = sum[k] a[m,k] * b[k,n]", "-s", "m=8", "-s", "n=8", "-s", "k=8"]


def test_the_command_line_searches_layouts(tmp_path: Path) -> None:
    given = ["--layouts", "--proposals", "random", "--constant", "b", "--trials", "4", "--json"]
    with syno.config.config(cache=str(tmp_path)):
        result = CliRunner().invoke(app, [*MATMUL, *given])
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert found["trials"] == 4 and found["joint_us"] > 0 and found["loops_us"] > 0
        again = json.loads(CliRunner().invoke(app, [*MATMUL, *given]).stdout)
        assert again["measured"] == 0, "it goes on where it was"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--levels", "2"], "are for --layouts"),
        (["--layouts", "--levels", "3"], "levels"),
        (["--layouts", "--constant", "1b"], "is no name"),
        (["--layouts", "--constant", "z", "--proposals", "random"], "unknown constant"),
        (["--layouts", "--proposals", "genetic"], "proposals"),
        (["--layouts", "--policy", "tree"], "leave --policy tree out"),
    ],
)
def test_the_command_line_says_what_is_wrong(given: list[str], words: str) -> None:
    result = CliRunner().invoke(app, [*MATMUL, *given])
    assert result.exit_code in (1, 2) and words in said(result)
    wrong = CliRunner().invoke(app, ["tune", "--network", "a.b:c", "--layouts"])
    assert wrong.exit_code == 2 and "syno compile" in said(wrong)


def test_without_torch_layouts_are_drawn_by_chance_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    there = builtins.__import__

    def without_torch(name: str, *args: Any) -> Any:
        if name == "torch" or name.startswith("torch."):
            raise ImportError(name)
        return there(name, *args)

    monkeypatch.setattr(builtins, "__import__", without_torch)
    with pytest.raises(KernelError, match=r"syno\[torch\].*random"):
        search(MadeUp(), Layouts())
    assert search(MadeUp(), RANDOM).explored


def test_the_actor_learns_what_is_rewarded() -> None:
    """Layouts with large `o` are worth more: after some episodes they are proposed more often than by chance."""
    pytest.importorskip("torch")
    template = Template(convolution().program)
    actor, chance = LearnedProposer(template, 3), RandomProposer(template, 3)

    def mean(proposals: Sequence[Any]) -> float:
        return float(np.mean([p.choice.tiles["o"][-1] for p in proposals]))

    def reward(choice: Instance) -> float:
        return choice.tiles["o"][-1] / 16

    for _ in range(30):
        episode = [actor.propose() for _ in range(12)]
        actor.learn(episode, [reward(p.choice) for p in episode])
    assert mean([actor.propose() for _ in range(64)]) > 11
    assert mean([chance.propose() for _ in range(64)]) < 9
