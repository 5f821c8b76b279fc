"""Sums whose length a call brings along: several terms at a time, what is left one by one, and asking ahead for what a short
call needs."""

from __future__ import annotations

import re

import numpy as np
import pytest

from syno import _core

#: A sum over `n` rows, of `vectors` vectors of sixteen.
SUMS = """
nest sums
parameter n in 1..200
input x: f32[n, {columns}]
output y: f32[{columns}]
register acc: f32[{vectors}, 16]
allocate acc
  for v in 0..{vectors} unroll
    for l in 0..16 vector
      acc[v, l] = 0
  for i in {begin}..n
    for v in 0..{vectors} unroll
      for l in 0..16 vector
        acc[v, l] += x[i, 16 * v + l]
  for v in 0..{vectors} unroll
    for l in 0..16 vector
      y[16 * v + l] = acc[v, l]
"""


def sums(vectors: int, begin: int = 0) -> _core.LoopNest:
    text = SUMS.format(vectors=vectors, columns=16 * vectors, begin=begin)
    return _core.LoopNest.parse(text.lstrip())


@pytest.mark.parametrize("vectors", [1, 2, 8, 20])
@pytest.mark.parametrize("begin", [0, 1])
def test_sums_of_any_length_are_right(vectors: int, begin: int) -> None:
    code = _core.compile_nest(sums(vectors, begin))
    generator = np.random.default_rng(vectors)
    for n in (*range(1, 14), 50, 199):
        x = generator.standard_normal((n, 16 * vectors)).astype(np.float32)
        np.testing.assert_allclose(code.at([n])(x), x[begin:].sum(0), rtol=1e-4, atol=1e-5)


def test_several_terms_share_a_step_of_a_loop_that_a_call_ends() -> None:
    """Of few sums whose rows are near; of many, their adding is enough for a step, and prefetchers follow no step of 2 KiB."""
    cpu = _core.cpu_named("x86-64-v4", "x86_64-linux-gnu")
    for vectors, terms in ((1, 4), (4, 4), (8, 2), (20, 1)):
        code = _core.compile_nest(sums(vectors), cpu=cpu)
        blocks = re.split(r"^\.L\w+:", code.assembly(), flags=re.MULTILINE)
        adds = [len(re.findall(r"\tvaddps\b", block)) for block in blocks]
        assert max(adds) == vectors * terms, (vectors, adds)
