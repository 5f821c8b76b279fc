"""Known operators: what they are for a space, what an operator is called, and their place beside those found."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE_S
from test_synth import site
from typer.testing import CliRunner

from syno import _core
from syno.errors import FormatError, SpecError, SynoError, UnknownName
from syno.known import DEFAULT_KNOWN, NAMES, Names, Place, chosen, known_operators
from syno.known.beside import SHARE, Beside, beside, due
from syno.searching.proposers import make
from syno.session import Component, Gains, InlineExecutor, Limits, ProcessExecutor, Session
from syno.session.finals import best_of

SPEC = json.dumps(site(max_steps=5))

#: For surrogates, which look at the features of every operator: a second of work for three.
SMALL = json.dumps(site(max_steps=4))


def spec() -> Any:
    return _core.Spec.from_json(SPEC)


@pytest.fixture(scope="module")
def names() -> Names:
    return Names(Place(spec()))


# --- what they are


def test_values_of_coefficients_are_those_that_fit_the_layers() -> None:
    place = Place(spec())
    assert [(v.text, v.values) for v in place.values()] == [
        ("s", (2, 2)),
        ("g", (4, 4)),
        ("s*g", (8, 8)),
    ]
    labels = {one.label: one for one in known_operators(place, ("grouped", "separable"))}
    assert set(labels) == {"grouped(g=2)", "grouped(g=4)", "grouped(g=8)", "separable"}
    assert all(one.graph is not None for one in labels.values())
    grouped = _core.named_operator("grouped_conv", spec(), {"kernel": "k", "groups": "s^2"})
    found = labels["grouped(g=4)"].graph
    assert found is not None and found.operator_key() == grouped.operator_key()


def test_names_take_turns_and_values_ascend() -> None:
    order = [one.label for one in known_operators(Place(spec()), DEFAULT_KNOWN)]
    assert order[:3] == ["grouped(g=2)", "bottleneck(s=2)", "separable"]
    grouped = [label for label in order if label.startswith("grouped")]
    assert grouped == sorted(grouped, key=lambda label: int(label[10:-1]))


def test_what_cannot_stand_beside_the_others_is_kept_with_the_reason() -> None:
    made = beside(spec(), "all", window="k", most_flops=10.0**12)
    kept = Beside.read(made)
    known = {one.known for one in kept.operators}
    assert not known & set(kept.refused)
    assert all(why for why in kept.refused.values())
    assert (
        "not an integer" in kept.refused["bottleneck in space(b=2)"]
        or "divide" in (kept.refused["bottleneck in space(b=2)"])
    )  # 2 does not divide 7
    few = Beside.read(beside(spec(), "all", window="k", most_flops=100_000.0))
    assert {one.known for one in few.operators} < known
    dense = few.refused["grouped(g=2)"]
    assert "multiply-adds" in dense and "100,000" in dense
    tokens = site(max_steps=5)
    tokens["fixed"] = [[0, 0], [2, 2], [3, 3]]
    alone = Beside.read(beside(_core.Spec.from_json(json.dumps(tokens)), None, window="1"))
    assert {one.known for one in alone.operators} >= {"grouped(g=2)", "bottleneck(s=2)"}
    assert alone.refused["separable"] == "the layers have no window"
    mixed = Beside.read(beside(spec(), None, window="mixed"))
    assert not mixed.operators and set(mixed.refused)


@pytest.mark.parametrize("value", [{"operators": 3}, {"what": 1}, {"operators": [{"known": "a"}]}])
def test_damaged_options_are_refused(value: Any) -> None:
    with pytest.raises(FormatError, match="known"):
        make(seed=0, spec=SPEC, known=value)
    with pytest.raises(FormatError, match="known"):
        make(seed=0, spec=SPEC, policy="mcts", known={"operators": [{"known": "a", "pgraph": "b"}]})


@given(st.lists(st.sampled_from(NAMES), max_size=5))
def test_names_are_chosen_in_one_order_each_once(wanted: list[str]) -> None:
    found = chosen(wanted)
    assert set(found) == set(wanted) and len(set(found)) == len(found)
    assert found == chosen(",".join(wanted)) == chosen(list(reversed(wanted)))
    assert list(found) == [name for name in NAMES if name in wanted]


def test_names_that_do_not_exist_are_refused_with_those_that_do() -> None:
    assert chosen(None) == DEFAULT_KNOWN
    assert chosen("all") == NAMES and chosen("none") == chosen(()) == ()
    with pytest.raises(UnknownName, match=r"groupd.*grouped.*separable"):
        chosen("grouped,groupd")
    with pytest.raises(SpecError, match="no list of names"):
        chosen(3)  # type: ignore[arg-type]


# --- what an operator is called


def graph(*steps: str) -> Any:
    """A pGraph of the space, from its steps."""
    text = _core.named_operator("conv1x1", spec()).text()
    head = [line for line in text.splitlines() if not line.startswith(("c4", "weight", "input ="))]
    return _core.PGraph.parse("\n".join([*head, *steps]) + "\n")


TIED = {
    "dense": [  # blocks of channels are summed, then convolved
        "c4 = reduce s", "c5 = reduce C_in*s^-1", "c6 = reduce k", "c7 = reduce k",
        "weight w = share c4 c6 c7 match c1", "c8 = split c4 c5",
        "c9 = unfold c2 window c6", "c10 = unfold c3 window c7", "input = c0 c8 c9 c10",
    ],
    "grouped(g=2)": [  # every group has the same weights
        "c4 = reduce C_in*s^-1", "c5 = reduce k", "c6 = reduce k", "c7 c8 = merge c1 block C_out*s^-1",
        "weight w = share c4 c5 c6 match c8", "c9 = split c7 c4",
        "c10 = unfold c2 window c5", "c11 = unfold c3 window c6", "input = c0 c9 c10 c11",
    ],
    "separable": [  # every channel has the same window
        "c4 = reduce C_in", "c5 = reduce k", "c6 = reduce k", "weight w = share c4 match c1",
        "weight w = share c5 c6", "c7 = unfold c2 window c5", "c8 = unfold c3 window c6",
        "input = c0 c4 c7 c8",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", TIED)
def test_tied_weights_hide_no_known_operator(names: Names, name: str) -> None:
    assert names.of(graph(*TIED[name])) == f"{name} with tied weights"


@pytest.mark.parametrize(
    "steps",
    [
        [  # a grouped convolution of the neighbour
            "c4 = reduce C_in*s^-1", "c5 = reduce k", "c6 = reduce k", "c7 c8 = merge c1 block C_out*s^-1",
            "c9 = split c7 c4", "weight w = share c9 c5 c6 match c8", "c10 = shift c2 by 1",
            "c11 = unfold c10 window c5", "c12 = unfold c3 window c6", "input = c0 c9 c11 c12",
        ],
        [  # groups that take turns
            "c4 = reduce C_in*s^-1", "c5 = reduce k", "c6 = reduce k", "c7 c8 = merge c1 block s",
            "c9 = split c8 c4", "weight w = share c5 c6 c9 match c7", "c10 = unfold c3 window c5",
            "c11 = unfold c10 window c6", "input = c0 c9 c2 c11",
        ],
    ],
)  # fmt: skip
def test_what_nobody_has_named_is_found(names: Names, steps: list[str]) -> None:
    assert names.of(graph(*steps)) == ""


def test_every_known_operator_is_called_by_its_name_however_its_sizes_are_written(
    names: Names,
) -> None:
    cases: dict[str, tuple[str, dict[str, str]]] = {
        "grouped(g=4)": ("grouped_conv", {"groups": "s^2"}),
        "grouped(g=8)": ("grouped_conv", {"groups": "s^3"}),
        "bottleneck(s=4)": ("bottleneck_conv", {"shrink": "g"}),
        "Operator 1(g=2, s=4)": ("operator1", {"groups": "s", "shrink": "s^2"}),
        "grouped(g=2, k=1)": ("grouped_conv", {"groups": "s", "kernel": "1"}),
        "dense": ("conv", {}),
        "pointwise": ("matmul", {}),
    }
    for label, (name, sizes) in cases.items():
        made = _core.named_operator(name, spec(), {"kernel": "k", **sizes})
        assert names.of(made) == label
    for one in known_operators(Place(spec()), NAMES):
        if one.graph is not None:
            assert names.of(one.graph), one.label


def test_layers_without_a_window_have_simple_names() -> None:
    tokens = site(max_steps=5)
    tokens["fixed"] = [[0, 0], [2, 2], [3, 3]]
    place = Place(_core.Spec.from_json(json.dumps(tokens)), "1")
    alone = Names(place)
    cases = {"conv1x1": "pointwise", "bottleneck_conv": "bottleneck(s=2)"}
    for name, label in cases.items():
        sizes = {"kernel": "1", "shrink": "s"}
        assert alone.of(_core.named_operator(name, place.spec, sizes)) == label
    assert [
        one.label for one in known_operators(place, ("separable", "dilated")) if one.graph
    ] == []


def test_no_operator_is_called_what_has_another_key(names: Names) -> None:
    """Of all operators of the space: a name that stands for a coefficient's values is that operator's alone."""
    keys = {
        one.label: one.graph.operator_key()
        for one in known_operators(Place(spec()), NAMES)
        if one.graph is not None
    }
    for found in _core.enumerate_operators(spec(), max_steps=5).operators:
        called = names.of(found)
        if called in keys:
            assert found.operator_key() == keys[called]
        if found.operator_key() in keys.values():
            assert called in keys


# --- their turns


@settings(max_examples=200)
@given(
    widths=st.lists(st.integers(1, 9), min_size=1, max_size=30),
    waiting=st.integers(0, 30),
)
def test_no_more_than_a_quarter_of_the_trainings_are_known(widths: list[int], waiting: int) -> None:
    trained = known = 0
    for width in widths:
        turn = due(trained=trained, known=known, next=width, waiting=waiting - known)
        trained, known = trained + width, known + turn
        assert known <= SHARE * trained
        assert known == min(waiting, int(SHARE * trained)) or turn == width


def asked(proposer: Any, times: int, width: int = 4) -> list[tuple[str, str, str]]:
    """Of every proposal its key, its name, and why."""
    rows = []
    for _ in range(times):
        for p in proposer.ask(width):
            rows.append((p.operator.key, p.known, p.why))
            # Some are given up before their training; the known ones are the best of all.
            quality = None if p.ticket % 5 == 2 else 0.1
            reward = 0.9 if p.known else 1 / (3 + p.operator.params % 7)
            proposer.tell(p.ticket, reward, Gains(quality=quality, speed=0.5))
    return rows


@pytest.mark.parametrize("policy", ["evolution", "mcts", "random"])
def test_known_operators_take_turns_with_the_policys_and_a_state_keeps_them(policy: str) -> None:
    known = beside(spec(), "grouped,separable,operator1", window="k")
    listed = [one.known for one in Beside.read(known).operators]
    assert len(listed) > 4
    whole = make(seed=3, spec=SPEC, policy=policy, known=known)
    rows = asked(whole, 6)
    turns = [name for _, name, why in rows if why == "known operator"]
    assert turns == listed[: len(turns)] and len(turns) >= 3
    assert rows[0][1:] == ("grouped(g=2)", "known operator")  # from the first batch on
    if policy != "mcts":  # which may come to one by itself
        assert [name for _, name, _ in rows if name in listed] == turns
    begun = make(seed=3, spec=SPEC, policy=policy, known=known)
    first = asked(begun, 2)
    again = make(seed=3, spec=SPEC, policy=policy, known=known)
    again.restore(begun.state())
    assert first + asked(again, 4) == rows


def test_the_policy_learns_what_known_operators_are_worth() -> None:
    known = beside(spec(), "grouped", window="k")
    evolution = make(seed=0, spec=SPEC, policy="evolution", known=known)
    why = [row[2] for row in asked(evolution, 8)]
    assert any("parent with reward 0.9" in text for text in why)
    rewards = {}
    for reward in (0.9, 0.0):
        proposer = make(seed=0, spec=SMALL, policy="bayesian", known=known)
        for p in proposer.ask(4):
            worth = reward if p.known else 0.4
            proposer.tell(p.ticket, worth, Gains(quality=0.1, speed=0.5))
        rewards[reward] = [p.why for p in proposer.ask(4)]
    assert rewards[0.9] != rewards[0.0]


def test_a_state_of_other_known_operators_is_refused() -> None:
    some = beside(spec(), "grouped,separable", window="k")
    proposer = make(seed=0, spec=SPEC, policy="mcts", known=some)
    asked(proposer, 4)
    fewer = {**some, "operators": some["operators"][:1]}
    with pytest.raises(FormatError, match="other known operators"):
        make(seed=0, spec=SPEC, policy="mcts", known=fewer).restore(proposer.state())
    with pytest.raises(SynoError):
        make(seed=0, spec=SPEC, policy="mcts", known=some).restore("{}")


# --- sessions


def session(path: Path, executor: Any, policy: str = "evolution", budget: int = 12) -> Session:
    options = {"spec": SPEC, "policy": policy, "known": beside(spec(), None, window="k")}
    opened = Session.open(
        path,
        proposer=Component(reference="syno.searching.proposers:make", options=options),
        evaluator=Component(reference="session_operators:Reader"),
        measurer=Component(reference="session_operators:Meter"),
        seed=4,
        limits=Limits(start_limit_s=PATIENCE_S),
    )
    opened.run(budget=budget, finalists=2, final_seeds=2, executor=executor, progress="off")
    return opened


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0, 1)), max_size=8),
    st.integers(0, 5),
)
def test_of_finalists_one_is_known_and_one_is_found(
    rows: list[tuple[bool, float]], count: int
) -> None:
    everyone: list[Any] = [
        SimpleNamespace(number=i, known="a" * k) for i, (k, _) in enumerate(rows)
    ]
    rewards = {i: reward for i, (_, reward) in enumerate(rows)}
    best = best_of(everyone, count, rewards)
    assert len(best) == min(count, len(rows)) and len({c.number for c in best}) == len(best)
    if count >= 2:
        assert {bool(c.known) for c in best} == {k for k, _ in rows}
    ranked = sorted(everyone, key=lambda c: (-rewards[c.number], c.number))
    assert best[: max(0, count - 2)] == ranked[: max(0, count - 2)]
    for kind in (True, False):  # of its kind nobody better is left out
        own = [c.number for c in ranked if bool(c.known) == kind]
        chosen_ones = [c.number for c in best if bool(c.known) == kind]
        assert chosen_ones == own[: len(chosen_ones)]


def rows_of(opened: Session) -> list[tuple[Any, ...]]:
    with opened:
        return [(c.id, c.key, c.known, c.ticket, c.reward) for c in opened.candidates()]


def test_any_number_of_workers_and_any_budget_on_the_way_give_the_same(tmp_path: Path) -> None:
    expected = rows_of(session(tmp_path / "a", InlineExecutor()))
    trained = [row for row in expected if row[4]]
    assert any(row[2] for row in trained) and len(expected) >= 12
    listed = [
        row[2] for row in expected if row[2] in ("grouped(g=2)", "bottleneck(s=2)", "separable")
    ]
    assert listed == ["grouped(g=2)", "bottleneck(s=2)", "separable"]
    with ProcessExecutor(2) as executor:
        assert rows_of(session(tmp_path / "b", executor)) == expected
    rows_of(session(tmp_path / "c", InlineExecutor(), budget=4))
    assert rows_of(session(tmp_path / "c", InlineExecutor())) == expected


def test_finds_are_judged_beside_known_ones_and_everything_says_which_is_which(
    tmp_path: Path,
) -> None:
    from syno.cli.main import app
    from syno.report import read_report, to_csv, to_html, to_markdown
    from syno.report.plot import figure_svg, pareto_figure
    from syno.report.render import side_by_side
    from syno.searching.result import report_of

    with session(tmp_path, InlineExecutor()) as opened:
        finalists = [c for c in opened.candidates() if c.finals]
        assert {bool(c.known) for c in finalists} == {True, False}
        known = next(c for c in finalists if c.known)
        assert f"known operator: {known.known}" in opened.explain(known)
        status = opened.status()
        assert status["known"][known.id] == known.known
        assert status["known_refused"]["all"]
        verdict = opened.verdict()
        leading = verdict.best or verdict.leader
        if leading is not None:
            called = opened.candidate(leading)
            words = f"a known operator ({called.known})" if called.known else "a found operator"
            assert f"{leading}, {words}," in verdict.sentence
        report = report_of(opened)
        entry = next(e for e in report.candidates if e.id == known.id)
        assert entry.origin == f"known: {known.known}" and report.baseline.origin == "original"
        assert any(e.origin == "found" for e in report.candidates)
        for text in (to_markdown(report), to_html(report), to_csv(report)):
            assert entry.origin in text
        assert any(name in note for note in report.notes for name in status["known_refused"]["all"])
        beside_each_other = side_by_side(report)
        assert [row["operator"] for row in beside_each_other] == [
            "original",
            f"known: {known.known}",
            "found",
        ]
        for text in (to_markdown(report), to_html(report)):
            assert all(row["speed"] in text for row in beside_each_other)
        picture = figure_svg(pareto_figure(report))
        assert "known operators" in picture and "found operators" in picture
    shown = CliRunner().invoke(app, ["status", str(tmp_path)], env={"COLUMNS": "300"})
    assert f"known: {known.known}" in shown.output
    data = CliRunner().invoke(app, ["status", str(tmp_path), "--json"])
    assert json.loads(data.stdout)["known"][known.id] == known.known
    target = tmp_path / "r.json"
    CliRunner().invoke(app, ["report", str(tmp_path), "-o", str(target)])
    assert any(e.known for e in read_report(target).candidates)
