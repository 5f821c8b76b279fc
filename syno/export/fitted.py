"""Plain data at all sizes, from what it is at some: its numbers as formulas of the sizes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from syno.errors import FormatError, ShapeError
from syno.graph.extents import Sizes
from syno.graph.families import Numbers
from syno.graph.ranged_bundle import NUMBER, TEXT

_WHOLE = re.compile(r"(\d+)")


class Fit:
    """Documents that differ in whole numbers alone as one, with places of numbers.

    Args:
        names: of the sizes, for sentences.
        samples: sizes of the documents; the first ones are those that others differ from in one place, or in several.
    Attributes:
        numbers: whole numbers, or formulas as `syno.graph.ranged_bundle.Span` holds them.
    """

    def __init__(self, names: Sequence[str], samples: Sequence[Sizes]) -> None:
        self.samples = tuple(samples)
        self.numbers: list[Any] = []
        self._known: dict[tuple[int, ...], int] = {}
        self._formulas = Numbers(names, self.samples[0])

    def of(self, documents: Sequence[Any], where: str = "the network") -> Any:
        """What `syno.graph.ranged_bundle.filled` makes each of the documents of.

        Raises:
            FormatError: they differ in something else, or a number follows the sizes in a way that is not known.
        """
        first = documents[0]
        if all(each == first for each in documents):
            return first
        if all(isinstance(each, dict) and each.keys() == first.keys() for each in documents):
            return {
                key: self.of([each[key] for each in documents], f"{key} of {where}")
                for key in first
            }
        if all(isinstance(each, list) and len(each) == len(first) for each in documents):
            named = [str(each.get("name", each.get("stage", n))) if isinstance(each, dict) else str(n) for n, each in enumerate(first)]  # fmt: skip
            return [
                self.of([each[n] for each in documents], f"{named[n]} of {where}")
                for n in range(len(first))
            ]
        if all(isinstance(each, int) and not isinstance(each, bool) for each in documents):
            return {NUMBER: self._number(tuple(documents), where)}
        if all(isinstance(each, str) for each in documents):
            return {TEXT: self._text(documents, where)}
        raise FormatError(f"[export] {where} is something else at some of the sizes")

    def _number(self, column: tuple[int, ...], where: str) -> int:
        if column not in self._known:
            values = dict(zip(self.samples, column, strict=True))
            try:
                formula = self._formulas.formula(values, where)
            except ShapeError as error:
                raise FormatError(f"[export] {error}") from error
            self._known[column] = len(self.numbers)
            self.numbers.append(formula.to_data())
        return self._known[column]

    def _text(self, texts: Sequence[str], where: str) -> list[Any]:
        parts = [_WHOLE.split(each) for each in texts]
        if any(each[::2] != parts[0][::2] for each in parts):
            raise FormatError(f"[export] {where} is another text at some of the sizes")
        made: list[Any] = []
        for n, part in enumerate(parts[0]):
            column = tuple(int(each[n]) if n % 2 else 0 for each in parts)
            same = len(set(column)) == 1
            if same and made and isinstance(made[-1], str):
                made[-1] += part
            else:
                made.append(part if same else self._number(column, where))
        return made


__all__ = ["Fit"]
