"""``syno.Space``: the operators that may stand in for some layers, and everything that limits them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.errors import FormatError, SpecError, shown
from syno.searching.space_settings import BUDGETS, EXTENSIONS, THRESHOLDS, Settings, rule_classes
from syno.support.files import read_input, write_output
from syno.support.notebook import table

if TYPE_CHECKING:
    from syno import _core
    from syno.torch import SiteGroup

_LARGEST_BYTES = 16 << 20


class Space:
    """The operators of one signature, and what limits them: budgets, thresholds, extensions, rules. Immutable.

    Made from a group of layers (:meth:`of`, ``group.space()``), a file or a name (:meth:`load`) or JSON; :meth:`with_`
    gives one with other settings. ``print(space)`` shows what it holds and what each limit means.
    :func:`syno.sample` and :func:`syno.enumerate` give its operators, ``syno.search(space=…)`` searches it.

    Example:
        >>> import syno
        >>> space = syno.Space.load("test").with_(max_steps=5, rules={"shift-above-reduce": False})
        >>> space.budgets["max_steps"]
        5
    """

    __slots__ = ("_plain", "_spec")

    def __init__(self, spec: _core.Spec) -> None:
        self._spec = spec
        self._plain: dict[str, Any] = json.loads(spec.to_json())

    @classmethod
    def of(cls, group: SiteGroup, **settings: Any) -> Space:
        """The space of a group of layers, as ``group.space(...)`` gives it.

        Args:
            group: one of ``syno.sites(model, example).groups()``.
            settings: what ``group.space`` takes by name: budgets, thresholds, extensions, rules.
        """
        return group.space(**settings)

    @classmethod
    def load(cls, source: str | Path) -> Space:
        """The space in a ``.json`` or ``.toml`` file, or one of those that have a name.

        Args:
            source: of the file, or the name.
        Raises:
            UnknownName: neither a file nor a name; lists the names.
            FormatError: the file cannot be read, or holds no space.
            SpecError: its space contradicts itself; ``source`` is no text.
        """
        from syno.operators.explain import read_spec

        if not isinstance(source, str | Path):
            raise SpecError(f"[space] {shown(source)} is neither a file nor a name")
        path = Path(source)
        if path.suffix.lower() != ".toml" or not path.is_file():
            return cls(read_spec(str(source)))
        import msgspec

        try:
            plain = msgspec.toml.decode(read_input(path, "space", _LARGEST_BYTES))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise FormatError(f"[space] {path} is not TOML: {error}") from None
        return cls.from_json(json.dumps(_numbers(plain), default=str))

    @classmethod
    def from_json(cls, text: str) -> Space:
        """Reads what :meth:`to_json` writes, strictly.

        Args:
            text: the JSON.
        Raises:
            FormatError: a key is unknown or a value has the wrong type, with the path of the value.
            SpecError: it contradicts itself, with the values and what would work.
            UnknownName: an extension or rule that does not exist.
        """
        from syno import _core

        return cls(_core.Spec.from_json(text))

    def to_json(self) -> str:
        """Everything, as JSON."""
        return self._spec.to_json()

    def save(self, path: str | Path) -> Path:
        """Writes a ``.json`` or ``.toml`` file that :meth:`load` and ``syno search --spec`` read, whole or not at all.

        Args:
            path: of the file, which is replaced where it is there; its suffix decides the format.
        Returns:
            The path.
        Raises:
            FormatError: another suffix, or the file cannot be written.
        """
        target = Path(path)
        suffix = target.suffix.lower()
        if suffix == ".json":
            text = self.to_json()
        elif suffix == ".toml":
            import msgspec

            text = msgspec.toml.encode(_texts(self._plain)).decode()
        else:
            raise FormatError(f"[space] {shown(str(path))}: the suffix must be one of .json, .toml")
        write_output(target, text.rstrip("\n") + "\n", "space")
        return target

    def with_(self, **settings: Any) -> Space:
        """The same space with other settings.

        Args:
            extensions: names of those to have, and no others; or a dictionary of name and ``True`` or ``False``.
            rules: a dictionary of name and ``True`` (on) or ``False`` (off).
            thresholds, budgets: dictionaries of name and number; ``None`` for no limit.
            settings: single budgets, thresholds and extensions by name: ``max_steps=9, max_window=7, tile=True``.
        Raises:
            UnknownName: a name that does not exist; lists those that do.
            SpecError: a value of another type, or out of its range; or settings that contradict each other.
        """
        return self.set(Settings.of(settings))

    def set(self, settings: Settings) -> Space:
        """As :meth:`with_`, for settings that were read before: those of a configuration file or of the command line.

        Args:
            settings: what ``Settings.of`` made of them.
        """
        return Space.from_json(settings.applied(self.to_json()))

    @property
    def spec(self) -> _core.Spec:
        """The engine's form, for :mod:`syno.synthesis`."""
        return self._spec

    @property
    def name(self) -> str:
        """For people; may be empty."""
        return self._spec.name

    @property
    def valuations(self) -> list[dict[str, int]]:
        """Values of the size variables; one operator serves all of them."""
        return [dict(values) for values in self._plain["valuations"]]

    @property
    def budgets(self) -> dict[str, float | None]:
        """Limits of each operator; ``None``: no limit."""
        return dict(self._plain["budgets"])

    @property
    def thresholds(self) -> dict[str, float | None]:
        """Where rules begin to judge."""
        return dict(self._plain["thresholds"])

    @property
    def extensions(self) -> list[str]:
        """Those that are on."""
        return list(self._plain["extensions"])

    @property
    def rules(self) -> dict[str, bool]:
        """Every rule, and whether it is on."""
        off = set(self._plain["disabled_rules"])
        return {name: name not in off for name in sorted(rule_classes())}

    def shapes(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Input and output shape at each valuation."""
        return shapes_of(self._plain)

    def why_empty(self) -> str | None:
        """Why it has no operator, with the limits that would let some in; ``None`` where it has one."""
        from syno.searching.proposers import why_empty

        return why_empty(self._spec)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what :meth:`to_json` writes."""
        plain: dict[str, Any] = json.loads(self.to_json())
        return plain

    def __eq__(self, other: object) -> bool:
        return self._spec == other._spec if isinstance(other, Space) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __reduce__(self) -> tuple[Any, ...]:
        return (Space.from_json, (self.to_json(),))

    def __repr__(self) -> str:
        return f"<Space {self._title()}>"

    def __str__(self) -> str:
        lines = [f"Space {self._title()}"]
        for heading, columns, rows in self._tables():
            lines += ["", heading]
            widths = [max(len(row[i]) for row in rows) for i in range(len(columns) - 1)]
            for row in rows:
                cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
                lines.append("  " + "  ".join([*cells, row[-1]]).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        import html

        parts = [f"<p>Space {html.escape(self._title())}</p>"]
        for heading, columns, rows in self._tables():
            parts += [f"<p>{html.escape(heading)}</p>", table(columns, rows)]
        return f"<div>{''.join(parts)}</div>"

    def _title(self) -> str:
        sides = [
            "[" + ", ".join(d["extent"] for d in self._plain[side]) + "]"
            for side in ("input", "output")
        ]
        count = len(self._plain["valuations"])
        named = f"{self.name!r}: " if self.name else ""
        return f"{named}{' -> '.join(sides)}, {count} valuation{'s' * (count != 1)}"

    def _tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        """Heading, columns and rows of each part."""
        variables = [
            [v["name"], v["kind"], str(v["occurrences"]), _values(v["name"], self.valuations)]
            for v in self._plain["variables"]
        ]
        classes = rule_classes()
        off = sorted(name for name, on in self.rules.items() if not on)
        counts: dict[str, int] = {}
        for name, (kind, _) in classes.items():
            counts[kind] = counts.get(kind, 0) + (name not in off)
        on = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
        parts = [
            (
                "variables: kind, uses by an operator, values",
                ["variable", "kind", "uses", "values"],
                variables,
            ),
            (
                "budgets: of an operator, at most",
                ["budget", "value", "limits"],
                _limits(self.budgets, BUDGETS),
            ),
            (
                "thresholds: what rules compare with, at most",
                ["threshold", "value", "limits"],
                _limits(self.thresholds, THRESHOLDS),
            ),
            (
                "extensions: what operators may have beside the basic primitives",
                ["extension", "", "allows"],
                [
                    [name, "on" if name in self.extensions else "off", EXTENSIONS.get(name, "")]
                    for name in sorted({*EXTENSIONS, *self.extensions})
                ],
            ),
        ]
        rows = [[name, "off", *classes[name]] for name in off]
        rules = (f"rules: on are {on}", ["rule", "", "class", "says"], rows)
        return [*parts, rules]


def shapes_of(plain: Mapping[str, Any]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Input and output shape at each valuation of a space that is plain data."""
    return [
        (
            tuple(_extent(dim["extent"], values) for dim in plain["input"]),
            tuple(_extent(dim["extent"], values) for dim in plain["output"]),
        )
        for values in plain["valuations"]
    ]


def as_space(value: Any) -> Space:
    """A space, the one of a group of sites, of a spec, of a file, or of a name.

    Raises:
        SpecError: none of these.
    """
    from syno import _core

    if isinstance(value, Space):
        return value
    if isinstance(value, _core.Spec):
        return Space(value)
    if isinstance(value, str | Path):
        return Space.load(value)
    if hasattr(value, "space") and hasattr(value, "valuations"):
        made = value.space()
        assert isinstance(made, Space)
        return made
    raise SpecError(
        f"[space] {shown(value)} is no space; give a syno.Space, a group of sites, a file, or a name"
    )


def _values(name: str, valuations: list[dict[str, int]]) -> str:
    distinct = list(dict.fromkeys(str(values[name]) for values in valuations))
    return ", ".join(distinct[:12]) + (", …" if len(distinct) > 12 else "")


def _limits(limits: Mapping[str, float | None], meanings: Mapping[str, str]) -> list[list[str]]:
    return [
        [name, "no limit" if value is None else f"{value:,.6g}", meanings.get(name, "")]
        for name, value in limits.items()
    ]


def _extent(text: str, values: Mapping[str, int]) -> int:
    """The value of a product of variables, ``s*H`` or ``C_in*s^-1``."""
    above = below = 1
    for factor in text.split("*"):
        name, _, power = factor.strip().strip("()").partition("^")
        exponent = int(power.strip("()")) if re.fullmatch(r"\(?-?\d{1,3}\)?", power) else 1
        value = values[name] if name in values else int(name)
        above, below = (
            (above * value**exponent, below) if exponent >= 0 else (above, below * value**-exponent)
        )
    return above // below


def _texts(value: Any) -> Any:
    """TOML has no null: ``"none"``."""
    if isinstance(value, dict):
        return {name: _texts(item) for name, item in value.items()}
    return "none" if value is None else value


def _numbers(plain: dict[str, Any]) -> dict[str, Any]:
    """The inverse of :func:`_texts`."""
    limits = {
        kind: {name: None if value == "none" else value for name, value in plain[kind].items()}
        for kind in ("budgets", "thresholds")
        if isinstance(plain.get(kind), dict)
    }
    return {**plain, **limits}


__all__ = ["Space", "as_space", "shapes_of"]
