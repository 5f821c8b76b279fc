"""Tables of the performance page, from the files of benchmarks/results: with machine, date and command, or not at all."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def read(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def table(heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *[[str(cell) for cell in row] for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def measured_on(machine: Any, date: str | None = None) -> str:
    """Machine and date in a sentence."""
    if isinstance(machine, str):
        return f"{machine}; {date}."
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    model = machine.get("model", {}).get("name", machine["cpu"])
    at = date or machine["measured_at"]
    return f"{model}, {machine['cores']} cores, {machine['system']}, Python {machine['python']}, {versions}; {at}; load {machine['load1']:.1f}."


def section(title: str, said: str, body: str, on: str, commands: Iterable[str], file: str) -> str:
    shown = "\n".join(commands)
    return f"## {title}\n\n{said}\n\n{body}\n\nMeasured on {on} From `benchmarks/results/{file}`:\n\n```text\n{shown}\n```"


def networks(file: str = "networks.json", title: str = "Whole networks") -> str:
    """Whole networks, compiled."""
    found = read(file)
    rows = [
        [
            each["network"],
            f"{each['us'] / 1000:.1f}",
            *(
                f"{each['ratios'][peer]:.2f}" if peer in each["ratios"] else "–"
                for peer in found["geomean_to"]
            ),
            f"{each['trace_s'] + each['compile_s']:.1f}",
            f"{each['max_rel_err']:.1e}",
        ]
        for each in found["networks"]
    ]
    means = ", ".join(f"{ratio:.2f} of {peer}'s" for peer, ratio in found["geomean_to"].items())
    heads = [
        "network",
        "ms",
        *(f"speed against {peer}" for peer in found["geomean_to"]),
        "compiled in, s",
        "error",
    ]
    threads = found["threads"]
    said = f"Batch {found['batch']}, {threads} thread{'s' * (threads > 1)}. Speed, geometric mean: {means}; against the better of all peers from {found['least']:.2f} on."
    return section(
        title, said, table(heads, rows), measured_on(found["machine"]), [found["command"]], file
    )


def derived_networks() -> str:
    """The same with derived kernels."""
    return networks("networks_derived.json", "Whole networks with derived kernels")


def networks_on_two_threads() -> str:
    """The same on two threads."""
    return networks("networks_two_threads.json", "Whole networks on two threads")


def kernels(file: str = "kernels.json", title: str = "Kernels", more: str = "") -> str:
    """Kernels beside their peers."""
    found = read(file)
    peers = [name for name, state in found["peers"].items() if state["ran"]]
    rows = [
        [
            each["name"],
            each["class"],
            f"{each['us']:.3g}",
            f"{each['fraction_of_peak']:.2f}" if each["bound"] == "compute" else "–",
            f"{each['fraction_of_roof']:.2f}",
            f"{each['ratio_to_best_peer']:.2f}" if each["ratio_to_best_peer"] else "–",
            *(f"{each['ratios'][peer]:.2f}" if peer in each["ratios"] else "–" for peer in peers),
        ]
        for each in found["cases"]
    ]
    means = ", ".join(f"{name} {entry['geomean']:.2f}" for name, entry in found["classes"].items())
    heads = ["case", "class", "µs", "of the peak", "of the roof", "speed against the best peer"]
    said = (
        f"{found['threads']} thread{'s' * (found['threads'] > 1)}; all take turns in one run, every result is compared.{more} The roof is what multiply-adds "
        f"or bytes take at least. Speed against the best peer of each case, geometric mean by class: {means}."
    )
    return section(
        title,
        said,
        table([*heads, *(f"against {peer}" for peer in peers)], rows),
        measured_on(found["machine"]),
        [found["command"]],
        file,
    )


def kernels_held_to_avx2() -> str:
    """The same with AVX2 alone."""
    more = (
        " Kernels are made for AVX2, and peers are held to it: each is looked at while it runs, and left out where more than a fiftieth of its instructions "
        "are AVX-512's."
    )
    return kernels("kernels_avx2.json", "Kernels with AVX2", more)


def derivations() -> str:
    """Derived programs."""
    found = read("derive.json")
    rows = [
        [
            each["name"],
            each["klass"],
            f"{each['multiply_adds'][0] / each['multiply_adds'][1]:.2f}"
            if each["multiply_adds"][1]
            else "–",
            f"{each['underived_us']:.0f}",
            f"{each['derived_us']:.0f}",
            f"{each['ratio_to_underived']:.2f}",
            f"{each['ratio_to_best_peer']:.2f} ({each['best_peer']})"
            if each.get("best_peer")
            else "–",
        ]
        for each in found["cases"]
    ]
    heads = [
        "case",
        "class",
        "fewer multiply-adds",
        "original, µs",
        "derived, µs",
        "speed against our original",
        "against the best library",
    ]
    said = "Programs found by two seconds of derivation, against our kernel of the original and against the libraries."
    return section(
        "Derived programs",
        said,
        table(heads, rows),
        measured_on(found["machine"]),
        found["commands"],
        "derive.json",
    )


def constructions() -> str:
    """Constructed schedules."""
    found = read("construct_operators.json")
    rows = [
        [
            each["name"] + (f" ({each['scaled']})" if each["scaled"] else ""),
            f"{each['us']['tree']:.0f}",
            f"{each['us']['graph']:.0f}",
            f"{each['us']['constructed']:.0f}",
            f"{each['gflops']['constructed']:.0f}",
        ]
        for each in found["cases"]
    ]
    mean = found["summary"]["speed_over_tree"]
    said = (
        "Schedules that were constructed without measuring: the greedy tree, Gensor's graph, and what `compile` takes. Speed over the tree, geometric "
        f"mean: graph {mean['graph']:.2f}, taken {mean['constructed']:.2f}."
    )
    heads = ["operator", "tree, µs", "graph, µs", "taken, µs", "GFLOP/s"]
    return section(
        "Constructed schedules",
        said,
        table(heads, rows),
        measured_on(found["machine"]),
        [found["command"]],
        "construct_operators.json",
    )


def _paper(
    file: str, key: Callable[[Any], str], time: str, title: str, said: str, head: str
) -> str:
    rows = read(file)["rows"].values()
    columns = list(dict.fromkeys(row["contestant"] for row in rows))
    lines: dict[str, dict[str, Any]] = {}
    for row in rows:
        lines.setdefault(key(row), {})[row["contestant"]] = row
    shown = [
        [
            name,
            *(
                f"{line[c][time]:.0f} ({line[c]['speed_up']:.2f})" if c in line else "–"
                for c in columns
            ),
        ]
        for name, line in lines.items()
    ]
    first = next(iter(rows))
    dates = sorted({row["date"] for row in rows})
    on = measured_on(first["machine"], " and ".join(dates))
    commands = list(dict.fromkeys(row["command"] for row in rows if "command" in row))
    return section(title, said, table([head, *columns], shown), on, commands, file)


def paper_layers() -> str:
    """ResNet-34, layer by layer."""
    said = "Microseconds, and in brackets the speed against PyTorch's fastest form of the original convolution; layers are named by channels in and out, size and stride."
    return _paper(
        "paper_layers.json",
        lambda row: row["layer"],
        "us",
        "ResNet-34, layer by layer",
        said,
        "layer",
    )


def paper_networks() -> str:
    """Networks with named operators."""
    said = "Milliseconds, and in brackets the speed against the original in eager PyTorch. Untrained weights: speed only, no accuracy."
    return _paper(
        "paper_end_to_end.json",
        lambda row: row["network"],
        "ms",
        "Networks with known operators in their convolutions",
        said,
        "network",
    )


def spaces() -> str:
    """Known operators in default spaces."""
    found = read("spaces.json")
    names = list(dict.fromkeys(name for group in found["groups"] for name in group["named"]))
    rows = []
    for name in names:
        cells = [group["named"][name] for group in found["groups"] if name in group["named"]]
        legal = sum(cell == "legal" for cell in cells)
        rows.append([name, legal, len(cells)])
    said = f"In how many default spaces, of {len(found['groups'])} groups of layers of networks, operators that people have named can be found."
    heads = ["operator", "groups in whose space it is", "groups it could stand in"]
    return section(
        "What a search may find",
        said,
        table(heads, rows),
        measured_on(found["machine"], found["date"]),
        [found["command"]],
        "spaces.json",
    )


def reuse_pairs() -> str:
    """Reuse beside its controls."""
    found = read("reuse_pairs.json")
    ways = [way for way in next(iter(found["pairs"].values()))["quality"] if way != "search"]
    rows = [
        [name, f"{row['search_us']:.1f}", *(f"{row['quality'][way]:.3f}" for way in ways)]
        for name, row in found["pairs"].items()
    ]
    means = found["summary"]["quality"]
    rows.append(["geometric mean", "", *(f"{means[way]['geomean']:.3f}" for way in ways)])
    counts = next(iter(found["pairs"].values()))["measurements"]
    said = (
        f"Of each type of operator two sizes, each tuned by a search of {counts['search']} measurements; the time of what it found over that of what reuse of "
        f"the other's record finds in at most {max(count for way, count in counts.items() if way != 'search')}, and over that of other ways to spend as many."
    )
    return section(
        "Reuse of tuned programs",
        said,
        table(["operator", "searched, µs", *ways], rows),
        measured_on(found["machine"]),
        [found["command"]],
        "reuse_pairs.json",
    )


def gpu_operators() -> str:
    """Triton kernels on a GPU."""
    found = read("gpu.json")

    def of(row: Any, what: str) -> list[str]:
        return [f"{row[what]['us']:.0f}", f"{row[what]['ratio']:.2f}", row[what]["best_form"]]

    rows = [[row["name"], *of(row, "forward"), *of(row, "step")] for row in found["cases"]]
    means = found["summary"]
    rows.append(
        [
            "geometric mean",
            "",
            f"{means['forward']['geomean']:.2f}",
            "",
            "",
            f"{means['step']['geomean']:.2f}",
            "",
        ]
    )
    heads = ["operator", "forward, µs", "speed", "best other", "step, µs", "speed", "best other"]
    machine = found["machine"]
    on = (
        f"{machine['device']}, torch {machine['torch']}, cuDNN {machine['cudnn']}; {found['date']}."
    )
    return section(
        "Triton kernels on a GPU",
        f"Batch {found['batch']}, float32, no TF32 elsewhere: the time of the fastest form in PyTorch over that of the kernels, forward and with the gradients "
        "of all inputs.",
        table(heads, rows),
        on,
        [found["command"]],
        "gpu.json",
    )


def ranged_kernels() -> str:
    """Kernels for ranges of sizes."""
    found = read("reuse_kernels.json")
    rows = []
    for name, row in found["kernels"].items():
        at, least = min(row["sizes"].items(), key=lambda one: one[1]["speed"])
        rows.append(
            [
                name,
                row["buckets"],
                f"{row['speed']:.3f}",
                f"{least['speed']:.3f} ({at})",
                f"{row['there_ms']:.3f}",
                f"{row['made_ms']:.1f}",
            ]
        )
    heads = [
        "operator",
        "ranges",
        "speed",
        "least speed",
        "new size, code there, ms",
        "code made, ms",
    ]
    said = (
        "One size of an operator from 1 to 512, or one or two of a layer, known at the call: the time of the kernel for these sizes alone over that of the one for their range, "
        "geometric mean over fourteen sizes, or four of a layer, and the least; and the processor time until a size that nobody called before can be called, median."
    )
    return section(
        "Kernels for ranges of sizes",
        said,
        table(heads, rows),
        measured_on(found["machine"]),
        [found["command"]],
        "reuse_kernels.json",
    )


def changing_networks() -> str:
    """Networks whose sizes change from call to call."""
    found = read("reuse_changing.json")
    rows = []
    for network in found["changing"].values():
        for name, row in network["rows"].items():
            if "error" in row:
                rows.append([network["title"], name, "–", "–", row["error"]])
                continue
            ms = row["ms"]
            shown = list(ms)[:: max(1, (len(ms) - 1) // 3)]
            of_one = ", ".join(f"{ms[size]:.1f} at {size}" for size in shown)
            rows.append(
                [
                    network["title"],
                    name,
                    f"{row['ready_s']:.1f}",
                    f"{statistics.geometric_mean(ms.values()):.2f}",
                    of_one,
                ]
            )
    said = (
        "From an empty cache: seconds until every size was called once, in an order drawn by a seed, with all that has to be traced, exported, "
        "constructed, compiled and checked for it; then the time of a call, geometric mean over the sizes and at some of them. "
        + " ".join(
            f"{network['title']}: {network['summary']['best peer of each size: speed']:.2f} of the speed of the best other at each size."
            for network in found["changing"].values()
        )
    )
    heads = ["network", "by", "all sizes once, s", "a call, ms", "of which"]
    return section(
        "Networks at changing sizes",
        said,
        table(heads, rows),
        measured_on(found["machine"]),
        [found["command"]],
        "reuse_changing.json",
    )


TABLES: dict[str, Callable[[], str]] = {
    "networks": networks,
    "derived_networks": derived_networks,
    "networks_on_two_threads": networks_on_two_threads,
    "kernels": kernels,
    "kernels_held_to_avx2": kernels_held_to_avx2,
    "derivations": derivations,
    "constructions": constructions,
    "paper_layers": paper_layers,
    "paper_networks": paper_networks,
    "reuse_pairs": reuse_pairs,
    "ranged_kernels": ranged_kernels,
    "changing_networks": changing_networks,
    "gpu_operators": gpu_operators,
    "spaces": spaces,
}
