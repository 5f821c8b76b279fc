"""Templates of layouts (ALT §5.1): of the three tensors of a convolution or product, from a few tile sizes.

Of a convolution with spatial dimensions H, W (one to three of them), one level:

    output   N (H/h) (W/w) (O/o) h w o
    data     N (H/h) (W/w) (I/i) (h + KH - 1) (w + KW - 1) i     overlapping tiles, by `unfold`
    weight   (O/ko) (I/ki) KH KW ki ko

and of a product C = A B: (M/m)(N/n) m n, (M/m)(K/k) m k, (K/k)(N/n) k n. On two levels h = h2 x h1 and so on: the tiles of
the outer level, h2 w2 o2, lie outside those of the inner one; the data are unfolded by h2 * h1, for a window that reaches
over an inner tile would be kept twice. A window of stride V and size M (dilation included) over a tile of h outputs
is V*(h-1) + M wide, and the next tile begins V*h further; it is padded as far as windows reach. Windows without a
fixed stride (transposed convolutions) leave their dimension of the data whole. A factor divides its dimension.

>>> from syno import _core
>>> program = _core.Program.parse(
...     "y[n,o,h] = sum[c,r] x[n,c,h+r-1] * k[o,c,r]",
...     shapes={"x": [1, 8, 16], "k": [32, 8, 3]}, sizes={"h": 16},
... )
>>> template = Template(program)
>>> [parameter.name for parameter in template.parameters]
['w', 'o', 'i', 'ki', 'ko']
>>> template.layouts(Instance.parse("convolution(w=4, o=16, i=8, ki=8, ko=16)"))["x"]
'pad(2, 1, 1) unfold(2, 6, 4) reorder(0, 2, 3, 1)'
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from syno import _core
from syno.errors import ArgumentError, unknown_name
from syno.tuning.layouts.axes import SPATIAL, Axes, Window, axes_of
from syno.tuning.layouts.instance import Instance

LEVELS = (1, 2)


@dataclass(frozen=True)
class Parameter:
    """One factor that a choice gives. `name` is the letter of the dimension in the templates above, `extent` the dimension's,
    which the factor divides."""

    name: str
    extent: int

    @property
    def divisors(self) -> list[int]:
        return [n for n in range(1, self.extent + 1) if self.extent % n == 0]


@dataclass
class _Laid:
    """Steps on one tensor, dimension by dimension; `parts` are where each one's pieces are."""

    shape: list[int]
    steps: list[str]
    parts: dict[int, list[int]]

    @classmethod
    def of(cls, shape: Sequence[int]) -> _Laid:
        return cls(list(shape), [], {d: [d] for d in range(len(shape))})

    def split(self, dim: int, tile: Sequence[int]) -> None:
        """Pieces of a dimension: how many tiles, then the tile by level."""
        inner = math.prod(tile)
        factors = [self.shape[dim] // inner, *tile]
        at = self.parts[dim][0]
        if sum(factor > 1 for factor in factors) > 1:
            kept = [factor for factor in factors if factor > 1]
            self.steps.append(f"split({at}, {', '.join(map(str, kept))})")
            self._grow(dim, len(kept) - 1)
            places = iter(self.parts[dim])
        else:
            places = iter([at])
        # A piece of one element is nowhere; a dimension of one element is its innermost piece.
        found = [next(places) if factor > 1 else -1 for factor in factors]
        if max(factors) == 1:
            found[-1] = at
        self.parts[dim] = found

    def unfold(self, dim: int, window: Window, tile: int, count: int) -> None:
        """Tiles with all that their windows reach; whole where there is one."""
        if count == 1:
            self.parts[dim] = [-1, self.parts[dim][0]]
            return
        at, stride = self.parts[dim][0], window.stride * tile
        before, shift = max(0, -window.first), max(0, window.first)
        width = max(window.stride * (tile - 1) + window.size + shift, stride)
        after = max(0, stride * (count - 1) + width - before - self.shape[dim])
        if before or after:
            self.steps.append(f"pad({at}, {before}, {after})")
        self.steps.append(f"unfold({at}, {width}, {stride})")
        self._grow(dim, 1)

    def _grow(self, dim: int, more: int) -> None:
        at = self.parts[dim][0]
        for other, places in self.parts.items():
            if other != dim:
                self.parts[other] = [p + more if p > at else p for p in places]
        self.parts[dim] = list(range(at, at + more + 1))

    def text(self, order: Sequence[int]) -> str:
        order = [place for place in order if place >= 0]
        if list(order) != list(range(len(order))):
            self.steps.append(f"reorder({', '.join(map(str, order))})")
        return " ".join(self.steps)


class Template:
    """The layouts of one operator's tensors, from its choices.

    Args:
        program: a concrete one.
        levels: of tiles, 1 or 2.
    Raises:
        ScheduleError: the operator has no template; says which kinds have one.
        ArgumentError: another number of levels.
    """

    def __init__(self, program: _core.Program, levels: int = 1) -> None:
        if levels not in LEVELS:
            raise ArgumentError(f"[layouts] levels={levels!r}", fix="templates have 1 level or 2")
        self.program, self.levels, self.axes = program, levels, axes_of(program)
        self.parameters = tuple(_parameters(program, self.axes))
        owner = _core.moves_with(program)
        group = {self.axes.output, owner.get(self.axes.output, self.axes.output)}
        group |= {name for name, other in owner.items() if other in group}
        self.output = self._in_order(group)
        """What lies as the output does: the sum, and what is elementwise of it."""

    def _in_order(self, names: set[str]) -> tuple[str, ...]:
        shape = list(self.program.shape(self.axes.output))
        there = [name for name in self.program.tensors if name in names]
        return tuple(name for name in there if list(self.program.shape(name)) == shape)

    @property
    def kind(self) -> str:
        return self.axes.kind

    def whole(self) -> Instance:
        """Nothing tiled: channels last."""
        one = (1,) * (self.levels - 1)
        return Instance(self.kind, {p.name: (*one, p.extent) for p in self.parameters})

    def check(self, choice: Instance) -> None:
        """Raises where a choice is not one of this template.

        Args:
            choice: tiles by parameter.
        Raises:
            UnknownName: another kind, or a parameter that this operator does not have.
            ArgumentError: a parameter is missing, has another number of levels, or does not divide its dimension.
        """
        if choice.kind != self.kind:
            raise unknown_name("template of this operator", choice.kind, [self.kind])
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in choice.tiles:
            if name not in known:
                raise unknown_name(f"parameter of this {self.kind}", name, known)
        for name, parameter in known.items():
            tile = choice.tiles.get(name)
            if tile is None:
                raise ArgumentError(
                    f"[layouts] {choice} says nothing of {name}",
                    fix=f"add {name}={parameter.extent}",
                )
            if len(tile) != self.levels:
                raise ArgumentError(
                    f"[layouts] {name}={'x'.join(map(str, tile))} has {len(tile)} level(s)",
                    fix=f"this template has {self.levels}",
                )
            if parameter.extent % math.prod(tile):
                raise ArgumentError(
                    f"[layouts] {name}={'x'.join(map(str, tile))} does not divide {parameter.extent}",
                    fix=f"its divisors are {', '.join(map(str, parameter.divisors))}",
                )

    def layouts(self, choice: Instance) -> dict[str, str]:
        """Layouts by tensor, those first that the program computes; row-major ones are left out.

        Args:
            choice: one of this template.
        Raises:
            UnknownName, ArgumentError: as `check`.
        """
        self.check(choice)
        output = self._of_output(choice)
        made = {name: output for name in self.output}
        made[self.axes.data] = self._of_data(choice)
        made[self.axes.weight] = self._of_weight(choice)
        return {name: text for name, text in made.items() if text}

    def state(self, choice: Instance, decided: int) -> list[int]:
        """The factors of all primitives of all tensors, where the first `decided` parameters are decided (ALT §5.2.1):
        [1, D] for what is whole, [1, what all windows reach] for what is not unfolded.

        Args:
            choice: tiles by parameter; those that are not decided yet do not count.
            decided: how many of `parameters`, from the first one on.
        """
        tiles = {
            p.name: choice.tiles[p.name] if n < decided else (1,) * (self.levels - 1) + (p.extent,)
            for n, p in enumerate(self.parameters)
        }
        made: list[int] = []
        for parameter in self.parameters:
            tile = tiles[parameter.name]
            made += [parameter.extent // math.prod(tile), *tile]
        for name, window in zip(self._row_names(), self.axes.windows, strict=True):
            if window is not None:
                extent = next(p.extent for p in self.parameters if p.name == name)
                rows = math.prod(tiles[name])
                made += [extent // rows, window.stride * (rows - 1) + window.size]
        return made

    # The three tensors

    def _row_names(self) -> list[str]:
        return _row_names(self.axes)

    def _of_output(self, choice: Instance) -> str:
        axes = self.axes
        laid = _Laid.of(self.program.shape(axes.output))
        tiled = dict(zip(axes.rows, self._row_names(), strict=True))
        if axes.channel is not None:
            tiled[axes.channel] = "n" if self.kind == "product" else "o"
        for dim in sorted(tiled, reverse=True):
            laid.split(dim, choice.tiles[tiled[dim]])
        order = [d for d in axes.rows]
        if axes.channel is not None:
            order.append(axes.channel)
        return laid.text(_levels(laid, order, self.levels))

    def _of_data(self, choice: Instance) -> str:
        axes = self.axes
        laid = _Laid.of(self.program.shape(axes.data))
        rows = {d: n for n, d in enumerate(axes.data_rows) if d is not None}
        for dim in sorted(
            {*rows, *([] if axes.data_channel is None else [axes.data_channel])}, reverse=True
        ):
            if dim == axes.data_channel:
                laid.split(dim, choice.tiles["k" if self.kind == "product" else "i"])
                continue
            name, window = self._row_names()[rows[dim]], axes.windows[rows[dim]]
            tile = choice.tiles[name]
            count = self.program.shape(axes.output)[axes.rows[rows[dim]]] // math.prod(tile)
            if window is None:
                laid.parts[dim] = [-1, laid.parts[dim][0]]
            elif window == Window(1, 1, 0) and laid.shape[dim] == count * math.prod(tile):
                laid.split(dim, tile)
            else:
                laid.unfold(dim, window, math.prod(tile), count)
        order = [d for d in axes.data_rows if d is not None]
        if axes.data_channel is not None:
            order.append(axes.data_channel)
        return laid.text(_levels(laid, order, self.levels))

    def _of_weight(self, choice: Instance) -> str:
        axes = self.axes
        laid = _Laid.of(self.program.shape(axes.weight))
        names = ("n", "k") if self.kind == "product" else ("ko", "ki")
        tiled = {
            dim: name for dim, name in zip((axes.weight_output, axes.weight_input), names, strict=True)
            if dim is not None
        }  # fmt: skip
        for dim in sorted(tiled, reverse=True):
            laid.split(dim, choice.tiles[tiled[dim]])
        # Of a product (K/k)(N/n) k n, of a convolution (O/ko)(I/ki) KH KW ki ko.
        inside = [d for d in (axes.weight_input, axes.weight_output) if d is not None]
        outside = inside if self.kind == "product" else inside[::-1]
        first = [d for d in laid.parts if d not in inside and d not in axes.weight_windows]
        order = [p for d in first for p in laid.parts[d]]
        order += [laid.parts[d][0] for d in outside if len(laid.parts[d]) > 1]
        order += [p for d in axes.weight_windows for p in laid.parts[d]]
        for level in range(self.levels):
            order += [_piece(laid.parts[d], level, self.levels) for d in inside]
        return laid.text(order)


def _levels(laid: _Laid, tiled: Sequence[int], levels: int) -> list[int]:
    """All that is not tiled, how many tiles, then the tiles from the outer level to the inner one."""
    order = [p for d in laid.parts if d not in tiled for p in laid.parts[d]]
    order += [laid.parts[d][0] for d in tiled if len(laid.parts[d]) > 1]
    for level in range(levels):
        order += [_piece(laid.parts[d], level, levels) for d in tiled]
    return order


def _piece(parts: Sequence[int], level: int, levels: int) -> int:
    """The tile's piece on a level; what has fewer pieces has its last one on the innermost."""
    inner = list(parts[1:]) if len(parts) > 1 else list(parts)
    at = level - (levels - len(inner))
    return inner[at] if at >= 0 else -1


def _row_names(axes: Axes) -> list[str]:
    if axes.kind == "product":
        return ["m"]
    return list(SPATIAL[len(SPATIAL) - len(axes.rows) :])


def _parameters(program: _core.Program, axes: Axes) -> list[Parameter]:
    """In the order in which they are decided: the output's, the data's, the weight's."""
    output, data, weight = (program.shape(n) for n in (axes.output, axes.data, axes.weight))
    made = [
        Parameter(name, int(output[dim]))
        for name, dim in zip(_row_names(axes), axes.rows, strict=True)
    ]
    product = axes.kind == "product"
    if axes.channel is not None:
        made.append(Parameter("n" if product else "o", int(output[axes.channel])))
    if axes.data_channel is not None:
        made.append(Parameter("k" if product else "i", int(data[axes.data_channel])))
    if not product:
        if axes.weight_input is not None:
            made.append(Parameter("ki", int(weight[axes.weight_input])))
        if axes.weight_output is not None:
            made.append(Parameter("ko", int(weight[axes.weight_output])))
    return made


def nearest(parameter_extent: int, wanted: float) -> int:
    """R of the paper (ALT §5.2.1): the divisor nearest to a number, in ratio; the smaller one of two.

    Args:
        parameter_extent: whose divisor.
        wanted: the number; 0 and less give 1.
    """
    divisors = Parameter("", parameter_extent).divisors
    return min(divisors, key=lambda d: (abs(math.log(d) - math.log(max(wanted, 1e-9))), d))
