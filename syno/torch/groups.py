"""Groups of sites with the same symbolic shapes: one search space with all their valuations.

Layers of one group have one signature (see :mod:`syno.torch.signatures`) and differ in the values of its primary
variables only.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syno.errors import SpecError
from syno.policies.space import DEFAULT_STEPS
from syno.support.arguments import checked
from syno.torch.signatures import (
    DEFAULT_WINDOW,
    MOST_STEPS,
    WEIGHTS,
    Signature,
    blocked_in,
    channels_of,
    coefficients_of,
    group_key,
    occurrences_of,
    signature_of,
    steps_of_blocks,
    values_of,
    widest_block,
    windows_of,
)

if TYPE_CHECKING:
    from syno import _core
    from syno.searching.space import Space
    from syno.torch.sites import Site


#: Elements of a weight that learns, of layers wide enough, and of any.
_LEAST_PARAMS, _FEWEST_PARAMS = 100.0, 16.0


@dataclass(frozen=True)
class SiteGroup:
    """Sites that one operator can serve.

    `valuations` lists the distinct values of the variables over all calls of all sites, in the order
    they are met; `members[i]` says which of them site i needs, one per call shape.
    """

    key: str
    sites: tuple[Site, ...]
    signature: Signature
    variables: tuple[tuple[str, str, int], ...]
    """(name, "primary" or "coefficient", occurrences allowed)."""
    valuations: tuple[dict[str, int], ...]
    members: tuple[tuple[int, ...], ...]

    @property
    def share_of_time(self) -> float:
        return sum(site.share_of_time for site in self.sites)

    @property
    def flops(self) -> int:
        """Multiply-adds of all calls of all its layers."""
        return sum(site.flops for site in self.sites)

    @property
    def window(self) -> str:
        """The layers' own window as a size over the variables: ``"1"`` where they have none, ``"mixed"`` where it is
        not the same along every axis."""
        layer = self.sites[0].layer
        assert layer is not None
        windows = set(windows_of(layer))
        if windows <= {1}:
            return "1"
        return "k" if len(windows) == 1 else "mixed"

    @property
    def layer_flops(self) -> int:
        """Multiply-adds of the layers themselves, summed over the distinct valuations."""
        flops: dict[int, int] = {}
        for site, indices in zip(self.sites, self.members, strict=True):
            assert site.layer is not None
            for call, index in zip(site.calls, indices, strict=True):
                flops.setdefault(index, site.layer.flops(call.output))
        return sum(flops.values())

    @property
    def work(self) -> list[int]:
        """Multiply-adds of all calls of all layers that each valuation stands for."""
        work = [0] * len(self.valuations)
        for site, indices in zip(self.sites, self.members, strict=True):
            assert site.layer is not None
            for call, index in zip(site.calls, indices, strict=True):
                work[index] += site.layer.flops(call.output)
        return work

    @property
    def layer_params(self) -> int:
        """Weight elements of the layers, summed over the distinct valuations."""
        params: dict[int, int] = {}
        for site, indices in zip(self.sites, self.members, strict=True):
            assert site.layer is not None
            for index in indices:
                params.setdefault(index, site.layer.weight_elements)
        return sum(params.values())

    def valuation_of(self, site: Site | str) -> int:
        """The valuation of a site's first call shape.

        Raises SpecError when the site is not of this group.
        """
        name = site if isinstance(site, str) else site.name
        for member, indices in zip(self.sites, self.members, strict=True):
            if member.name == name:
                return indices[0]
        names = ", ".join(member.name for member in self.sites)
        raise SpecError(f"[site group] {name!r} is not in the group {self.key}, which has: {names}")

    @checked()
    def to_json(
        self,
        *,
        flops_ratio: float = 1.0,
        min_flops_ratio: float = 0.0,
        params_ratio: float | None = None,
        mix_tokens: bool = False,
        extensions: Iterable[str] | None = None,
        thresholds: Mapping[str, float] | None = None,
        disabled_rules: Iterable[str] | None = None,
        **budgets: float | None,
    ) -> str:
        """The search space of the group as the JSON that `Spec.from_json` reads.

        Its defaults follow from the layers: which extensions make sense for their kind, how far a weight may
        reach, and limits of promise that are judged where at least half of the group's multiply-adds are done.

        Args:
            flops_ratio, min_flops_ratio: budgets of multiply-adds, as parts of the layers' own,
                summed over the valuations.
            params_ratio: budget of weight elements likewise; None for no budget.
            mix_tokens: linear layers see each place along the dimensions between batch and channels (a token, a
                patch) alone, and so do operators in their place; true lets operators mix the places, which
                lets a causal model see the future. Convolutions mix places in any case.
            extensions: names of `syno._core.extension_names()`, in place of the default ones.
            thresholds: further ones by name (`max_window=7`), over the defaults.
            disabled_rules: names of `syno._core.rules()` to switch off, in place of the default ones.
            budgets: further ones by name (`max_steps=9`), over the defaults.
        Raises:
            SpecError: a ratio is negative, or no operator could lie between the two.
        """
        ratios = {"flops_ratio": flops_ratio, "min_flops_ratio": min_flops_ratio}
        if params_ratio is not None:
            ratios["params_ratio"] = params_ratio
        for name, ratio in ratios.items():
            if ratio < 0 or not math.isfinite(ratio):
                raise SpecError(
                    f"[site group] {name}={ratio} must be a number that is not negative"
                )
        if min_flops_ratio >= flops_ratio:
            raise SpecError(
                f"[site group] min_flops_ratio={min_flops_ratio} leaves nothing below "
                f"flops_ratio={flops_ratio}"
            )
        limits: dict[str, float | None] = {
            **self._default_budgets(),
            "max_flops": int(self.layer_flops * flops_ratio),
            "min_flops": int(self.layer_flops * min_flops_ratio),
        }
        if params_ratio is not None:
            limits["max_params"] = int(self.layer_params * params_ratio)
        limits.update(budgets)
        places = self._places() if not mix_tokens else 0
        # Without places to slide over there are no windows.
        variables = [v for v in self.variables if not (places and v[0].startswith("k"))]
        names = [name for name, _, _ in variables]
        return json.dumps(
            {
                "variables": [
                    {"name": name, "kind": kind, "occurrences": occurrences}
                    for name, kind, occurrences in variables
                ],
                "valuations": [
                    {name: valuation[name] for name in names} for valuation in self.valuations
                ],
                "weights": [max(1, work) for work in self.work],
                "output": self._dims(self.signature.output),
                "input": self._dims(self.signature.input),
                "fixed": [[i, i] for i in range(1 + places)],
                "budgets": limits,
                "thresholds": {**self._default_thresholds(), **(thresholds or {})},
                "extensions": sorted(
                    self._default_extensions() if extensions is None else extensions
                ),
                "disabled_rules": sorted(
                    self._default_disabled_rules() if disabled_rules is None else disabled_rules
                ),
            }
        )

    def spec(self, **options: Any) -> _core.Spec:
        """The search space itself; options as for `to_json`."""
        from syno import _core

        return _core.Spec.from_json(self.to_json(**options))

    def space(
        self,
        *,
        flops_ratio: float = 0.9,
        min_flops_ratio: float = 0.15,
        params_ratio: float | None = None,
        mix_tokens: bool = False,
        **settings: Any,
    ) -> Space:
        """The space that :func:`syno.search` searches for these layers.

        Args:
            flops_ratio, min_flops_ratio, params_ratio, mix_tokens: as for `to_json`.
            settings: as for `Space.with_`: `extensions=`, `thresholds=`, `rules=`, `max_steps=9`.
        Raises:
            UnknownName: a setting that does not exist; lists those that do.
            SpecError: a ratio is negative, a value has another type or lies outside its range, or nothing is left.
        """
        from syno.searching.space import Space
        from syno.searching.space_settings import Settings

        wanted = Settings.of(settings)
        plain = json.loads(
            self.to_json(
                flops_ratio=flops_ratio,
                min_flops_ratio=min_flops_ratio,
                params_ratio=params_ratio,
                mix_tokens=mix_tokens,
            )
        )
        return Space.from_json(wanted.applied(json.dumps({**plain, "name": self.key})))

    def _dims(self, dims: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        unordered = self.signature.unordered
        return [{"name": n, "extent": e, "unordered": n in unordered} for n, e in dims]

    def _places(self) -> int:
        """How many dimensions of a linear layer's input it treats alike: tokens, patches."""
        layer = self.sites[0].layer
        assert layer is not None
        return len(self.signature.output) - 2 if layer.kind == "linear" else 0

    def _strided(self) -> int:
        """How many dimensions the layers stride over."""
        return sum("*" in extent for _, extent in self.signature.input)

    def _enlarged(self) -> int:
        """How many dimensions the layers enlarge: those of transposed convolutions."""
        named = dict(self.signature.output)
        return sum(
            "*" in extent for n, extent in named.items() if n not in self.signature.unordered
        )

    def _windowed(self) -> int:
        """How many dimensions an operator's windows may slide over."""
        return sum(name not in self.signature.unordered for name, _ in self.signature.output[1:])

    @functools.cached_property
    def _blocked(self) -> int:
        """Over how many dimensions an operator may compute at one place what stands for a block."""
        layer = self.sites[0].layer
        assert layer is not None
        names = [name for name, kind, _ in self.variables if kind == "coefficient"]
        coefficients = {name: self.valuations[0][name] for name in names}
        return blocked_in(layer, self.sites[0].fits[0], coefficients, self.valuations)

    def _default_extensions(self) -> set[str]:
        """What suits this kind of layer beyond the authors' space."""
        layer = self.sites[0].layer
        assert layer is not None
        chosen = set()
        if layer.kind != "linear":
            # A window of its own for each channel: separable convolutions, and depthwise layers themselves.
            chosen |= {"depthwise", "dilated_windows"}
        if self._strided() or self._blocked:
            chosen.add("strided_inputs")
        if self._enlarged() or self._blocked:
            # What is computed at one place stands for a block: of layers that enlarge, the nearest neighbour.
            chosen.add("repeat")
        if any(window % 2 == 0 for window in windows_of(layer)):
            chosen.add("even_windows")
        return chosen

    def _default_disabled_rules(self) -> set[str]:
        """Rules that would refuse the layers themselves."""
        layer = self.sites[0].layer
        assert layer is not None
        gaps = self._strided() and any(
            k < s for k, s in zip(layer.kernel, layer.stride, strict=True)
        )
        return {"discards-data", "stride-without-use"} if gaps else set()

    def _default_thresholds(self) -> dict[str, float]:
        # A weight may match what the layers' own weights match: all output channels.
        widest = max(channels_of(site.layer)[1] for site in self.sites if site.layer is not None)
        # ... and for each place of the input all those of the output that it stands for.
        layer = self.sites[0].layer
        enlarged = math.prod(layer.stride) if layer is not None and layer.transposed else 1
        # Of a window as wide as its dimension three quarters of the taps still lie inside; what the layers
        # themselves use is promising in any case.
        reach = max((k for site in self.sites if site.layer for k in site.layer.kernel), default=1)
        return {
            "max_matched": float(max(2048, widest * enlarged)),
            "unfold_ratio": 1.0,
            "max_window": float(max(30, 2 * reach)),
            # A place may stand for a block that its window would fill.
            "max_repeat": float(max(enlarged, max(reach, DEFAULT_WINDOW) ** self._blocked)),
        }

    def _default_budgets(self) -> dict[str, float]:
        layer = self.sites[0].layer
        assert layer is not None
        spatial = self._windowed() if layer.kind != "linear" else 0
        # An output may reach each input through as many channels between two weights as it has itself: of tokens, those
        # of its own.
        layers = [(site.layer, fit) for site in self.sites if site.layer for fit in site.fits]
        through = [
            of.weight_elements / (of.in_channels if self._places() else math.prod(fit.input[1:]))
            for of, fit in layers
        ]
        # A weight between half of the channels is one that learns, however few they are; of two outputs it is none.
        narrow = max(_FEWEST_PARAMS, min(min(channels_of(of)) ** 2 / 2 for of, _ in layers))
        return {
            # Layers that stride need a step more for each such dimension, volumes two more than planes.
            "max_steps": min(
                MOST_STEPS,
                max(DEFAULT_STEPS + 2 * max(0, spatial - 2), steps_of_blocks(self._blocked))
                + self._strided()
                + self._enlarged(),
            ),
            "max_weights": WEIGHTS,
            "max_reductions": max(5, spatial + 4),
            "max_reduction_ratio": max([4.0, *through]),
            "min_weight_params": min(_LEAST_PARAMS, narrow),
            # One of channels, and one of each dimension whose places may stand for several.
            "max_merges": 1 + max(self._enlarged(), self._blocked),
            "max_expands": max(self._enlarged(), self._blocked),
            "max_splits": 3,
            "max_shifts": max(2, spatial),
            "max_strides": self._strided() + spatial,
        }

    def __repr__(self) -> str:
        shape = " -> ".join(
            "[" + ", ".join(extent for _, extent in dims) + "]"
            for dims in (self.signature.input, self.signature.output)
        )
        names = ", ".join(site.name for site in self.sites)
        return (
            f"SiteGroup({self.key}: {shape}, {len(self.valuations)} valuations, "
            f"{self.share_of_time:.1%} of the time; {names})"
        )


