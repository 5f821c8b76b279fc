"""A name where an iterator is at home is bound, or the formula is refused; sizes as numbers stay what they are."""

from __future__ import annotations

import itertools
import random
import re

import numpy as np
import pytest

from syno import _core
from syno.errors import ParseError, ShapeError
from syno.operators.operator import Operator

Sizes = dict[str, int]

FORGOTTEN = [
    ("y[i,j] = a[i,k] * b[k,j]", {"i": 3, "j": 3, "k": 3}, "k"),
    ("y[i,j] = a[i,k] * b[k,j] / k", {"i": 3, "j": 3, "k": 3}, "k"),
    ("y[i] = x[j]", {"i": 4, "j": 4}, "j"),
    ("y[i,j] = min[k] a[i,k] + b[k,j]", {"i": 3, "j": 3, "k": 3}, "k"),
    ("y[i] = (sum[k] a[i,k]) / k", {"i": 3, "k": 3}, "k"),
    ("y[h] = x[h+r-1] * w[r]", {"h": 8, "r": 3}, "r"),
    ("y[h] = x[2*h+2*r] * w[r]", {"h": 8, "r": 3}, "r"),
    ("y[h] = sum[r] x[h+r-k/2] * w[k]", {"h": 8, "r": 3, "k": 3}, "k"),
    ("y[h] = x[s*h+2*r] * w[r]", {"h": 8, "r": 3, "s": 2}, "r"),
    ("y[i] = x[i+k]", {"i": 4, "k": 2}, "k"),
    ("y[i] = x[k/2]", {"i": 4, "k": 2}, "k"),
    ("y[i] = x[i] * index(k)", {"i": 4, "k": 2}, "k"),
    ("y[i] = x[inside(i+k, 4)]", {"i": 4, "k": 2}, "k"),
    ("t[k] = a[k] * 2; y[i] = sum[j] x[i,j] / k", {"i": 3, "j": 2, "k": 4}, "k"),
    ("t[s] = a[s]; y[h] = sum[r] x[s*h+r]", {"h": 3, "r": 2, "s": 2}, "s"),
    ("y[i] = sum[j] (x[i,j] * w[k])", {"i": 3, "j": 2, "k": 4}, "k"),
    ("y[i] = exp(sum[j] x[i,j]) * b[j]", {"i": 3, "j": 2}, "j"),
    ("y[i + r] += x[i] * w[k]", {"i": 3, "r": 2, "k": 2}, "k"),
    ("input x[4]; y[a: 3] = x[b]", {"b": 4}, "b"),
]


@pytest.mark.parametrize(("text", "sizes", "name"), FORGOTTEN)
def test_a_forgotten_reduction_is_refused(text: str, sizes: Sizes, name: str) -> None:
    """Whether its extent was given or not: the same sentence, at the place, naming what to write."""
    for given in (sizes, {n: e for n, e in sizes.items() if n != name}):
        with pytest.raises(ParseError, match=rf"'{name}' is bound by no reduction here") as caught:
            Operator.parse(text, **given)
        message = str(caught.value)
        assert f"size({name})" in message and re.search(rf"did you mean `\w+\[{name}\]", message)
        line, caret = message.splitlines()[-2:]
        assert line[len(caret) - 1 :].startswith(name)


def test_a_reduction_that_ends_before_its_iterator_is_named() -> None:
    with pytest.raises(ParseError, match=re.escape("`min[k] (...)`")):
        Operator.parse("y[i,j] = min[k] a[i,k] + b[k,j]", i=3, j=3, k=3)
    both = Operator.parse("y[i,j] = min[k] (a[i,k] + b[k,j])", i=2, j=2, k=3)
    a, b = np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(3, 2)
    assert np.array_equal(both.reference(a, b), (a[:, :, None] + b[None]).min(axis=1))


NUMBERS = [
    ("y[h] = sum[r] x[h+r-(k/2)] * w[r]", {"h": 8, "r": 3, "k": 3}, "k"),
    ("y[h] = sum[r] x[h+r-(k-1)/2] * w[r]", {"h": 8, "r": 3, "k": 3}, "k"),
    ("y[h] = sum[r] x[s*h+r] * w[r]", {"h": 8, "r": 3, "s": 2}, "s"),
    ("y[h] = sum[r] x[s*h+r+s] * w[r]", {"h": 8, "r": 3, "s": 2}, "s"),
    ("y[i] = x[i/g]", {"i": 8, "g": 2}, "g"),
    ("y[i] = x[(i+1)%n]", {"i": 8, "n": 8}, "n"),
    ("y[i] = x[inside(i, n)]", {"i": 8, "n": 8}, "n"),
    ("y[i] = x[i] / n", {"i": 8, "n": 4}, "n"),
    ("y[i] = sum[r: k] x[i+r-k]", {"i": 8, "k": 3}, "k"),
    ("input x[n]; y[i: n] = x[i] * 2", {"n": 8}, "n"),
    ("y[i] = sum[j] x[j*(c*s^-1)+i]", {"i": 2, "j": 2, "c": 4, "s": 2}, "c"),
    ("y[i] = x[i+size(k)]", {"i": 8, "k": 3}, "k"),
    ("y[i] = (sum[k] x[i,k]) / size(k)", {"i": 8, "k": 3}, "k"),
    ("y[h + size(p)] += x[h]", {"h": 4, "p": 2}, "p"),
]


