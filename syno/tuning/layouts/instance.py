"""One choice of all parameters of a template of layouts, as a value with a text.

>>> choice = Instance.parse("convolution(h=4, w=2x8, o=16)")
>>> choice.tiles["w"], choice.tiles["o"]
((2, 8), (16,))
>>> str(choice)
'convolution(h=4, w=2x8, o=16)'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from syno.errors import ParseError, shown, unknown_name

#: Kinds of operators that have a template.
KINDS = ("convolution", "product")

_WHOLE = re.compile(r"\s*([a-z]+)\s*\((.*)\)\s*", re.DOTALL)
_PART = re.compile(r"\s*([a-z]+)\s*=\s*([1-9][0-9]{0,8}(?:x[1-9][0-9]{0,8})*)\s*")


@dataclass(frozen=True)
class Instance:
    """Tiles by parameter, innermost last: one number a level.

    Attributes:
        kind: of the operator, "convolution" or "product".
        tiles: by the parameter's name, such as `{"h": (4,), "w": (2, 8)}`.
    """

    kind: str
    tiles: Mapping[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiles", MappingProxyType(dict(self.tiles)))

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        parts = (f"{name}={'x'.join(map(str, tile))}" for name, tile in self.tiles.items())
        return f"{self.kind}({', '.join(parts)})"

    @classmethod
    def parse(cls, text: str) -> Instance:
        """Reads it back; whether it fits an operator is said by that one's template.

        Args:
            text: as it prints: `convolution(h=4, w=2x8, o=16)`.
        Raises:
            ParseError: it is no such text, or names a parameter twice.
            UnknownName: there is no template of this kind.
        """
        found = _WHOLE.fullmatch(text)
        if found is None:
            raise ParseError(
                f"[layouts] {shown(text)} is no choice of layouts; write 'convolution(h=4, w=2x8, o=16)'"
            )
        kind, inside = found.groups()
        if kind not in KINDS:
            raise unknown_name("template", kind, KINDS)
        tiles: dict[str, tuple[int, ...]] = {}
        for part in inside.split(",") if inside.strip() else ():
            one = _PART.fullmatch(part)
            if one is None or one[1] in tiles:
                why = "names a parameter twice" if one else "is no 'name=number' or 'name=2x8'"
                raise ParseError(f"[layouts] {shown(part.strip())} in {shown(text)} {why}")
            tiles[one[1]] = tuple(int(number) for number in one[2].split("x"))
        return cls(kind, tiles)
