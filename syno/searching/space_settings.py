"""What can be set of a search space: which names there are, what each means, and one reading of them all.

The engine has the names and their defaults; what they mean for people stands here.
"""

from __future__ import annotations

import functools
import json
import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from syno.errors import FormatError, SpecError, shown, unknown_name

BUDGETS = {
    "max_steps": "primitives of an operator",
    "max_chain": "primitives in a row above one coordinate",
    "max_weights": "weights",
    "max_reductions": "summations",
    "max_merges": "Merges",
    "max_splits": "Splits",
    "max_shifts": "Shifts",
    "max_strides": "Strides",
    "max_unfolds": "Unfolds (windows)",
    "max_expands": "Expands outside contractions",
    "max_flops": "multiply-adds, of all valuations",
    "min_flops": "multiply-adds at least, of all valuations",
    "max_params": "weight elements, of all valuations",
    "max_bytes": "bytes of all tensors in float32, of all valuations",
    "max_reduction_ratio": "all summed extents over the elements of the input",
    "max_pooling": "summed extents that meet no weight",
    "min_weight_params": "elements of each weight at least",
    "max_variables_in_size": "variables in the size of a coordinate",
    "max_powers_in_size": "sum of the exponents in the size of a coordinate",
    "max_tree_mb": "megabytes of the nodes of a tree search (policy mcts), which then grow no further",
}

THRESHOLDS = {
    "unfold_ratio": "a dimension over a window on it, at least",
    "max_window": "width of a window",
    "max_stride": "extent above a Stride",
    "shift_ratio": "a Shift of a block counts as none where the block is more than so many times as wide",
    "max_matched": "product of the extents that one weight has of the output",
    "min_matched_reduce": "extent of a sum in which two weights meet, at least",
    "max_matched_reduce": "extent of a sum in which two weights meet",
    "max_repeat": "times that data are repeated by Expands",
    "similar_share": "share of elements that may differ where two operators count as similar",
    "promising_share": "share of the multiply-adds where limits that judge promise must hold",
}

EXTENSIONS = {
    "depthwise": "weights without a coordinate of the output of their own",
    "weightless": "operators without weights, such as pooling",
    "even_windows": "windows of an even width",
    "dilated_windows": "windows with gaps",
    "strided_inputs": "windows that move by more than one place",
    "negative_shifts": "Shifts in both directions",
    "repeat": "each element of a coordinate several times in a row; wants max_expands and max_repeat",
    "tile": "a coordinate several times, one after the other; wants max_expands and max_repeat",
    "shifted_weights": "weights that stand at another place for each position of the output",
    "uneven_blocks": "reshapes across blocks of which neither width divides the other",
}


@functools.cache
def rule_classes() -> dict[str, tuple[str, str]]:
    """Class and statement of each rule by name."""
    from syno import _core

    return {r["name"]: (str(r["class"]), str(r["statement"])) for r in _core.rules()}


def names() -> list[str]:
    """All that can be set by name, rules apart."""
    return sorted({*BUDGETS, *THRESHOLDS, *EXTENSIONS, "extensions"})


