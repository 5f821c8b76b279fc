"""Every operator of a spec, found exhaustively: how many, how fast, in how much memory.

    python benchmarks/synthesis.py --spec resnet18 --depth 7 --threads 2 --json
    python benchmarks/synthesis.py --spec resnet18 --depth 5 --dump operators.json

Time is taken inside the process, from the text of the spec to the last operator; memory is the peak
of the process minus what it held just before. `--dump` writes every operator as `primitives` (steps),
`flops` and `params` (summed over the valuations), `loops`, `sums` and `reads` (the one-scope form).
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import time
from pathlib import Path
from typing import Any

from syno import _core


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--spec", default="resnet18", help=", ".join(_core.spec_names()))
    parser.add_argument("--depth", type=int, default=6, help="most steps of an operator")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--memory-limit", type=float, default=0.0, metavar="MB", help="fail with a sentence above"
    )
    parser.add_argument("--dump", type=Path, help="write every operator to this JSON file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()

    text = _core.spec_named(arguments.spec).to_json()
    held, wall, cpu = _held_mb(), time.perf_counter(), time.process_time()
    spec = _core.Spec.from_json(text)
    try:
        result = _core.enumerate_operators(
            spec,
            max_steps=arguments.depth,
            threads=arguments.threads,
            memory_mb=arguments.memory_limit,
        )
    except _core.SpecError as error:
        parser.exit(1, f"{error}\n")
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
