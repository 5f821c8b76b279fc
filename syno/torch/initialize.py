"""First values for an operator's weights.

With independent weights and inputs of variance 1 an output element has the variance (number of its
terms) x (product of the weights' variances). So each weight's fan-in is the product of the sums that
index it and no weight before it, and the fan-ins multiply to the number of terms.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor

from syno.operators.operator import Operator

# Of PyTorch's own layers: uniform with bound 1/sqrt(fan_in), whose variance is a third of 1/fan_in.
_DEFAULT_VARIANCE = 1.0 / 3.0


def initialize(
    operator: Operator, weights: Mapping[str, Tensor], variance: float | None = None
) -> None:
    """Fills the weights in place, uniformly, from torch's random stream.

    Args:
        operator: concrete.
        weights: by the operator's names.
        variance: wanted of an output element for inputs of variance 1 (borders apart); default what
            PyTorch's layers have, a third.
    """
    if not weights:
        return
    wanted = _DEFAULT_VARIANCE if variance is None or variance <= 0 else variance
    fans, others = fan_in(operator)
    # Sums that no weight takes part in, such as a pooled axis, add to the variance all the same.
    each = (wanted / others) ** (1 / len(weights))
    with torch.no_grad():
        for name, weight in weights.items():
            bound = math.sqrt(3 * each / fans[name])
            weight.uniform_(-bound, bound)


def fan_in(operator: Operator) -> tuple[dict[str, int], float]:
    """Fan-in of every weight, and what the sums that index none of them do to the variance.

    A mean over n terms divides by n squared. An operator without a one-scope form is read scope by
    scope: a sum over an intermediate result belongs to the first weight of its scope.
    """
    fans = dict.fromkeys(operator.weights, 1)
    others = 1.0
    for scope in str((operator.one_scope or operator.program).text()).splitlines():
        reduction = re.search(r"=\s*(sum|mean)\[([^\]]*)\]", scope)
        if reduction is None:
            continue
        extents = dict(map(_extent, reduction[2].split(",")))
        if reduction[1] == "mean":
            others /= math.prod(extents.values()) ** 2
        for name in operator.weights:
            used = _iterators_of(name, scope[reduction.end() :])
            for iterator in sorted(used & set(extents)):
                fans[name] *= extents.pop(iterator)
        others *= math.prod(extents.values())
    return fans, others


def _extent(binding: str) -> tuple[str, int]:
    """Name and extent of `c: 64` or `r: -1..2`."""
    name, _, text = binding.partition(":")
    begin, dots, end = text.partition("..")
    return name.strip(), int(end) - int(begin) if dots else int(text)


def _iterators_of(tensor: str, scope: str) -> set[str]:
    """Names inside the brackets of every read of a tensor."""
    names: set[str] = set()
    for match in re.finditer(rf"\b{re.escape(tensor)}\[", scope):
        depth, end = 1, match.end()
        while depth and end < len(scope):
            depth += (scope[end] == "[") - (scope[end] == "]")
            end += 1
        names |= set(re.findall(r"[A-Za-z_]\w*", scope[match.end() : end]))
    return names
