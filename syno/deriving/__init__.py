"""Programs that compute what an operator computes with fewer or cheaper operations, found by rewriting it.

>>> from syno.operators.operator import Operator
>>> op = Operator.parse("y[i,j] = exp(x[i,j]) / sum[k] exp(x[i,k])", i=8, j=32, k=32)
>>> found = derive(op, states=50, measure=0)
>>> found.best() is found.original
True
"""

from __future__ import annotations

from syno.deriving.derivations import Derivations, Derived, Step
from syno.deriving.search import derive, rules

__all__ = ["Derivations", "Derived", "Step", "derive", "rules"]