@pytest.mark.parametrize(("text", "sizes", "name"), NUMBERS)
def test_a_size_is_its_number(text: str, sizes: Sizes, name: str) -> None:
    """The formula with the digits in the name's place is the same operator."""
    op = Operator.parse(text, **sizes)
    spelled = re.sub(rf"size\({name}\)", str(sizes[name]), text)
    if not re.search(rf"\[\s*{name}\s*\]", spelled):
        spelled = re.sub(rf"\b{name}\b", str(sizes[name]), spelled)
        sizes = {n: e for n, e in sizes.items() if n != name}
    assert Operator.parse(spelled, **sizes).program.text() == op.program.text()


def test_the_mark_names_one_size_with_a_value() -> None:
    with pytest.raises(ParseError, match=r"`size\(k\)` has no value: give k="):
        Operator.parse("y[i] = x[i+size(k)]", i=4)
    with pytest.raises(ParseError, match="holds one name"):
        Operator.parse("y[i] = x[i+size(k+1)]", i=4, k=2)
    with pytest.raises(ParseError, match="name of a size"):
        Operator.parse("y[i] = x[i] * size(2)", i=4)


def _texts() -> list[tuple[str, Sizes]]:
    """Formulas as the engine prints them, of operators with symbolic sizes."""
    found = []
    for spec_name, name in itertools.product(
        ("resnet18", "simple", "test"), _core.named_operators()
    ):
        spec = _core.spec_named(spec_name)
        names = spec.to_json()
        sizes = {
            what: next(
                v
                for v in ("k_1", "s", "s_1")
                if f'"{v}"' in names and (v[0] == "k") == (what == "kernel")
            )
            for what in ("kernel", "groups", "shrink")
        }
        try:
            graph = _core.named_operator(name, spec, sizes)
        except _core.SynoError:
            continue
        for program in (graph.one_scope(), graph.staged()):
            found.append((program.short_text(), program.valuations[0], program.at(0)))
    return found


def test_what_the_engine_prints_can_be_read() -> None:
    """The short form loses the declarations of sizes; read with their values it is the same operator."""
    texts = _texts()
    read = 0
    for text, sizes, program in texts:
        used = {n: v for n, v in sizes.items() if re.search(rf"\b{n}\b", text)}
        shapes = {name: program.shape(name) for name in program.inputs}
        try:
            again = _core.Program.parse(text, sizes=used, shapes=shapes)
        except ShapeError:  # an extent of a sum that the shapes leave open
            continue
        read += 1
        assert Operator.from_program(again) == Operator.from_program(program), text
    assert read > 20


def test_random_sizes_in_indices_are_read_back() -> None:
    """Sums, products and quotients of sizes beside iterators, marked by the printer where they must be."""
    rng = random.Random(20)
    marked = 0
    for _ in range(300):
        terms = [
            "i",
            "2*j",
            "k",
            "N",
            "k*N",
            "k/2",
            "(N-1)/2",
            "N/k",
            "3*k",
            "i*k",
            "j/N",
            "(i+k)%N",
            "2^-1*N",
        ]
        index = " + ".join(rng.sample(terms, rng.randint(2, 4)))
        body = rng.choice(["", " * N", " + index(k)", " / k", " * i", " + index(i+N)"])
        text = f"size N : primary = 8; size k : coefficient = 3; input x[99]; y[i: N] = sum[j: k] x[{index}]{body}"
        program = _core.Program.parse(text)
        short = program.short_text()
        marked += "size(" in short
        used = {n: v for n, v in {"N": 8, "k": 3}.items() if re.search(rf"\b{n}\b", short)}
        again = _core.Program.parse(short, sizes={**used, "i": 8, "j": 3}, shapes={"x": [99]})
        assert again.structural_key() == program.at(0).structural_key(), (text, short)
    assert 50 < marked < 290
