"""A model goes in, a faster model comes out: the whole path on small real data (scikit-learn's digits)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import syno
from syno.cli.main import app
from syno.errors import SessionError, SpecError, SynoError, UnknownName
from syno.models.fashion import fashion_resnet
from syno.report import read_report
from syno.searching.result import Result
from syno.session import Prune

OPTIONS = {"width": 8, "batch": 128, "epochs": 1}  # a dozen steps a training


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search of two candidates, by the command-line's path."""
    from syno.searching.pipeline import search_task

    directory = tmp_path_factory.mktemp("runs") / "digits"
    search_task(
        "digits",
        directory,
        options=OPTIONS,
        budget=2,
        finalists=1,
        final_seeds=2,
        groups=1,
        batch_width=2,
        workers=1,
        prune=Prune(),
        progress="off",
    )
    return directory


def test_the_report_holds_baseline_and_candidates_with_their_numbers(searched: Path) -> None:
    report = Result.load(searched).report
    assert report.baseline.accuracy is not None
    assert len(report.candidates) == 2
    for candidate in report.candidates:
        assert candidate.state in ("done", "pruned", "failed")
        if candidate.state == "done":
            assert candidate.verified
            assert candidate.max_rel_err is not None and candidate.max_rel_err < 1e-5
            assert candidate.latency_us and candidate.op_latency_us
            assert candidate.flops and candidate.flops < (report.baseline.flops or 0) * 1.01
    finalists = [c for c in report.candidates if c.seeds_count]
    assert [c.seeds_count for c in [report.baseline, *finalists]] == [2] * (1 + len(finalists))


def test_the_report_says_what_was_replaced_why_and_how_to_use_it(searched: Path) -> None:
    from syno.report import to_html, to_markdown

    result = Result.load(searched)
    report = result.report
    finalists = {c.id for c in report.candidates if c.seeds_count}
    assert finalists and set(report.finalists) == set(report.replaced) == finalists
    stages = result.network.stages
    for id, layers in report.replaced.items():
        candidate = next(c for c in report.candidates if c.id == id)
        assert {one.site for one in layers} == {s for sites in stages.values() for s in sites}
        # What the layers save is what the network saves.
        saved = sum(one.before_flops - one.after_flops for one in layers)
        assert saved == (report.baseline.flops or 0) - (candidate.flops or 0)
        fewer = sum(one.before_params - one.after_params for one in layers)
        assert fewer == (report.baseline.params or 0) - (candidate.params or 0)
        assert all(one.before_us and one.after_us for one in layers)
        assert "Nearest known operator" in report.words[id]
        assert "validation" in report.finalists[id]
    assert report.recipe["optimizer"].startswith("sgd, learning rate")
    page, text = to_html(report), to_markdown(report)
    for words in (*report.words.values(), *report.finalists.values()):
        assert words in text
        assert words.replace("'", "&#39;") in page
    if report.code:
        compile(report.code, "report", "exec")
        assert str(searched) in report.code and report.code in text


def test_running_a_finished_search_again_trains_nothing(searched: Path) -> None:
    from syno.searching.pipeline import search_task

    before = [c.to_dict() for c in Result.load(searched).view.candidates()]
    result = search_task(
        "digits",
        searched,
        options=OPTIONS,
        budget=2,
        finalists=1,
        final_seeds=2,
        groups=1,
        batch_width=2,
        workers=1,
        prune=Prune(),
        progress="off",
    )
    assert [c.to_dict() for c in result.view.candidates()] == before


def test_a_resumed_search_may_not_change_its_seed(searched: Path) -> None:
    from syno.searching.pipeline import search_task

    with pytest.raises(SessionError, match="seed"):
        search_task("digits", searched, options=OPTIONS, budget=2, seed=5, groups=1, progress="off")


def test_a_candidate_applied_computes_what_its_formula_says(searched: Path) -> None:
    result = Result.load(searched)
    done = [c for c in result.view.candidates() if c.state == "done"]
    if not done:
        pytest.fail("no candidate of the small search was trained to the end")
    found = result[done[0].id]
    model = found.apply().eval()
    sites = [n for n, m in model.named_modules() if type(m).__name__ == "Op"]
    assert set(sites) == {s for names in result.network.stages.values() for s in names}
    x = torch.randn(3, *result.network.task.example(1).shape[1:])
    with torch.no_grad():
        native = model(x)
        for name in sites:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, model.get_submodule(name).to_aten())
        plain = model(x)
    torch.testing.assert_close(native, plain, rtol=1e-3, atol=1e-4)