def group_sites(sites: Sequence[Site]) -> list[SiteGroup]:
    """Groups of replaceable sites, the most multiply-adds first, ties by first site: the same at every run."""
    by_key: dict[str, list[Site]] = {}
    for site in sites:
        assert site.layer is not None
        keys = {group_key(site.layer, fit) for fit in site.fits}
        # A layer that is called at several ranks has no single signature.
        if len(keys) == 1:
            by_key.setdefault(keys.pop(), []).append(site)
    groups = [_build(key, members) for key, members in by_key.items()]
    return sorted(groups, key=lambda group: -group.flops)


def parted(group: SiteGroup, has_operators: Callable[[SiteGroup], bool]) -> list[SiteGroup]:
    """The group itself where its space has operators. Else groups of those of its layers that have operators in common,
    those with the most multiply-adds together first; last, as one group, those that have none.

    An operator must fit all sizes of a group: a layer whose sizes no operator shares leaves the others without any.
    """
    if has_operators(group):
        return [group]
    alike: dict[tuple[int, ...], list[Site]] = {}  # layers of the same sizes
    for site, indices in zip(group.sites, group.members, strict=True):
        alike.setdefault(tuple(sorted(set(indices))), []).append(site)
    left = sorted(alike.values(), key=lambda sites: -sum(site.flops for site in sites))
    if len(left) == 1:
        return [group]
    parts: list[list[Site]] = []
    hopeless: list[Site] = []
    while left:
        kept, others = list(left[0]), []
        if has_operators(_build(group.key, kept)):
            for sites in left[1:]:
                if has_operators(_build(group.key, [*kept, *sites])):
                    kept += sites
                else:
                    others.append(sites)
            parts.append(kept)
        else:
            hopeless += kept
            others = left[1:]
        left = others
    if not parts:
        return [group]
    made = [_build(group.key, parts[0])]
    for part in [*parts[1:], *([hopeless] if hopeless else [])]:
        made.append(_build(f"{group.key} ({', '.join(site.name for site in part)})", part))
    return made


