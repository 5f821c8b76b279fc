"""The operators that people have named, for one space: at every value its coefficients allow."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from syno.errors import SpecError, SynoError, unknown_name
from syno.known.steps import Sizes, Step, Steps, inverse

if TYPE_CHECKING:
    from syno import _core

#: Trained beside the operators that a search finds, unless something else is asked for.
DEFAULT_KNOWN = ("grouped", "bottleneck", "separable")

#: Of layers whose window is not the same along every axis.
MIXED = "mixed"

#: Most variables, counted with their exponents, in a value of a coefficient: ``s*g^2`` has three.
_MOST_FACTORS = 4


@dataclass(frozen=True)
class Known:
    """A known operator at one choice of values.

    Attributes:
        label: it is called by, with its values: ``"grouped(g=4)"``.
        kind: one of :data:`NAMES`, which ``known=`` takes.
        graph: the operator; ``None`` where it cannot be built.
        problem: why it cannot; empty where it can.
    """

    label: str
    kind: str
    graph: _core.PGraph | None = None
    problem: str = ""


@dataclass(frozen=True)
class Value:
    """A coefficient's value: a size over the space's variables, and what it is at every valuation."""

    text: str
    values: tuple[int, ...]

    def __str__(self) -> str:
        return str(self.values[0]) if len(set(self.values)) == 1 else self.text


class Place:
    """What known operators have to fit: a space's shapes and the values that its coefficients can have.

    Args:
        spec: the space.
        window: the size of the layers' own window along every axis, such as ``"k"``; ``"1"``: they have none,
            ``"mixed"``: it is not the same along every axis.
    """

    def __init__(self, spec: _core.Spec, window: str = "") -> None:
        content = json.loads(spec.to_json())
        self.spec = spec
        variables = [(v["name"], v["kind"]) for v in content["variables"]]
        self.sizes = Sizes(variables, content["valuations"])
        self.coefficients = [name for name, kind in variables if kind == "coefficient"]
        self.window = window or next((n for n in self.coefficients if n.startswith("k")), "1")
        channels = [
            self.sizes.values(dim["extent"])
            for dim in [*content["output"], *content["input"]]
            if dim.get("unordered")
        ]
        self.least_channels = min((min(values) for values in channels), default=1)

    def values(self, *, windows: bool = False) -> list[Value]:
        """Values that products of coefficients have, from 2 to the fewest channels, each once, the smallest first, in
        the simplest form.

        Args:
            windows: those that windows have a part in, too, and the two simplest forms of a value.
        """
        names = [n for n in self.coefficients if windows or not n.startswith("k")]
        found: dict[tuple[int, ...], list[str]] = {}
        for text in _products(names):
            try:
                values = self.sizes.values(text)
            except SynoError:
                continue
            if min(values) > 1 and max(values) <= self.least_channels:
                found.setdefault(values, []).append(text)
        ordered = sorted(found.items(), key=lambda item: (item[0], item[1][0]))
        return [
            Value(text, v) for v, texts in ordered for text in (texts if windows else texts[:1])
        ]


def _products(names: Sequence[str]) -> Iterator[str]:
    """``s``, ``g``, ``s^2``, ``s*g``, ``s^-1*g``, …: the simplest first."""
    rows = [
        exponents
        for exponents in itertools.product(range(-2, _MOST_FACTORS + 1), repeat=len(names))
        if 0 < sum(map(abs, exponents)) <= _MOST_FACTORS
    ]
    rows.sort(key=lambda row: (sum(map(abs, row)), sum(e < 0 for e in row), [-e for e in row]))
    for row in rows:
        parts = [(n if e == 1 else f"{n}^{e}") for n, e in zip(names, row, strict=True) if e]
        yield "*".join(parts)


def _named(name: str) -> Callable[..., _core.PGraph]:
    def build(place: Place, **sizes: str) -> _core.PGraph:
        from syno import _core

        return _core.named_operator(name, place.spec, sizes)

    return build


def _bottleneck_inside(place: Place, **sizes: str) -> _core.PGraph:
    """Pointwise to ``shrink`` times fewer channels, then the convolution."""
    from syno import _core

    made = Steps.of(_core.named_operator("bottleneck_conv", place.spec, sizes))
    second, first = made.weights  # the pointwise one, and that with the windows
    middle, channel = second.of[0], first.of[0]
    windows = first.of[1:]
    extent = f"{_extent_of(made, channel)}*{inverse(sizes['shrink'])}"
    steps = []
    for step in made.steps:
        if step == second:
            step = replace(step, of=(middle, *windows))
        elif step == first:
            step = replace(step, of=(channel,))
        elif middle in step.made:
            step = replace(step, size=extent)
        steps.append(step)
    made.steps = steps
    return made.graph()


def _bottleneck_in_space(place: Place, **sizes: str) -> _core.PGraph:
    """The convolution at every ``block``-th place alone, whose result stands for the block. Where its window would
    leave places out it is as wide as the gaps, and of layers that have none the sum over the block."""
    from syno import _core

    block = sizes.pop("block")
    made = Steps.of(_core.named_operator("conv", place.spec, sizes))
    fixed = {out for out, _ in _fixed(place.spec)}
    matched = {name for weight in made.weights for name in weight.matched}
    space = [n for i, n in enumerate(made.names) if i not in fixed and n not in matched]
    if not space:
        raise SpecError("[known operators] the layers have no places to leave out")
    window = place.sizes.values(sizes["kernel"])
    for name in space:
        stride = next((s for s in made.steps if s.kind == "stride" and name in s.of), None)
        strided = name if stride is None else stride.made[0]
        slide = next((s for s in made.steps if s.kind == "unfold" and s.of[0] == strided), None)
        read = strided if slide is None else slide.made[0]
        gaps = block if stride is None else f"{block}*{stride.size}"  # two Strides are one
        made.steps = [step for step in made.steps if step not in (stride, slide)]
        major, minor, kept, new = (made.new() for _ in range(4))
        made.renamed(read, new)
        # Before what else is made of the place, as the parts that a transposed layer has of its output.
        after = next((i for i, s in enumerate(made.steps) if new in s.of), len(made.steps))
        made.steps, rest = made.steps[:after], made.steps[after:]
        made.steps += [
            Step("merge", made=(major, minor), of=(name,), size=block),
            Step("expand", of=(minor,)),
        ]
        pairs = zip(place.sizes.values(gaps), window, strict=True)
        if _leaves_out(place.spec) or all(gap <= taps for gap, taps in pairs):
            last = kept if slide is not None else new
            made.steps.append(Step("stride", made=(last,), of=(major,), size=gaps))
            if slide is not None:
                made.steps.append(replace(slide, made=(new,), of=(kept, slide.of[1])))
        else:
            if slide is None:
                made.steps.insert(0, Step("reduce", made=(kept,), size=gaps))
            else:
                kept = slide.of[1]
                made.steps = [replace(s, size=gaps) if kept in s.made else s for s in made.steps]
            made.steps.append(Step("split", made=(new,), of=(major, kept)))
        made.steps += rest
    return made.graph()


def _shift(place: Place, **sizes: str) -> _core.PGraph:
    """A pointwise convolution of the neighbour one place on along every axis; of layers that stride, of the sum over
    the places that an output stands for: alone, a place would leave the others without any use."""
    from syno import _core

    made = Steps.of(_core.named_operator("conv1x1", place.spec))
    if not _leaves_out(place.spec):
        made.steps = [part for step in made.steps for part in _summed(made, step)]
    fixed = {i for _, i in _fixed(place.spec)}
    summed = {name for weight in made.weights for name in weight.of}
    moved = [i for i, name in enumerate(made.input) if i not in fixed and name not in summed]
    if not moved:
        raise SpecError("[known operators] the layers have no places to shift")
    for i in moved:
        name = made.new()
        made.steps.append(Step("shift", made=(name,), of=(made.input[i],), size="1"))
        made.input[i] = name
    return made.graph()


def _leaves_out(spec: _core.Spec) -> bool:
    """Whether the layers themselves leave places out: a window narrower than its stride."""
    return "discards-data" in json.loads(spec.to_json())["disabled_rules"]


def _summed(made: Steps, step: Step) -> Iterator[Step]:
    """In the place of a Stride, the sum over the places that it leaves out; any other step as it is."""
    if step.kind != "stride":
        yield step
        return
    part = made.new()
    yield Step("reduce", made=(part,), size=step.size)
    yield Step("split", made=step.made, of=(step.of[0], part))


def _extent_of(made: Steps, name: str) -> str:
    step = made.makes(name)
    assert step is not None
    return step.size


def _fixed(spec: _core.Spec) -> list[tuple[int, int]]:
    return [(int(a), int(b)) for a, b in json.loads(spec.to_json())["fixed"]]


@dataclass(frozen=True)
class Kind:
    """A known operator: how it is built, and which coefficients it has beside its window."""

    name: str
    label: str
    build: Callable[..., _core.PGraph]
    coefficients: tuple[str, ...] = ()
    letters: tuple[str, ...] = ()
    """Of the coefficients, in a label."""
    windowed: bool = True
    """Without a window it is another one, or none."""
    trained: bool = True
    """Whether it may stand beside those that a search finds; others are known by name only."""


_GROUPS, _SHRINK = ("groups",), ("shrink",)

KINDS = (
    Kind("grouped", "grouped", _named("grouped_conv"), _GROUPS, ("g",), windowed=False),
    Kind("bottleneck", "bottleneck", _named("bottleneck_conv"), _SHRINK, ("s",), windowed=False),
    Kind("separable", "separable", _named("separable_conv")),
    Kind("bottleneck", "bottleneck inside", _bottleneck_inside, _SHRINK, ("s",)),
    Kind("bottleneck", "bottleneck in space", _bottleneck_in_space, ("block",), ("b",), False),
    Kind("dilated", "dilated", _named("dilated_conv"), ("dilation",), ("d",)),
    Kind("operator1", "Operator 1", _named("operator1"), _GROUPS + _SHRINK, ("g", "s"), False),
    Kind("operator2", "Operator 2", _named("operator2"), _GROUPS + _SHRINK, ("g", "s")),
    Kind("stacked", "stacked", _named("stacked_conv"), _GROUPS + _SHRINK, ("g", "s")),
    Kind("shift", "shift + pointwise", _shift, windowed=False),
    Kind("pointwise", "pointwise", _named("conv1x1"), windowed=False),
    Kind("depthwise", "depthwise", _named("depthwise_conv")),
    Kind("dense", "dense", _named("conv"), windowed=False, trained=False),
    Kind("pool", "average pooling", _named("average_pool"), windowed=False, trained=False),
)

#: Names that ``known=`` takes.
NAMES = tuple(dict.fromkeys(kind.name for kind in KINDS if kind.trained))

#: ... and the windows that some of them have none of: built once, whatever the window.
_NO_WINDOW = ("pointwise", "shift", "pool")


def chosen(known: str | Sequence[str] | None) -> tuple[str, ...]:
    """Names of known operators, each once, in the order of :data:`NAMES`.

    Args:
        known: names, or a text of them between commas; ``"all"``, ``"none"``; ``None``: the usual ones.
    Raises:
        UnknownName: there is no such known operator; says which there are.
        SpecError: it is neither a text nor a sequence of texts.
    """
    if known is None:
        return DEFAULT_KNOWN
    if isinstance(known, str):
        known = [part.strip() for part in known.split(",") if part.strip()]
    names: list[str] = list(known) if isinstance(known, Iterable) else [""]
    if not isinstance(known, Iterable) or not all(isinstance(name, str) for name in names):
        raise SpecError(
            f"[search] known={known!r} is no list of names; give some of {', '.join(NAMES)}, or 'all' or 'none'"
        )
    if names == ["all"]:
        return NAMES
    if names == ["none"]:
        return ()
    for name in names:
        if name not in NAMES:
            raise unknown_name("known operator", name, [*NAMES, "all", "none"])
    return tuple(name for name in NAMES if name in names)


def known_operators(place: Place, names: Sequence[str]) -> list[Known]:
    """The known operators of these names at every value of their coefficients, one of each name in turn.

    Within a name the values ascend. What cannot be built is there, with the reason.

    Args:
        place: the space's shapes, and the values that its coefficients can have.
        names: some of :data:`NAMES`, as :func:`chosen` gives them.
    """
    rows: dict[str, list[Known]] = {}
    for name in names:
        kinds = [
            list(at_every_size(kind, place)) for kind in KINDS if kind.name == name and kind.trained
        ]
        rows[name] = [one for turn in itertools.zip_longest(*kinds) for one in turn if one]
    turns = itertools.zip_longest(*rows.values())
    return [one for turn in turns for one in turn if one is not None]


def at_every_size(kind: Kind, place: Place) -> Iterator[Known]:
    """An operator at every value that the space gives its coefficients; those that cannot be built say why."""
    if place.window == MIXED:
        yield Known(
            kind.label, kind.name, problem="the layers' window is not the same along every axis"
        )
        return
    if kind.windowed and place.window == "1":
        yield Known(kind.label, kind.name, problem="the layers have no window")
        return
    values = place.values()
    if kind.coefficients and not values:
        yield Known(
            kind.label,
            kind.name,
            problem="no coefficient of these layers has a value above 1: their channels share no factor",
        )
    for row in itertools.product(values, repeat=len(kind.coefficients)):
        if math.prod(max(v.values) for v in row) <= place.least_channels:
            yield built(kind, place, row, place.window)


def built(kind: Kind, place: Place, row: Sequence[Value], window: str) -> Known:
    """A known operator at these values, with this window along every axis."""
    parts = [f"{a}={v}" for a, v in zip(kind.letters, row, strict=True)]
    if window != place.window and kind.name not in _NO_WINDOW:
        parts.append(f"k={Value(window, place.sizes.values(window))}")
    label = kind.label + (f"({', '.join(parts)})" if parts else "")
    sizes = {n: v.text for n, v in zip(kind.coefficients, row, strict=True)}
    try:
        graph = kind.build(place, kernel=window, **sizes)
    except SynoError as error:
        return Known(label, kind.name, problem=_short(str(error)))
    return Known(label, kind.name, graph)


def _short(text: str) -> str:
    """An error's first sentence, without the place that raised it."""
    text = " ".join(text.split())
    return text.partition("] ")[2] if text.startswith("[") and "] " in text else text


__all__ = [
    "DEFAULT_KNOWN",
    "KINDS",
    "NAMES",
    "Kind",
    "Known",
    "Place",
    "Value",
    "at_every_size",
    "built",
    "chosen",
    "known_operators",
]
