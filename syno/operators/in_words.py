"""An operator in a plain sentence: what it reads, and how it differs from the nearest operator that has a name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from syno.errors import SynoError
from syno.operators.explain import _fitting
from syno.operators.features import Features, features
from syno.operators.said import NEAREST

if TYPE_CHECKING:
    from syno import _core

#: What counts for being near, each with the difference that counts as one.
_SCALES = {
    "window_max": 2.0,
    "window_min": 2.0,
    "holes": 0.25,
    "displacement": 1.0,
    "channels_read": 0.25,
    "channels_reached": 0.25,
    "filters": 1.0,
    "kernel_rank": 1.0,
    "weighted_channels": 0.5,
    "weighted_window": 0.5,
    "equivariance": 0.25,
    "weights": 1.0,
    "log_flops": 0.7,
    "log_params": 0.7,
}


#: Multiply-adds of an operator, at the smallest sizes of its spec, whose features are quickly found.
_MOST_FLOPS = 50_000_000


def known_operators(spec: _core.Spec) -> dict[str, Features]:
    """Features of the operators with a name that this spec has room for; none where its layers are so large that each
    would take seconds."""
    from syno import _core
    from syno.operators.operator import Operator

    found = {}
    for name in _core.named_operators():
        try:
            graph = _core.named_operator(name, spec, _fitting(spec, {}))
            made = Operator.from_pgraph(graph)
            least = min(made.program.cost(i).flops for i in range(made.valuation_count))
            if least <= _MOST_FLOPS:
                found[name] = features(graph)
        except SynoError:
            continue
    return found


def in_words(
    graph: _core.PGraph, spec: _core.Spec, known: dict[str, Features] | None = None
) -> str:
    """One or two sentences about a complete pGraph of the spec.

    Args:
        known: :func:`known_operators` of the spec, where they are at hand.
    """
    own = features(graph)
    sentence = f"Each output {_reads(own)}, with {_weights(own)}{_oddities(own)}."
    others = known_operators(spec) if known is None else known
    if not others:
        return sentence
    name = min(others, key=lambda one: (_distance(own, others[one]), one))
    nearest = others[name]
    differs = _differences(own, nearest)
    words = {
        "conv": "convolution",
        "conv1x1": "1x1 convolution",
        "operator1": "Operator 1",
        "operator2": "Operator 2",
    }
    called = " ".join(words.get(word, word) for word in name.split("_"))
    if not differs:
        return f"{sentence} {NEAREST}{called}, from which it differs in the order of its weights at most."
    return f"{sentence} {NEAREST}{called}; {', '.join(differs[:3])}."


def _distance(own: Features, other: Features) -> float:
    mine, theirs = own.to_dict(), other.to_dict()
    return math.sqrt(sum(((mine[n] - theirs[n]) / scale) ** 2 for n, scale in _SCALES.items()))


def _count(value: float) -> str:
    return f"{value:.0f}"


def _reads(own: Features) -> str:
    if own.window_max <= 1:
        place = "reads its own position"
    elif own.window_min == own.window_max:
        place = f"reads a window {_count(own.window_max)} wide"
    else:
        place = f"reads a window {_count(own.window_max)} wide along one axis and {_count(own.window_min)} along another"
    if own.holes > 0.01:
        place += " with holes"
    if own.displacement > 0.5:
        place += f", {own.displacement:.1f} positions away,"
    if own.channels_read > 0.99:
        return f"{place} in all input channels"
    return f"{place} in 1 of {1 / max(own.channels_read, 1e-9):.0f} input channels"


def _weights(own: Features) -> str:
    count = round(own.weights)
    return "no weight" if not count else "one weight" if count == 1 else f"{count} weights"


def _oddities(own: Features) -> str:
    found = []
    if own.weighted_window < 0.99 and own.window_max > 1:
        found.append("neighbours share weights")
    if own.weighted_channels < 0.99:
        found.append("channels share weights")
    if own.rank < 0.99:
        found.append("some output channels repeat others")
    if own.equivariance < 0.99:
        found.append("positions are not treated alike")
    return f"; {', '.join(found)}" if found else ""


def _differences(own: Features, other: Features) -> list[str]:
    """In words: the two of structure that count most, then those of cost."""
    rows: list[tuple[float, str]] = []

    def say(name: str, text: str) -> None:
        apart = abs(getattr(own, name) - getattr(other, name)) / _SCALES[name]
        if apart > 0.2:
            rows.append((apart, text))

    say(
        "window_max",
        f"its window is {_count(own.window_max)} wide instead of {_count(other.window_max)}",
    )
    if own.window_max == other.window_max:
        say(
            "window_min",
            f"its window is {_count(own.window_min)} wide along the narrow axis instead of {_count(other.window_min)}",
        )
    say("holes", "its window has holes" if own.holes > other.holes else "its window has no holes")
    say(
        "displacement",
        f"it looks {own.displacement:.1f} positions away instead of {other.displacement:.1f}",
    )
    say(
        "channels_read",
        f"it reads {own.channels_read:.0%} of the channels instead of {other.channels_read:.0%}",
    )
    more = "more" if own.filters > other.filters else "fewer"
    say("filters", f"it has {more} independent kernels")
    say("weights", f"it has {_weights(own)} instead of {_weights(other)}")
    fewer = own.weighted_window < other.weighted_window
    say("weighted_window", f"{'fewer' if fewer else 'more'} neighbours have a weight of their own")
    alike = "more" if own.equivariance > other.equivariance else "less"
    say("equivariance", f"positions are treated {alike} alike")
    say(
        "log_flops",
        f"it needs {math.exp(own.log_flops - other.log_flops):.2g} times the multiply-adds",
    )
    say(
        "log_params",
        f"it has {math.exp(own.log_params - other.log_params):.2g} times the parameters",
    )
    rows.sort(key=lambda row: -row[0])
    structure = [text for _, text in rows if "times the" not in text]
    return structure[:2] + [text for _, text in rows if "times the" in text]
