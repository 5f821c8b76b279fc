"""The table of trained operators: reading it, what is missing, and how searches on it are judged."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import fidelity
from compare import SETTINGS, Goals, TableSpace, compare
from engine_tree import AUTHORS_EXPLORATION, EngineTree
from make import _end_line, best_tenth
from table import SEEDS, Table, read_lines, read_table
from tree import AuthorsTree, Lattice

from syno import _core
from syno.errors import FormatError
from syno.operators.operator import Operator
from syno.policies.policy import History
from syno.tuning.cost_model import rank_correlation

OPBENCH = Path(__file__).resolve().parents[2] / "benchmarks" / "opbench"


@pytest.fixture(scope="module")
def table() -> Table:
    return read_table()


def copied(directory: Path, count: int) -> Path:
    """The first ``count`` operators with trainings and latencies made up."""
    lines = (OPBENCH / "operators.jsonl").read_text().splitlines()[:count]
    (directory / "operators.jsonl").write_text("\n".join(lines) + "\n")
    rows, times = [], []
    for place, name in enumerate(["baseline", *(json.loads(line)["hash"] for line in lines)]):
        for seed in SEEDS:
            accuracy = 0.5 + 0.01 * place + 0.001 * seed
            row = {"operator": name, "recipe": "table", "seed": seed, "accuracy": accuracy}
            rows.append(json.dumps({**row, "curve": [[0.5, 0.4]], "cpu_s": 1.0}))
        times.append(json.dumps({"operator": name, "round": 0, "latency_us": 100.0 + place}))
    (directory / "trainings.jsonl").write_text("\n".join(rows) + "\n")
    (directory / "latencies.jsonl").write_text("\n".join(times) + "\n")
    return directory


# --- the table that is shipped


def test_the_table_lies_in_the_space_of_its_spec_and_no_two_rows_are_the_same(
    table: Table,
) -> None:
    spec = _core.Spec.from_json((OPBENCH / "spec.json").read_text())
    found = _core.enumerate_operators(spec, max_steps=spec.max_steps).operators
    keys = TableSpace(
        table.operators
    ).keys  # computed anew: rows keep the names they were trained under
    assert len(set(keys)) == len(keys) == len({row.hash for row in table.operators})
    # The space has grown since the rows were trained: a weight may match what another one shares.
    assert set(keys) <= {Operator.from_pgraph(graph).canonical_hash for graph in found}
    assert len(keys) > 200
    for row in table.operators[::20]:
        graph = _core.PGraph.parse(row.text)
        assert graph.text() == row.text
        assert Operator.from_pgraph(graph).params == row.params


def test_the_table_is_complete_and_its_recipe_ranks(table: Table) -> None:
    assert [sentence for sentence in table.missing() if "seed" in sentence] == []
    long = read_table(recipe="long")
    both = [(a, b) for a, b in zip(table.operators, long.operators, strict=True) if b.scores]
    assert len(both) >= 40
    correlation = rank_correlation(
        np.array([a.accuracy for a, _ in both]), np.array([b.accuracy for _, b in both])
    )
    assert correlation >= 0.8
    assert all(0.1 <= score <= 1 for row in table.operators for score in row.scores.values())


# --- reading


def test_missing_rows_are_named_with_the_command_that_makes_them(tmp_path: Path) -> None:
    path = copied(tmp_path, 6)
    assert read_table(path).missing() == []
    trainings = (path / "trainings.jsonl").read_text().splitlines()
    (path / "trainings.jsonl").write_text("\n".join(trainings[:-3]) + "\n")
    (path / "latencies.jsonl").unlink()
    first, second, third = read_table(path).missing()
    assert first.startswith("1 of 7 rows have no training with seed 0")
    assert second.startswith("2 of 7 rows have no training with seed 1")
    assert third.startswith("7 of 7 rows have no latency")
    assert all("make.py" in sentence for sentence in (first, second, third))


def test_a_row_cut_off_by_a_stopped_job_is_left_out_and_made_again(tmp_path: Path) -> None:
    path = copied(tmp_path, 4) / "trainings.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-20])
    assert len(read_table(tmp_path).missing()) == 1
    _end_line(path)
    assert path.read_text() == whole[: whole.rstrip("\n").rfind("\n") + 1]
    assert read_table(tmp_path).operators[-1].scores == {0: pytest.approx(0.54)}


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("trainings.jsonl", "{broken", r"trainings\.jsonl, line 1"),
        ("trainings.jsonl", "[1]", "is no object"),
        ("trainings.jsonl", '{"recipe": "table", "operator": "none"}', "does not list"),
        ("latencies.jsonl", '{"operator": "none"}', "does not list"),
        ("operators.jsonl", '{"hash": "a"}', "has no 'text'"),
    ],
)
def test_damaged_tables_are_refused_with_the_line(
    tmp_path: Path, name: str, line: str, message: str
) -> None:
    path = copied(tmp_path, 3) / name
    path.write_text(line + "\n" + path.read_text())
    with pytest.raises(FormatError, match=message):
        read_table(tmp_path)


def test_a_table_that_is_not_there_says_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"make\.py"):
        list(read_lines(tmp_path / "operators.jsonl"))


def test_the_best_tenth_is_that_of_the_seeds_all_have(tmp_path: Path) -> None:
    found = best_tenth(read_table(copied(tmp_path, 12)))
    assert [row.accuracy for row in found] == pytest.approx([0.6205, 0.6105])


# --- judging


def test_what_lies_within_a_standard_error_of_the_edge_counts_as_top(tmp_path: Path) -> None:
    table = read_table(copied(tmp_path, 30))
    goals = Goals(table.operators, table)
    means = np.array([row.accuracy for row in table.operators])
    # Seeds differ by 0.001, so that operators 0.01 apart are told apart: one of 30 is the top 2 %.
    assert goals.top.tolist() == (means == means.max()).tolist()
    for row in table.operators:
        row.scores[1] += 0.03
    wide = Goals(table.operators, table)
    error = table.seed_std / math.sqrt(2)
    assert 0.01 < error < 0.03
    assert wide.top.sum() == 1 + int(error / 0.01)


# --- the authors' tree search


def test_the_tree_proposes_every_operator_once(table: Table) -> None:
    space = TableSpace(table.operators[:60])
    lattice = Lattice(space)
    tree = AuthorsTree(3, lattice)
    told: list[tuple[int, float]] = []
    while chosen := tree.choose(space, History(told=told), 3):
        told += [(choice.index, (choice.index % 7) / 7) for choice in chosen]
    assert sorted(index for index, _ in told) == list(range(60))


def test_the_engines_tree_proposes_what_the_table_has_and_counts_what_it_lacks() -> None:
    rows = read_table().operators[:40]
    space = TableSpace(rows)
    tree = EngineTree(3, space.keys, AUTHORS_EXPLORATION)
    told: list[tuple[int, float]] = []
    while chosen := tree.choose(space, History(told=told), 3):
        told += [(choice.index, (choice.index % 7) / 7) for choice in chosen]
    found = [index for index, _ in told]
    assert sorted(found) == list(range(40))
    # The space has more operators than these; each of the others was rejected once.
    spec = _core.Spec.from_json((OPBENCH / "spec.json").read_text())
    assert tree.rejected == len(_core.enumerate_operators(spec, max_steps=7).operators) - 40


def test_stopped_trainings_cost_their_share_and_only_whole_ones_count(table: Table) -> None:
    rows = table.operators[:12]
    earlier = fidelity.full(rows, [])
    assert [one.share for one in earlier] == [1.0] * 12
    assert [one.curve[-1][1] for one in earlier] == [row.scores[0] for row in rows]
    for keep in (1 / 2, 1 / 3):
        for row, one in zip(rows, fidelity.halving(keep)(rows, earlier), strict=True):
            whole = fidelity.whole_curve(row)
            assert one.curve == whole[: len(one.curve)]
            assert one.share == one.curve[-1][0]
            passed = one.curve if one.share == 1 else one.curve[:-1]
            for place, (share, value) in enumerate(passed):
                if share < 1:
                    others = sorted((o.curve[place][1] for o in earlier), reverse=True)
                    assert value >= others[int(keep * 12) - 1]
    together = fidelity.brackets(rows, [])
    assert [sum(one.share >= s for one in together) for s in (0.25, 0.5, 0.75, 1)] == [12, 6, 3, 1]
    best = max(range(12), key=lambda i: fidelity.whole_curve(rows[i])[0][1])
    assert together[best].share > 0.25


def test_searches_with_fidelity_end_with_one_of_the_top(table: Table) -> None:
    small = Table(table.operators[::6], table.baseline)
    found = fidelity.compare(small, 4, ["random"], ["to the end", "halving, best 1/2"])
    whole, stopped, extrapolated = found
    assert whole["cost"] == whole["begun"] and whole["top stopped"] == 0
    assert stopped["cost"] < stopped["begun"]
    # What random search begins does not depend on what it is told.
    assert {k: v for k, v in stopped.items() if k != "told"} == {
        k: v for k, v in extrapolated.items() if k != "told"
    }


def test_partial_operators_lead_only_where_an_operator_is(table: Table) -> None:
    space = TableSpace(table.operators[:80])
    lattice = Lattice(space)
    seen, todo = {0}, [0]
    reached = set()
    while todo:
        node = todo.pop()
        moves = lattice.moves(node)
        assert moves, "a dead end"
        for kind, step in moves:
            if step < 0:
                assert kind == "stop"
                reached.add(-1 - step)
            elif node | 1 << step not in seen:
                seen.add(node | 1 << step)
                todo.append(node | 1 << step)
    assert reached == set(range(80))


def test_searches_are_judged_the_same_again_and_better_with_a_surrogate(table: Table) -> None:
    names = ["random", "authors' MCTS", "bayesian"]
    small = Table(table.operators[::3], table.baseline)
    setting = SETTINGS[1]
    first = compare(small, setting, 3, names)
    assert compare(small, setting, 3, names) == first
    found = {name: row["top"]["mean"] for name, row in first["policies"].items()}
    assert found["bayesian"] < found["random"]