def test_the_commands_read_the_session(searched: Path, tmp_path: Path) -> None:
    run = CliRunner()
    status = run.invoke(app, ["status", str(searched), "--json"])
    assert status.exit_code == 0, status.output
    assert json.loads(status.stdout)["trained"] == 2
    assert run.invoke(app, ["status", str(searched)]).exit_code == 0
    candidate = Result.load(searched).view.candidates()[0].id
    shown = run.invoke(app, ["show", str(searched), candidate, "--json"])
    assert shown.exit_code == 0, shown.output
    assert "for" in json.loads(shown.stdout)["loops"]
    explained = run.invoke(
        app, ["explain", str(searched), candidate, "--svg", str(tmp_path / "g.svg")]
    )
    assert explained.exit_code == 0, explained.output
    assert (tmp_path / "g.svg").read_text().startswith("<svg")
    drawn = tmp_path / "baseline.svg"
    explained = run.invoke(app, ["explain", str(searched), "baseline", "--svg", str(drawn)])
    assert explained.exit_code == 1
    assert "baseline has no derivation to draw" in " ".join(explained.output.split())
    assert not drawn.exists()
    for suffix in ("html", "md", "csv", "json"):
        target = tmp_path / f"report.{suffix}"
        written = run.invoke(app, ["report", str(searched), "-o", str(target)])
        assert written.exit_code == 0, written.output
    assert read_report(tmp_path / "report.json").candidates


def test_replay_repeats_the_training_to_the_digit(searched: Path) -> None:
    done = [c for c in Result.load(searched).view.candidates() if c.state == "done"]
    # What else the machine does must not decide: latencies are judged elsewhere.
    wide = ["--latency-tolerance", "1000"]
    outcome = CliRunner().invoke(
        app, ["replay", str(searched), done[0].id, "--json", "--tolerance", "0", *wide]
    )
    assert outcome.exit_code == 0, outcome.output
    assert json.loads(outcome.stdout)["same"] is True


def test_unknown_candidates_and_sessions_get_a_sentence(searched: Path, tmp_path: Path) -> None:
    run = CliRunner()
    unknown = run.invoke(app, ["show", str(searched), "c99"])
    assert unknown.exit_code == 2
    assert "c99" in unknown.stderr and "c1" in unknown.stderr
    missing = run.invoke(app, ["status", str(tmp_path)])
    assert missing.exit_code == 1
    assert "session.toml" in missing.stderr
    assert run.invoke(app, ["status"]).exit_code == 2


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(8, 8, 3, padding=1)
        self.second = nn.Conv1d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.second(torch.relu(self.first(x)))
        return self.head(torch.relu(hidden).mean(-1))


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 16, 8, 24, generator=generator)
    return [(x, (x[:, 0, :12].mean(-1) > x[:, 1, 12:].mean(-1)).long()) for x in inputs]


def test_a_users_own_model_and_batches_are_searched_in_this_process(tmp_path: Path) -> None:
    model = Pair()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    x = torch.randn(4, 8, 24)
    result = syno.search(
        model,
        x,
        sites=syno.sites(model, x).where(kind="conv1d"),
        data=(batches(6), batches(3)),
        budget=2,
        session=tmp_path / "own",
        finalists=0,
        batch_width=2,
        prune=Prune(),
        progress="off",
    )
    assert result.view.status()["states"]["failed"] == 0, [
        c.reason for c in result.view.candidates()
    ]
    assert all(torch.equal(v, model.state_dict()[k]) for k, v in before.items())
    found = result[result.view.candidates()[0].id]
    assert found.apply(model)(x).shape == (4, 2)


def test_a_model_with_nothing_to_replace_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(SynoError, match=r"nothing|worth"):
        syno.search(
            nn.Sequential(nn.ReLU()), torch.randn(1, 4), data=([], []), session=tmp_path / "a"
        )
    with pytest.raises(SynoError, match="worth replacing"):
        syno.search(nn.Linear(4, 2), torch.randn(1, 4), data=([], []), session=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_unknown_policies_and_impossible_budgets_are_refused(tmp_path: Path) -> None:
    model = fashion_resnet(widths=(8, 16))
    x = torch.randn(1, 1, 12, 12)
    with pytest.raises(UnknownName, match="mcts"):
        syno.search(model, x, data="digits", policy="annealing", session=tmp_path / "a")
    with pytest.raises(SpecError, match="flops_ratio"):
        syno.search(model, x, data="digits", flops_ratio=0.0, session=tmp_path / "a")


class Odd(nn.Module):
    """Linear layers of one group, of which one has sizes that no operator shares with the others."""

    def __init__(self, inner: int, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inner, inner), nn.ReLU(), nn.Linear(inner, inner))
        self.head = nn.Linear(inner, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.body(x)))


