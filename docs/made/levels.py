"""Operator 1 of the Syno paper at every level, as syno shows it: the same on every machine."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import syno
from syno import synthesis
from syno.operators.explain import explain
from syno.operators.mathematics import mathml

SIZES = {"N": 1, "C_in": 16, "C_out": 16, "H": 14, "W": 14, "k_1": 3, "k_2": 7, "s": 2, "g": 4}
#: Of listings that go on for pages.
LINES = 48


@cache
def _operator() -> tuple[Any, Any]:
    """The operator and its space."""
    document = json.loads(synthesis.spec_named("resnet18").to_json())
    names = {each["name"] for each in document["variables"]}
    document["valuations"] = [{name: size for name, size in SIZES.items() if name in names}]
    spec = synthesis.Spec.from_json(json.dumps(document))
    sizes = {"kernel": "k_1", "groups": "g", "shrink": "s"}
    return syno.Operator.from_pgraph(synthesis.named_operator("operator1", spec, sizes)), spec


@cache
def _derivation() -> Any:
    return explain(*_operator())


def pictures() -> dict[str, str]:
    """SVG files, by name."""
    operator, _ = _operator()
    drawn = {"pgraph.svg": operator._repr_svg_(), "derivation.svg": _derivation().to_svg()}
    assert all(drawn.values()), "a picture is missing"
    return drawn


def fenced(text: str, language: str = "text") -> str:
    """A listing, cut where it is long, which it says."""
    lines = text.strip("\n").splitlines()
    cut = "" if len(lines) <= LINES + 1 else f"\n… and {len(lines) - LINES - 1} more lines"
    return f"```{language}\n" + "\n".join(lines[: LINES + 1]) + cut + "\n```"


def busiest(text: str, word: str) -> str:
    """The part of a long listing that has a word most often, where the work is done."""
    lines = text.strip("\n").splitlines()
    counts = [
        sum(word in line for line in lines[i : i + LINES])
        for i in range(max(1, len(lines) - LINES + 1))
    ]
    first = counts.index(max(counts))
    cut = "\n".join(lines[first : first + LINES])
    return f"# lines {first + 1} to {min(first + LINES, len(lines))} of {len(lines)}\n{cut}"


def figure(name: str, words: str) -> str:
    return f"![{words}]({name})"


def drawn() -> dict[str, str]:
    """The parts of the page, by name."""
    operator, _ = _operator()
    steps = operator.pgraph.text().split("fixed ", 1)[-1].split("\n", 1)[1]
    with syno.config(cpu="x86-64-v3", cache=""):
        concrete = operator.at(0)
        kernel = concrete.compile()
        check = kernel.verify()
        assert check.passed, check
        body = kernel.llvm()
        return {
            "formula": f'<div class="formula">{mathml(operator.latex())}</div>',
            "expression": fenced(operator.expr),
            "pgraph": figure(
                "pgraph.svg",
                "The operator as a graph of coordinates: eleven primitives between output and input.",
            ),
            "pgraph_text": fenced(steps),
            "derivation": figure(
                "derivation.svg",
                "Steps of the derivation with the distance after each, and bars of what was pruned.",
            ),
            "program": fenced(concrete.program.short_text()),
            "schedule": fenced(str(kernel.schedule)),
            "nest": fenced(kernel.loops()),
            "llvm": fenced(body[body.index("define") :], "llvm"),
            "assembly": fenced(busiest(kernel.asm(), "vfmadd"), "gas"),
            "verified": fenced(str(check)),
        }
