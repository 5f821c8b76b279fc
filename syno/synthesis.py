"""Synthesis by hand: a spec in, operators out, every step explained.

:func:`syno.search` does all of this for a network; here are its parts: the space of operators that a
:class:`Spec` allows, its exhaustive, random and tree search, and the operators that people have named.
"""

from __future__ import annotations

from syno._core import (
    PGraph,
    Spec,
    Tree,
    enumerate_operators,
    explain,
    named_operator,
    named_operators,
    rules,
    sample_operators,
    spec_named,
    spec_names,
)

__all__ = [
    "PGraph",
    "Spec",
    "Tree",
    "enumerate_operators",
    "explain",
    "named_operator",
    "named_operators",
    "rules",
    "sample_operators",
    "spec_named",
    "spec_names",
]