@pytest.mark.parametrize(("inner", "classes"), [(96, 11), (64, 13)])
def test_layers_whose_sizes_leave_the_others_no_operator_are_left_out(
    tmp_path: Path, inner: int, classes: int
) -> None:
    data = [(torch.randn(8, inner), torch.randint(classes, (8,))) for _ in range(2)]
    result = syno.search(
        Odd(inner, classes),
        data[0][0],
        data=(data, data),
        budget=1,
        session=tmp_path / "run",
        policy="random",
        finalists=0,
        batch_width=1,
        prune=Prune(),
        progress="off",
    )
    assert result.view.config.evaluator.options["stages"] == {
        "linear": ["body.0", "body.2"],
        "linear (head)": ["head"],
    }
    assert {c.stage for c in result.view.candidates()} == {"linear"}
    assert result.view.trained == 1
    (note,) = (note for note in result.report.notes if "skipped" in note)
    assert note.startswith("'linear (head)' is skipped, its sites keep their layers: no operator")


def test_a_group_whose_space_is_empty_is_skipped_and_the_others_are_searched(
    tmp_path: Path,
) -> None:
    model = Pair()
    x = torch.randn(4, 8, 24)
    found = syno.sites(model, x)
    assert {group.key for group in found.groups()} == {"conv1d 3", "linear"}
    result = syno.search(
        model,
        x,
        sites=found,
        data=(batches(4), batches(2)),
        budget=2,
        session=tmp_path / "own",
        policy="mcts",
        max_steps=4,
        min_flops_ratio=0.0,
        finalists=0,
        batch_width=2,
        prune=Prune(),
        progress="off",
    )
    assert {c.stage for c in result.view.candidates()} == {"conv1d 3"}
    assert result.view.trained == 2
    note = result.report.notes[0]
    assert note.startswith(
        "'linear' is skipped, its sites keep their layers: no operator of at most"
    )
    assert not result.interrupted
    with pytest.raises(SpecError, match=r"no group has a space with operators. .*linear: "):
        syno.search(model, x, sites=found, data=([], []), max_steps=1, session=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_known_operators_are_searched_beside_and_a_session_keeps_which(tmp_path: Path) -> None:
    from syno.searching.pipeline import search_task
    from syno.session.config import read_config

    settings = {
        "options": OPTIONS,
        "groups": 1,
        "finalists": 0,
        "policy": "random",
        "prune": Prune(),
        "progress": "off",
        "max_steps": 5,
    }
    path = tmp_path / "a"
    result = search_task(
        "digits", path, budget=4, known="grouped,bottleneck", workers=1, **settings
    )
    known = [c for c in result.view.candidates() if c.known]
    assert [c.known for c in known if c.why == "known operator"] == ["grouped(g=2)"]
    assert known[0].state in ("done", "pruned") and known[0].measured
    config = read_config(path / "session.toml")
    assert config.space["known"] == ["grouped", "bottleneck"]
    options = config.stages[0].proposer.options["known"]
    assert [one["known"] for one in options["operators"]][:2] == ["grouped(g=2)", "bottleneck(s=2)"]
    assert all(options["refused"].values())
    assert "--known grouped,bottleneck" in config.note
    again = search_task("digits", path, budget=8, workers=1, **settings)  # as it was begun
    turns = [c.known for c in again.view.candidates() if c.why == "known operator"]
    assert turns == ["grouped(g=2)", "bottleneck(s=2)"]
    with pytest.raises(SessionError, match=r"space\.known"):
        search_task("digits", path, budget=8, known="none", **settings)
    with pytest.raises(UnknownName, match=r"groups.*grouped"):
        search_task("digits", tmp_path / "b", budget=4, known="groups", **settings)
    assert not (tmp_path / "b").exists()
    wrong = CliRunner().invoke(
        app, ["search", "digits", "-o", str(tmp_path / "b"), "--known", "grouped,windows"]
    )
    assert wrong.exit_code == 2 and "separable" in wrong.output
