"""Operators of a spec, all of them or a sample: how many, how fast, in how much memory.

    python benchmarks/synthesis.py --spec resnet18 --depth 7 --threads 2 --json
    python benchmarks/synthesis.py --spec resnet18 --depth 5 --dump operators.json
    python benchmarks/synthesis.py --spec resnet18 --depth 11 --checkpoint depth11.jsonl
    python benchmarks/synthesis.py --spec resnet18 --depth 12 --sample 60 --min-steps 9
    python benchmarks/synthesis.py --spec resnet18 --depth 12 --sample 100000 --min-steps 9 --seconds 60
    python benchmarks/synthesis.py --spec resnet18 --depth 12 --reach operator1 --policy evolution --seeds 5

With `--checkpoint` an enumeration that was interrupted goes on where it was. `--sample` draws random
operators instead; `--reach` searches with a policy that is told, of every operator, the share of its steps
that a named operator has too, and counts until it proposes that operator.

Time is taken inside the process, from the text of the spec to the last operator; memory is the peak
of the process minus what it held just before. `--dump` writes every operator as `primitives` (steps),
`flops` and `params` (summed over the valuations), `loops`, `sums` and `reads` (the one-scope form).
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import resource
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

from syno import _core
from syno.policies.derivation import derivation
from syno.policies.space import SpecSpace, likeness

#: Policies that choose among operators that are listed for them, by the names that a search has for them.
CHOOSERS = {
    "bayesian": "bayesian.BayesianOptimization",
    "evolution": "evolution.Evolution",
    "hypervolume": "hypervolume.HypervolumeImprovement",
    "random": "random_search.RandomSearch",
}


def _held_mb() -> float:
    """Memory the process holds now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def _peak_mb() -> float:
    """The most memory this program ever held, in MB."""
    # Not ru_maxrss, which remembers the process that started this one.
    status = Path("/proc/self/status").read_text()
    kilobytes = next(x.split()[1] for x in status.splitlines() if x.startswith("VmHWM:"))
    return int(kilobytes) * 1024 / 1e6


