"""What each part of the search is worth: the ablations of Syno's Table 3, exhaustively.

    python benchmarks/synthesis_ablations.py --spec resnet18 --depth 6 --rule-depth 5

 - all canonicality rules off and on: how many different complete pGraphs there are of each size, and
   the share of them that the rules keep;
 - every rule on its own: what it removes where no other rule is on, and what only it removes where
   all others are;
 - with and without shape distance: the steps looked at and the partial operators kept.

Rules that state a limit or a requirement of the spec (the largest window, at least one weight, ...)
stay on throughout: LIMITS. Writes `<output>.json` and, with matplotlib, `<output>.png`.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

from syno import _core

# Not about canonical forms: what the spec asks of every operator.
LIMITS = frozenset(
    {
        "discards-data",
        "expand-large",
        "expand-not-above-merge",
        "has-no-weight",
        "pools-too-much",
        "stride-large",
        "unfold-even-window",
        "unfold-large-window",
        "weight-without-matched",
        "weight-without-shared",
    }
)

# Share of canonical pGraphs by size 2, 3, ..., in percent: Table 3 of the paper, and the authors' code
# run to depth 6 on its resnet18 spec (6,224 pGraphs).
PAPER = {2: 100.0, 3: 18.18, 4: 13.97, 5: 4.40, 6: 1.22, 7: 0.08}
AUTHORS_CODE = {2: 100.0, 3: 18.18, 4: 13.64, 5: 9.45, 6: 2.58}


def canonicality_rules() -> list[str]:
    return [rule["name"] for rule in _core.rules() if rule["name"] not in LIMITS]


def explored(
    document: dict[str, Any], off: Iterable[str], depth: int, threads: int, distance: bool = True
) -> dict[str, Any]:
    """The space with some rules off: pGraphs by size, different by how they are built."""
    spec = _core.Spec.from_json(json.dumps({**document, "disabled_rules": sorted(off)}))
    cpu, wall = time.process_time(), time.perf_counter()
    result = _core.enumerate_operators(
        spec, max_steps=depth, threads=threads, operator_keys=False, shape_distance=distance
    )
    return {
        "pgraphs": {str(size): count for size, count in result.stats["by_steps"].items()},
        "children": result.stats["children"],
        "states": result.stats["states"],
        "seconds": round(time.perf_counter() - wall, 3),
        "cpu_seconds": round(time.process_time() - cpu, 3),
    }


def table_3(document: dict[str, Any], depth: int, threads: int) -> dict[str, Any]:
    free = explored(document, canonicality_rules(), depth, threads)
    ruled = explored(document, (), depth, threads)
    shares = {
        size: round(100 * ruled["pgraphs"].get(size, 0) / count, 3)
        for size, count in free["pgraphs"].items()
    }
    return {"all_rules_off": free, "all_rules_on": ruled, "share_kept_percent": shares}


def each_rule(
    document: dict[str, Any], depth: int, threads: int, chosen: Iterable[str] | None
) -> dict[str, Any]:
    """By rule: pGraphs of at most `depth` steps that it removes alone, and as the last."""
    names = canonicality_rules()

    def total(off: Iterable[str]) -> int:
        return sum(explored(document, off, depth, threads)["pgraphs"].values())

    free, ruled = total(names), total(())
    rules = {}
    for name in names if chosen is None else chosen:
        others = [other for other in names if other != name]
        rules[name] = {"alone": free - total(others), "last": total([name]) - ruled}
        print(f"  {name:<26} {rules[name]}", file=sys.stderr)
    return {"depth": depth, "all_rules_off": free, "all_rules_on": ruled, "removes": rules}


def shape_distance(document: dict[str, Any], depth: int, threads: int) -> dict[str, Any]:
    return {
        "depth": depth,
        "with": explored(document, (), depth, threads),
        "without": explored(document, (), depth, threads, distance=False),
    }


def plot(report: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(12, 6), width_ratios=[1, 1.4], layout="constrained"
    )
    shares = report["table_3"]["share_kept_percent"]
    series = {"here": {int(size): share for size, share in shares.items()}}
    if report["spec"] == "resnet18":
        series |= {"the authors' code": AUTHORS_CODE, "the paper": PAPER}
    for (name, points), marker in zip(series.items(), "os^", strict=False):
        left.semilogy(list(points), list(points.values()), marker=marker, label=name)
    left.set_xlabel("steps")
    left.set_ylabel("pGraphs that the rules keep, %")
    left.set_xticks(sorted({size for points in series.values() for size in points}))
    left.grid(alpha=0.3)
    left.legend()
    rules = report["each_rule"]["removes"]
    order = sorted(rules, key=lambda name: (rules[name]["alone"], rules[name]["last"]))
    order = [name for name in order if rules[name]["alone"] or rules[name]["last"]]
    places = range(len(order))
    right.barh([p + 0.2 for p in places], [rules[n]["alone"] for n in order], 0.4, label="alone")
    right.barh([p - 0.2 for p in places], [rules[n]["last"] for n in order], 0.4, label="last")
    right.set_yticks(list(places), order, fontsize=8)
    right.set_xscale("symlog")
    right.set_xlabel(f"pGraphs of at most {report['each_rule']['depth']} steps that it removes")
    right.grid(axis="x", alpha=0.3)
    right.legend()
    figure.suptitle(f"Canonicality rules on the {report['spec']} spec")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--spec", default="resnet18", help=", ".join(_core.spec_names()))
    parser.add_argument("--depth", type=int, default=6, help="most steps, for the whole table")
    parser.add_argument("--rule-depth", type=int, default=5, help="most steps, rule by rule")
    parser.add_argument("--rules", nargs="*", choices=canonicality_rules(), help="only these")
    parser.add_argument("--distance-depth", type=int, default=5, help="most steps, distance off")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--output", type=Path, default=Path(__file__).parent / "results" / "synthesis_ablations"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()

    document = json.loads(_core.spec_named(arguments.spec).to_json())
    report: dict[str, Any] = {
        "spec": arguments.spec,
        "date": date.today().isoformat(),
        "machine": platform.processor() or platform.machine(),
        "command": "python benchmarks/synthesis_ablations.py " + " ".join(sys.argv[1:]),
        "limits_always_on": sorted(LIMITS),
        "table_3": table_3(document, arguments.depth, arguments.threads),
        "shape_distance": shape_distance(document, arguments.distance_depth, arguments.threads),
        "each_rule": each_rule(document, arguments.rule_depth, arguments.threads, arguments.rules),
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    try:
        plot(report, arguments.output.with_suffix(".png"))
    except ImportError:
        print("no plot: matplotlib is not installed", file=sys.stderr)
    if arguments.json:
        print(json.dumps(report))
        return
    table = report["table_3"]
    print(f"{'steps':>6} {'rules off':>10} {'rules on':>10} {'kept %':>8}")
    for size, count in table["all_rules_off"]["pgraphs"].items():
        kept = table["all_rules_on"]["pgraphs"].get(size, 0)
        print(f"{size:>6} {count:>10} {kept:>10} {table['share_kept_percent'][size]:>8.2f}")
    for name in ("with", "without"):
        part = report["shape_distance"][name]
        print(
            f"{name:>8} shape distance: {part['children']} steps looked at, {part['states']} kept, "
            f"{part['cpu_seconds']} s CPU"
        )


if __name__ == "__main__":
    main()
