"""The operator key against a comparison of terms that shares no code with it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from syno import _core

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def equality() -> ModuleType:
    place = ROOT / "benchmarks" / "operator_equality.py"
    spec = importlib.util.spec_from_file_location("operator_equality", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["operator_equality"] = module
    spec.loader.exec_module(module)
    return module


SIZES = [
    {"C_in": 8, "C_out": 16, "H": 12, "k": 3, "s": 2},
    {"C_in": 16, "C_out": 24, "H": 40, "k": 5, "s": 2},
]


def line(**changes: Any) -> Any:
    """Operators along one dimension; some come more than once."""

    def variable(name: str, kind: str, occurrences: int) -> dict[str, Any]:
        return {"name": name, "kind": kind, "occurrences": occurrences}

    document = {
        "variables": [
            variable("C_in", "primary", 2),
            variable("C_out", "primary", 2),
            variable("H", "primary", 0),
            variable("k", "coefficient", 2),
            variable("s", "coefficient", 2),
        ],
        "valuations": [
            {"C_in": 32, "C_out": 32, "H": 24, "k": 3, "s": 2},
            {"C_in": 32, "C_out": 64, "H": 12, "k": 3, "s": 2},
        ],
        "output": [
            {"name": "c", "extent": "C_out", "unordered": True},
            {"name": "h", "extent": "H"},
        ],
        "input": [{"name": "c", "extent": "C_in", "unordered": True}, {"name": "h", "extent": "H"}],
        "budgets": {"max_steps": 4, "min_weight_params": 8},
    }
    return _core.Spec.from_json(json.dumps({**document, **changes}))


def operators(
    equality: ModuleType, spec: Any, steps: int
) -> tuple[list[dict[str, Any]], list[str]]:
    graphs = _core.enumerate_operators(spec, max_steps=steps, operator_keys=False).operators
    return [equality.readable(graph) for graph in graphs], [g.operator_key() for g in graphs]


def test_equal_keys_are_equal_functions_and_different_keys_different_ones(
    equality: ModuleType,
) -> None:
    entries, keys = operators(equality, line(disabled_rules=["split-undoes-merge"]), 4)
    report = equality.compare(entries, keys, SIZES)
    assert report["equal_keys_different_functions"] == []
    assert report["different_keys_equal_functions"] == []
    assert report["not_decided"] == []
    assert report["equal_pairs_checked"] >= 8
    assert report["keys"] >= 30


def test_a_wrong_key_is_noticed(equality: ModuleType) -> None:
    entries, keys = operators(equality, line(), 4)
    chosen = [keys.index(key) for key in sorted(set(keys))[:5]]
    entries, keys = [entries[n] for n in chosen], [keys[n] for n in chosen]
    merged = [keys[0], keys[0], *keys[2:]]
    report = equality.compare(entries, merged, SIZES)
    assert report["equal_keys_different_functions"] == [[0, 1]]
    doubled = [*entries, entries[1]]
    report = equality.compare(doubled, [*keys, "another key"], SIZES)
    assert report["different_keys_equal_functions"] == [[1, len(entries)]]


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("c, h", "c, h", True),
        ("(c + 1) % C_in, h", "c, h", True),  # channels have no order
        ("c, (h + 1) % H", "c, h", False),
        ("c % s * (C_in*s^-1) + c / s, h", "c, h", True),
        ("c / s * s, h", "c, h", False),
        ("c, inside(h + 1, H)", "c, (h + 1) % H", False),
        ("c, h / s * s + h % s", "c, h", True),
    ],
)
def test_functions_are_compared_by_their_terms(
    equality: ModuleType, left: str, right: str, equal: bool
) -> None:
    def terms(index: str) -> Any:
        entry = {
            "loops": [["o", "C_out"], ["h", "H"]],
            "sums": [["c", "C_in"]],
            "reads": [["x", index.split(", ", 1)], ["w1", ["c", "o"]]],
            "shape": ["C_in", "H"],
            "unordered": {"y": [0], "x": [0]},
        }
        if "inside" in index:
            entry["reads"][0][1] = ["c", index.removeprefix("c, ")]  # type: ignore[index]
        return equality.terms_of(entry, SIZES[0])

    assert equality.same(terms(left), terms(right)) is equal
    assert (equality.invariant(terms(left)) == equality.invariant(terms(right))) is equal


def test_weights_may_change_places(equality: ModuleType) -> None:
    def terms(first: list[str], second: list[str]) -> Any:
        entry = {
            "loops": [["o", "C_out"], ["h", "H"]],
            "sums": [["c", "C_in"], ["r", "k"]],
            "reads": [["x", ["c", "inside(h + r - k / 2, H)"]], ["w1", first], ["w2", second]],
            "shape": ["C_in", "H"],
            "unordered": {"y": [0], "x": [0]},
        }
        return equality.terms_of(entry, SIZES[0])

    one, other = ["o", "c"], ["c", "r"]
    assert equality.same(terms(one, other), terms(other[::-1], one)) is True
    assert equality.same(terms(one, other), terms(one, ["o", "r"])) is False