def _build(key: str, sites: Sequence[Site]) -> SiteGroup:
    layer, fit = sites[0].layer, sites[0].fits[0]
    assert layer is not None
    signature, strides = signature_of(layer, fit)
    layers = [(site.layer, f) for site in sites if site.layer for f in site.fits]
    coefficients = coefficients_of(layers, strides)
    variables = [("N", "primary", 0)]
    if layer.depthwise:
        variables.append(("C", "primary", 3))
    else:
        # Summed over once and indexed by each weight; what is between two weights, a part of the inputs or of the outputs,
        # is summed over and indexed by both.
        variables += [("C_in", "primary", 3 + WEIGHTS), ("C_out", "primary", 2 + WEIGHTS)]
    variables += [(name, "primary", 0) for name in fit.spatial]
    valuations: list[dict[str, int]] = []
    members = []
    for site in sites:
        indices = []
        for f in site.fits:
            assert site.layer is not None
            valuation = values_of(site.layer, f, coefficients)
            if valuation not in valuations:
                valuations.append(valuation)
            indices.append(valuations.index(valuation))
        members.append(tuple(indices))
    blocked = blocked_in(layer, fit, coefficients, valuations)
    widest = widest_block(layer) if blocked else 0
    variables += [
        (
            name,
            "coefficient",
            occurrences_of(name, strides, len(fit.spatial), blocked if value <= widest else 0),
        )
        for name, value in coefficients.items()
    ]
    return SiteGroup(
        key, tuple(sites), signature, tuple(variables), tuple(valuations), tuple(members)
    )
