"""Machine models that tests draw or write down: what the CPU below the tests is must not decide whether they pass.

``python machines.py SEED FILE`` writes a drawn one, for a run of the tests with ``SYNO_MACHINE=FILE``.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from syno import _core

KIB = 1 << 10
# Bytes of L1, L2 and L3 of CPUs that people have: Zen 2 to 5, Skylake to Sapphire Rapids, Neoverse, a laptop's.
CACHES = [
    (32 * KIB, 512 * KIB, 16 << 20),
    (32 * KIB, 512 * KIB, 256 << 20),
    (32 * KIB, 1 << 20, 32 << 20),
    (48 * KIB, 1 << 20, 32 << 20),
    (32 * KIB, 1 << 20, 33 << 20),
    (48 * KIB, 1280 * KIB, 54 << 20),
    (48 * KIB, 2 << 20, 105 << 20),
    (64 * KIB, 1 << 20, 32 << 20),
    (32 * KIB, 256 * KIB, 6 << 20),
]


TYPICAL: dict[str, float] = _core.describe_machine().access_cycles


def written_machine() -> Any:
    """One that is the same wherever tests run but for the vectors of its CPU: three caches at 3 GHz."""
    return changed(CACHES[0], 3.0, 4.0, cores=2)


def drawn_machine(seed: int) -> Any:
    """One as there are: caches, clock and latencies of a CPU, with the vectors of this one."""
    draw = random.Random(seed)
    return changed(
        draw.choice(CACHES),
        draw.choice([1.8, 2.0, 2.45, 3.0, 3.7, 4.5]),
        draw.choice([3.0, 4.0, 5.0]),
        cores=draw.choice([1, 2, 4, 8]),
        ports=draw.choice([1.0, 2.0, 2.0]),
        bandwidth=draw.uniform(0.5, 2.0),
        accesses={name: cycles * draw.choice([0.5, 1, 3]) for name, cycles in TYPICAL.items()},
    )


def changed(
    caches: tuple[int, int, int],
    ghz: float,
    latency: float,
    cores: int,
    ports: float = 2.0,
    bandwidth: float = 1.0,
    accesses: dict[str, float] | None = None,
) -> Any:
    """A model with these numbers, its rates at the clock that it has."""
    facts = json.loads(_core.describe_machine().to_json())
    facts.update(cores=cores, ghz=ghz, fma_latency_cycles=latency)
    facts.update(fma_ports=ports, fma_per_cycle=ports)
    facts["access_cycles"] |= accesses or {}
    size = facts["vector_bits"] / 8
    l1, l2, l3 = caches
    # Bytes, vectors read in a cycle, and cycles until the first is there.
    for name, held, vectors, cycles, ways, shared in (
        ("L1", l1, 2.0, 4.0, 8, 1),
        ("L2", l2, 1.0, 14.0, 8, 1),
        ("L3", l3, 0.75, 50.0, 16, cores),
    ):
        level = next(each for each in facts["levels"] if each["name"] == name)
        read = vectors * size * ghz * bandwidth
        level.update(bytes=held, ways=ways, shared_by=shared, latency_ns=cycles / ghz)
        level.update(read_gbs=read, write_gbs=read / 2, copy_gbs=read * 2 / 3)
    return _core.MachineModel.from_json(json.dumps(facts))


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(drawn_machine(int(sys.argv[1])).to_json())
