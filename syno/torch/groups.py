"""Groups of sites with the same symbolic shapes: one search space with all their valuations.

The signature of a group is written with primary variables `N, C_in, C_out, H, W` (or `L`, or
`D, H, W`) and small coefficients taken from the layers: kernel extents, strides, groups. Layers of
one group differ in the values of these variables only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syno.errors import SpecError
from syno.policies.space import DEFAULT_STEPS
from syno.support.arguments import checked
from syno.torch.layers import Fit, Layer

if TYPE_CHECKING:
    from syno import _core
    from syno.searching.space import Space
    from syno.torch.sites import Site

_DEFAULT_WINDOW = 3
_LARGEST_GROUPS = 32  # the paper's g for ResNet
_WEIGHTS = 2
_MOST_STEPS = 16  # of any operator that the engine searches for
_MOST_OCCURRENCES = 8  # ... and of a variable in its steps


@dataclass(frozen=True)
class Signature:
    """The symbolic shapes of a group, extents as products of variable names."""

    output: tuple[tuple[str, str], ...]
    """(dimension name, extent) pairs; extents such as `s*H`."""
    input: tuple[tuple[str, str], ...]
    unordered: tuple[str, ...]
    """Names of the dimensions that hold channels."""


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
        windows = set(_windows(layer))
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

    def _blocked(self) -> int:
        """Over how many dimensions an operator may compute at one place what stands for a block."""
        return self._windowed() if _fits_blocks(self.sites[0].fits[0], self.signature) else 0

    def _default_extensions(self) -> set[str]:
        """What suits this kind of layer beyond the authors' space."""
        layer = self.sites[0].layer
        assert layer is not None
        chosen = set()
        if layer.kind != "linear":
            # A window of its own for each channel: separable convolutions, and depthwise layers themselves.
            chosen |= {"depthwise", "dilated_windows"}
        if self._strided() or self._blocked():
            chosen.add("strided_inputs")
        if self._enlarged() or self._blocked():
            # What is computed at one place stands for a block: of layers that enlarge, the nearest neighbour.
            chosen.add("repeat")
        if any(window % 2 == 0 for window in _windows(layer)):
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
        widest = max(_channels(site.layer)[1] for site in self.sites if site.layer is not None)
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
            "max_repeat": float(max(enlarged, max(reach, _DEFAULT_WINDOW) ** self._blocked())),
        }

    def _default_budgets(self) -> dict[str, float]:
        layer = self.sites[0].layer
        assert layer is not None
        spatial = self._windowed() if layer.kind != "linear" else 0
        # An output may reach each input through as many channels between two weights as it has itself.
        through = [
            site.layer.weight_elements / math.prod(fit.input[1:])
            for site in self.sites
            if site.layer is not None
            for fit in site.fits
        ]
        return {
            # Layers that stride need a step more for each such dimension, volumes two more than planes.
            "max_steps": min(
                _MOST_STEPS,
                DEFAULT_STEPS + self._strided() + self._enlarged() + 2 * max(0, spatial - 2),
            ),
            "max_weights": _WEIGHTS,
            "max_reductions": max(5, spatial + 4),
            "max_reduction_ratio": max([4.0, *through]),
            # One of channels, and one of each dimension whose places may stand for several.
            "max_merges": 1 + max(self._enlarged(), self._blocked()),
            "max_expands": max(self._enlarged(), self._blocked()),
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


def joined(numbers: Sequence[int]) -> str:
    """`2` when all are equal, `2x1` otherwise."""
    return "x".join(map(str, numbers if len(set(numbers)) > 1 else numbers[:1]))


def group_key(layer: Layer, fit: Fit) -> str:
    """What decides which group a layer is in; a name for people too: `conv2d 3x3 s2`."""
    parts = [layer.kind]
    if layer.kind == "linear":
        parts += fit.spatial
    else:
        parts.append("x".join(map(str, layer.kernel)))
        if set(layer.stride) != {1}:
            parts.append("s" + joined(layer.stride))
        if set(layer.dilation) != {1}:
            parts.append("d" + joined(layer.dilation))
        if layer.depthwise:
            multiplier = layer.out_channels // layer.in_channels
            parts.append("depthwise" + (f" x{multiplier}" if multiplier > 1 else ""))
        elif layer.groups > 1:
            parts.append(f"g{layer.groups}")
        # What a window is wider than has none of it: such layers have few operators in common with the others.
        beyond = [
            name
            for name, extent, window in zip(
                fit.spatial, fit.input[2:], _windows(layer), strict=True
            )
            if extent < window
        ]
        if beyond:
            parts.append(f"beyond {' '.join(beyond)}")
    return " ".join(parts)


def _places(fit: Fit) -> tuple[int, ...]:
    """Extents of the places, of the smaller one of input and output."""
    inner = slice(1, -1) if fit.channels_last else slice(2, None)
    return tuple(map(min, fit.input[inner], fit.output[inner]))


def _windows(layer: Layer) -> tuple[int, ...]:
    """Along each axis, the places of the input that an output sees, gaps of a dilation apart.

    The places of a transposed convolution's output that stand for one of its input see different parts of its window:
    counted are all that they see together around that one.
    """
    if not layer.transposed:
        return layer.kernel
    windows = []
    for kernel, stride, dilation, (before, _), more in zip(
        layer.kernel, layer.stride, layer.dilation, layer.pad, layer.output_pad, strict=True
    ):
        reach = dilation * (kernel - 1)
        # As the layer's input is aligned with the operator's, see `Fit`.
        shift = before if 2 * before == reach + 1 + more - stride else (reach - stride + 1) // 2
        # The output's place stride*h + p reads the input's place h + n through the tap that makes this whole.
        reads = [
            (p + shift - dilation * tap) // stride
            for p in range(stride)
            for tap in range(kernel)
            if (p + shift - dilation * tap) % stride == 0
        ]
        windows.append(2 * max(map(abs, reads), default=0) + 1)
    return tuple(windows)


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
    signature, strides = _signature(layer, fit)
    layers = [(site.layer, f) for site in sites if site.layer for f in site.fits]
    coefficients = _coefficients(layers, strides)
    variables = [("N", "primary", 0)]
    if layer.depthwise:
        variables.append(("C", "primary", 3))
    else:
        # Summed over once and indexed by each weight; what is between two weights, a part of the inputs or of the outputs,
        # is summed over and indexed by both.
        variables += [("C_in", "primary", 3 + _WEIGHTS), ("C_out", "primary", 2 + _WEIGHTS)]
    variables += [(name, "primary", 0) for name in fit.spatial]
    widest = max(_DEFAULT_WINDOW, *_windows(layer)) if _fits_blocks(fit, signature) else 0
    blocks = {name for name, value in coefficients.items() if value <= widest}
    variables += [
        (name, "coefficient", _occurrences(name, strides, len(fit.spatial), blocks))
        for name in coefficients
    ]
    valuations: list[dict[str, int]] = []
    members = []
    for site in sites:
        indices = []
        for f in site.fits:
            assert site.layer is not None
            valuation = _valuation(site.layer, f, coefficients)
            if valuation not in valuations:
                valuations.append(valuation)
            indices.append(valuations.index(valuation))
        members.append(tuple(indices))
    return SiteGroup(
        key, tuple(sites), signature, tuple(variables), tuple(valuations), tuple(members)
    )


def _signature(layer: Layer, fit: Fit) -> tuple[Signature, dict[str, int]]:
    """The signature, and how often each stride coefficient occurs in it."""
    batch = ("n", "N")
    if layer.depthwise:
        multiplier = layer.out_channels // layer.in_channels
        channel_in = ("c", "C")
        channel_out = ("o", "C" if multiplier == 1 else "m*C")
    else:
        channel_in, channel_out = ("c", "C_in"), ("o", "C_out")
    names = {name: name.lower() for name in fit.spatial}
    out = [(names[name], name) for name in fit.spatial]
    strides = layer.stride if layer.kind != "linear" else (1,) * len(fit.spatial)
    distinct = sorted({s for s in strides if s > 1})
    coefficient = {s: "s" if len(distinct) == 1 else f"s_{i + 1}" for i, s in enumerate(distinct)}
    larger = [
        (names[name], f"{coefficient[s]}*{name}" if s > 1 else name)
        for name, s in zip(fit.spatial, strides, strict=True)
    ]
    out, inputs = (larger, out) if layer.transposed else (out, larger)
    count = {coefficient[s]: sum(other == s for other in strides) for s in distinct}
    if fit.channels_last:
        dims_out, dims_in = (batch, *out, channel_out), (batch, *inputs, channel_in)
    else:
        dims_out, dims_in = (batch, channel_out, *out), (batch, channel_in, *inputs)
    return Signature(tuple(dims_out), tuple(dims_in), (channel_in[0], channel_out[0])), count


def _fits_blocks(fit: Fit, signature: Signature) -> bool:
    """Whether what stands for a block along all dimensions fits into an operator: five steps for each, two for channels.
    Where layers stride, distances to their inputs take too long with both."""
    fits = not fit.channels_last and 5 * len(fit.spatial) + 2 <= _MOST_STEPS
    return fits and not any("*" in extent for _, extent in signature.input)


def _occurrences(name: str, strides: dict[str, int], spatial: int, blocks: set[str]) -> int:
    """How often an operator may use a coefficient.

    Windows: one an axis and one more, for a second stage. Other coefficients: in the channels of either stage, to
    dilate the windows, and for the layers' own strides; small ones for blocks of places along each axis, and to go
    from block to block.
    """
    if name.startswith("k"):
        return spatial + 1
    most = max(3, 2 * spatial) if name in blocks else 3
    return min(_MOST_OCCURRENCES, most + strides.get(name, 0))


def _coefficients(
    layers: Sequence[tuple[Layer, Fit]], stride_names: dict[str, int]
) -> dict[str, int]:
    """Values of the small variables, the same in the whole group."""
    first = layers[0][0]
    values: dict[str, int] = {}
    windows = sorted({k for k in _windows(first) if k > 1})
    if not windows and _smallest_extent(layers) >= _DEFAULT_WINDOW:
        windows = [_DEFAULT_WINDOW]
    for i, window in enumerate(windows):
        values["k" if len(windows) == 1 else f"k_{i + 1}"] = window
    strides = sorted({s for s in first.stride if s > 1})
    values.update(zip(stride_names, strides, strict=True))
    if first.depthwise and first.out_channels > first.in_channels:
        values["m"] = first.out_channels // first.in_channels
    channels = math.gcd(*(n for layer, _ in layers for n in _channels(layer)))
    if "s" not in values and channels % 2 == 0:
        values["s"] = 2
    groups = first.groups if first.groups > 1 and not first.depthwise else 0
    if not groups or groups == values.get("s"):  # as many as these need no name of their own
        # Half the channels at most, so that a group still holds two.
        groups = math.gcd(_LARGEST_GROUPS, channels)
        while groups * 2 > channels:
            groups //= 2
    if groups > 1:
        values["g"] = groups
    return values


def _channels(layer: Layer) -> tuple[int, int]:
    return layer.in_channels, layer.out_channels


def _smallest_extent(layers: Sequence[tuple[Layer, Fit]]) -> int:
    return min((extent for _, fit in layers for extent in _places(fit)), default=0)


def _valuation(layer: Layer, fit: Fit, coefficients: dict[str, int]) -> dict[str, int]:
    # Strides make one of the two larger; the variables are the extents of the other.
    spatial = _places(fit)
    channels = (
        {"C": layer.in_channels}
        if layer.depthwise
        else {"C_in": layer.in_channels, "C_out": layer.out_channels}
    )
    return {
        "N": fit.input[0],
        **channels,
        **dict(zip(fit.spatial, spatial, strict=True)),
        **coefficients,
    }
