"""Which layers the paper's operators take the place of, and the operator for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from syno import _core
from syno.operators.operator import Operator
from syno.torch.groups import SiteGroup
from syno.torch.sites import Site, Sites

#: Named operators by what the tables call them.
OPERATORS = {
    "grouped": "grouped_conv",
    "bottleneck": "bottleneck_conv",
    "separable": "separable_conv",
    "operator1": "operator1",
    "operator2": "operator2",
    "stacked": "stacked_conv",
}
_LEAST_CHANNELS = 8


def replaceable(sites: Sites, windows: Sequence[int]) -> list[Site]:
    """Convolutions with one of these square windows, as the paper replaces: no stem, no depthwise."""

    def wanted(site: Site) -> bool:
        layer = site.layer
        return (
            layer is not None
            and layer.kernel in {(window, window) for window in windows}
            and set(layer.dilation) == {1}
            and not layer.depthwise
            and min(layer.in_channels, layer.out_channels) >= _LEAST_CHANNELS
            and site.calls[0].output[-1] > 1
        )

    return list(sites.where(kind="conv2d", predicate=wanted))


def factors(group: SiteGroup, groups: int, shrink: int) -> tuple[int, int]:
    """The greatest group count and shrinking not above the wanted ones that divide every layer's channels."""
    layers = [site.layer for site in group.sites if site.layer is not None]

    def fits(g: int, s: int) -> bool:
        return all(
            layer.in_channels % g == 0 and layer.out_channels % (g * s) == 0 for layer in layers
        )

    pairs = [(g, s) for g in range(1, groups + 1) for s in range(1, shrink + 1) if fits(g, s)]
    return max(pairs, key=lambda pair: (pair[0] * pair[1], pair[0]))


def operator_for(group: SiteGroup, name: str, *, groups: int = 4, shrink: int = 4) -> Operator:
    """A named operator with the group's own window, symbolic over all its layers."""
    layer = group.sites[0].layer
    assert layer is not None
    g, s = factors(group, groups, shrink)
    window = str(layer.kernel[0]) if layer.kernel else "1"
    sizes = {"kernel": window, "groups": str(g), "shrink": str(s)}
    graph = _core.named_operator(OPERATORS[name], group.spec(), sizes)
    return Operator.from_pgraph(graph)


def assignment(
    groups: Sequence[SiteGroup], name: str, *, group_count: int = 4, shrink: int = 4
) -> dict[Any, Operator]:
    """The operator of every site, for `syno.torch.replace`."""
    result: dict[Any, Operator] = {}
    for group in groups:
        operator = operator_for(group, name, groups=group_count, shrink=shrink)
        result.update((site, operator) for site in group.sites)
    return result