@dataclass(frozen=True)
class Settings:
    """What somebody wants otherwise in a space; empty changes nothing."""

    only: tuple[str, ...] | None = None
    """These extensions and no others."""
    extensions: dict[str, bool] = field(default_factory=dict)
    """... with these switched."""
    rules: dict[str, bool] = field(default_factory=dict)
    budgets: dict[str, float | None] = field(default_factory=dict)
    thresholds: dict[str, float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, asked: Mapping[str, Any]) -> Settings:
        """Reads ``extensions=``, ``thresholds=``, ``rules=``, ``budgets=`` and single names, ``max_steps=9``.

        Raises:
            UnknownName: an extension, rule, budget or threshold that does not exist; lists those that do.
            SpecError: a value of another type.
        """
        only: tuple[str, ...] | None = None
        switched: dict[str, bool] = {}
        rules: dict[str, bool] = {}
        limits: dict[str, dict[str, float | None]] = {"budgets": {}, "thresholds": {}}
        for name, value in asked.items():
            if value is None and name in ("extensions", "rules", *limits):
                continue
            if name == "extensions":
                if isinstance(value, Mapping):
                    switched.update(_switches("extension", value, EXTENSIONS))
                else:
                    only = _listed(value)
            elif name == "rules":
                rules.update(_switches("rule", _mapping(name, value), rule_classes()))
            elif name in limits:
                known = BUDGETS if name == "budgets" else THRESHOLDS
                for one, number in _mapping(name, value).items():
                    if one not in known:
                        raise unknown_name(name[:-1], one, known)
                    limits[name][one] = _number(one, number)
            elif name in BUDGETS:
                limits["budgets"][name] = _number(name, value)
            elif name in THRESHOLDS:
                limits["thresholds"][name] = _number(name, value)
            elif name in EXTENSIONS:
                switched.update(_switches("extension", {name: value}, EXTENSIONS))
            else:
                valid = {*names(), "rules", "budgets", "thresholds"}
                raise unknown_name("setting", name, valid)
        made = cls(only, switched, rules, limits["budgets"], limits["thresholds"])
        made._check_types()
        return made

    def __bool__(self) -> bool:
        return self != Settings()

    def applied(self, spec: str) -> str:
        """A spec, as JSON, with these settings; the very same text where there are none."""
        if not self:
            return spec
        plain: dict[str, Any] = json.loads(spec)
        extensions = set(plain.get("extensions", []) if self.only is None else self.only)
        extensions |= {name for name, on in self.extensions.items() if on}
        extensions -= {name for name, on in self.extensions.items() if not on}
        off = set(plain.get("disabled_rules", [])) | {n for n, on in self.rules.items() if not on}
        off -= {name for name, on in self.rules.items() if on}
        plain["extensions"], plain["disabled_rules"] = sorted(extensions), sorted(off)
        plain["budgets"] = {**plain.get("budgets", {}), **self.budgets}
        plain["thresholds"] = {**plain.get("thresholds", {}), **self.thresholds}
        return json.dumps(plain)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that :meth:`of` reads, what is empty left out; no limit is ``"none"``, as TOML has no null."""
        kept: dict[str, Any] = {
            "extensions": self.extensions,
            "rules": self.rules,
            "budgets": _written(self.budgets),
            "thresholds": _written(self.thresholds),
        }
        kept = {name: dict(sorted(value.items())) for name, value in kept.items() if value}
        if self.only is not None:
            on = {name: name in self.only for name in sorted(EXTENSIONS)}
            kept["extensions"] = {**on, **self.extensions}
        return kept

    def words(self) -> list[str]:
        """The options of ``syno search`` that say the same."""
        words: list[str] = []
        kept = self.to_dict()
        for kind in ("budgets", "thresholds"):
            for name, value in kept.get(kind, {}).items():
                words += ["--set", f"{name}={value}"]
        for option, kind in (("--set", "extensions"), ("--rule", "rules")):
            for name, on in kept.get(kind, {}).items():
                words += [option, f"{name}={'on' if on else 'off'}"]
        return words

    def _check_types(self) -> None:
        """The engine's own reading of each value; ranges are checked with the space they are for."""
        from syno import _core

        try:
            _core.Spec.from_json(self.applied(_core.spec_named("test").to_json()))
        except FormatError as error:
            raise SpecError(str(error)) from None
        except SpecError:
            pass  # contradicts that spec, not necessarily another


def _written(limits: Mapping[str, float | None]) -> dict[str, float | str]:
    return {name: "none" if value is None else value for name, value in limits.items()}


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SpecError(f"[space] {name}={shown(value)} must be a dictionary of names and values")
    return value


def _listed(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise SpecError(f"[space] extensions={shown(value)} must be a list of names")
    listed = list(value)
    for name in listed:
        if name not in EXTENSIONS:
            raise unknown_name("extension", name, EXTENSIONS)
    return tuple(sorted(set(listed)))


def _switches(kind: str, asked: Mapping[str, Any], known: Iterable[str]) -> dict[str, bool]:
    valid = list(known)
    for name, on in asked.items():
        if name not in valid:
            raise unknown_name(kind, name, valid)
        if not isinstance(on, bool):
            raise SpecError(f"[space] {kind} {name}={shown(on)} must be True (on) or False (off)")
    return dict(asked)


def _number(name: str, value: Any) -> float | None:
    """A whole number stays one: counts are whole."""
    if value is None or (isinstance(value, str) and value == "none"):
        return None
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            if math.isfinite(float(value)):
                return int(value) if isinstance(value, numbers.Integral) else float(value)
        except OverflowError:
            pass
    raise SpecError(f"[space] {name}={shown(value)} must be a finite number, or None for no limit")


__all__ = ["BUDGETS", "EXTENSIONS", "THRESHOLDS", "Settings", "names", "rule_classes"]