def _split(text: str) -> list[str]:
    """Comma-separated parts, commas inside brackets left alone."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


def describe(operator: Any, steps: int, flops: float, params: float) -> dict[str, Any]:
    """One operator as loops, sums and reads: what it computes, without how it was found."""
    line = next(x for x in operator.one_scope().text().splitlines() if re.match(r"y\[.*\] = ", x))
    match = re.fullmatch(r"y\[(.*?)\] = (?:sum\[(.*?)\] )?(.*)", line)
    if match is None:
        raise ValueError(f"not a sum of products: {line}")
    loops, sums, product = match.groups()
    ranged = [[part.strip() for part in x.split(":", 1)] for x in _split(loops)]
    summed = [[part.strip() for part in x.split(":", 1)] for x in _split(sums)] if sums else []
    reads = [[name, _split(index)] for name, index in _factors(product)]
    return {
        "primitives": steps,
        "flops": int(flops),
        "params": int(params),
        "loops": ranged,
        "sums": summed,
        "reads": reads,
    }


def _factors(product: str) -> list[tuple[str, str]]:
    """`x[i, j] * w1[j]` as [("x", "i, j"), ("w1", "j")]."""
    factors, depth, start, name = [], 0, 0, ""
    for at, letter in enumerate(product):
        if letter == "[":
            if depth == 0:
                name = product[start:at].strip(" *")
                start = at + 1
            depth += 1
        elif letter == "]":
            depth -= 1
            if depth == 0:
                factors.append((name, product[start:at]))
                start = at + 1
    return factors


def _print_sample(arguments: argparse.Namespace) -> None:
    """Draws operators; prints how many came, by steps, and how many in a second of CPU time."""
    spec = _core.spec_named(arguments.spec)
    held, wall, cpu = _held_mb(), time.perf_counter(), time.process_time()
    graphs = _core.sample_operators(
        spec,
        n=arguments.sample,
        seed=arguments.seed,
        threads=arguments.threads,
        max_steps=arguments.depth,
        min_steps=arguments.min_steps,
        seconds=arguments.seconds,
    )
    seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
    by_steps = Counter(len(graph.steps) for graph in graphs)
    report = {
        "operators": len(graphs),
        "by_steps": {str(k): by_steps[k] for k in sorted(by_steps)},
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "per_core_second": round(len(graphs) / cpu_seconds, 1),
        "peak_mb": round(max(0.0, _peak_mb() - held), 1),
    }
    if arguments.json:
        print(json.dumps(report))
        return
    print(f"{len(graphs)} operators of {arguments.min_steps} to {arguments.depth} steps:", end=" ")
    print(report["by_steps"])
    print(f"{seconds:.2f} s ({cpu_seconds:.2f} s CPU), {report['per_core_second']} a core-second,")
    print(f"{report['peak_mb']} MB above the start")


def _asked(policy: str, spec: Any, seed: int, exploration: float) -> Generator[Any, float, None]:
    """Operators that a policy proposes, one after the other; each is told the reward that is sent for it.

    The tree grows its operators; the others choose among those that a search lists for them (`SpecSpace`), so that what
    is not listed they never propose.
    """
    if policy == "mcts":
        tree = _core.Tree(spec, seed=seed, exploration=exploration)
        while asked := tree.ask(1):
            for ticket, graph in asked:
                tree.tell(ticket, (yield graph))
        return
    # Not imported where nothing is searched: that would be memory of the process that is measured.
    from syno.policies.policy import History, Policy

    module, _, name = CHOOSERS[policy].partition(".")
    chooser: Policy = getattr(importlib.import_module(f"syno.policies.{module}"), name)(seed)
    space = SpecSpace(spec, seed=seed)
    told: list[tuple[int, float]] = []
    gains: dict[int, tuple[float | None, float | None]] = {}
    while choices := chooser.choose(space, History(told=told, gains=gains), 1):
        index = choices[0].index
        reward = yield space.graphs[index]
        told.append((index, reward))
        gains[index] = (reward, reward)


def _print_reach(arguments: argparse.Namespace) -> None:
    """Counts what a policy proposes until it comes to a named operator, for several seeds."""
    text = json.loads(_core.spec_named(arguments.spec).to_json())
    text["budgets"]["max_steps"] = arguments.depth
    spec = _core.Spec.from_json(json.dumps(text))
    names = {v["name"] for v in text["variables"]}
    sizes = {"kernel": "k_1" if "k_1" in names else "k", "groups": "g", "shrink": "s"}
    goal = _core.named_operator(arguments.reach, spec, sizes)
    wanted, key = derivation(goal), goal.operator_key()
    rows = []
    for seed in range(1, arguments.seeds + 1):
        cpu, best, count, reached = time.process_time(), 0.0, 0, False
        asked = _asked(arguments.policy, spec, seed, arguments.exploration)
        graph = next(asked, None)
        while graph is not None:
            reward = likeness(wanted, derivation(graph))
            best, count = max(best, reward), count + 1
            reached = graph.operator_key() == key
            if reached or count >= arguments.iterations:
                break
            try:
                graph = asked.send(reward)
            except StopIteration:
                break  # nothing is left to propose
        rows.append(
            {
                "policy": arguments.policy,
                "seed": seed,
                "reached": reached,
                "operators": count,
                "best_reward": round(best, 3),
                "cpu_seconds": round(time.process_time() - cpu, 2),
            }
        )
        if not arguments.json:
            print(rows[-1], flush=True)
    if arguments.json:
        print(json.dumps(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--spec", default="resnet18", help=", ".join(_core.spec_names()))
    parser.add_argument("--depth", type=int, default=6, help="most steps of an operator")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--memory-limit", type=float, default=0.0, metavar="MB", help="fail with a sentence above"
    )
    parser.add_argument("--checkpoint", type=Path, help="keep what is finished here; go on from it")
    parser.add_argument("--sample", type=int, metavar="N", help="draw N random operators instead")
    parser.add_argument("--min-steps", type=int, default=0, help="least steps of a drawn operator")
    parser.add_argument("--seconds", type=float, default=0.0, help="draw no further after so many")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--reach", metavar="NAME", help="search for a named operator with a tree")
    parser.add_argument(
        "--policy", choices=["mcts", *CHOOSERS], default="mcts", help="with --reach"
    )
    parser.add_argument("--seeds", type=int, default=5, help="searches with --reach")
    parser.add_argument("--exploration", type=float, default=0.1, help="the tree's, with --reach")
    parser.add_argument("--iterations", type=int, default=5000, help="most operators of a search")
    parser.add_argument("--dump", type=Path, help="write every operator to this JSON file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    try:
        if arguments.sample is not None:
            return _print_sample(arguments)
        if arguments.reach is not None:
            return _print_reach(arguments)
    except _core.SynoError as error:
        parser.exit(1, f"{error}\n")

    text = _core.spec_named(arguments.spec).to_json()
    held, wall, cpu = _held_mb(), time.perf_counter(), time.process_time()
    spec = _core.Spec.from_json(text)
    try:
        result = _core.enumerate_operators(
            spec,
            max_steps=arguments.depth,
            threads=arguments.threads,
            memory_mb=arguments.memory_limit,
            checkpoint=arguments.checkpoint and str(arguments.checkpoint),
        )
    except _core.SynoError as error:
        parser.exit(1, f"{error}\n")
    except KeyboardInterrupt:
        kept = (
            f"; the same command goes on from {arguments.checkpoint}"
            if arguments.checkpoint
            else ""
        )
        parser.exit(130, f"interrupted{kept}\n")
    seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
    stats = result.stats
    report = {
        "operators": len(result),
        "by_steps": {str(k): v for k, v in stats["by_steps"].items()},
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "peak_mb": round(max(0.0, _peak_mb() - held), 1),
        "children": stats["children"],
        "states": stats["states"],
        "rejected": stats["rejected"],
    }
    if arguments.dump:
        rows = zip(result.operators, result.steps, result.flops, result.params, strict=True)
        arguments.dump.write_text(json.dumps([describe(*row) for row in rows], indent=1))
    if arguments.json:
        print(json.dumps(report))
        return
    if not len(result):
        print(_core.why_empty(spec, max_steps=arguments.depth))
    print(
        f"{report['operators']} operators of at most {arguments.depth} steps: {stats['by_steps']}"
    )
    print(f"{seconds:.2f} s ({cpu_seconds:.2f} s CPU), {report['peak_mb']} MB above the start")
    print(f"{stats['children']} steps looked at, {stats['states']} kept")
    for name, count in sorted(stats["rejected"].items(), key=lambda item: -item[1]):
        print(f"  {count:>10}  {name}")


if __name__ == "__main__":
    main()
