"""A task in a world where every clock lies: importing it makes all timings random, in whatever process."""

from __future__ import annotations

import json
import os
import random

import drawing_task

import syno.timing.bench
from syno import Task, _core
from syno.timing.bench import Timing

CLOCK = random.SystemRandom()


def measure(functions, **_):  # type: ignore[no-untyped-def]
    """Each function runs once; its time is anything."""
    for function in functions.values():
        function()
    return [timing(name) for name in functions]


def timing(name: str) -> Timing:
    us, iqr_us = CLOCK.uniform(1, 1e4), CLOCK.uniform(0, 10)
    return Timing(name, us, iqr_us, samples=3, calls=1, threads=1, speed_up=1.0, speed_up_iqr=0.0)


def machine(draw: random.Random = CLOCK) -> _core.MachineModel:
    """One of which every rate is another."""
    facts = json.loads(_core.describe_machine().to_json())
    facts["measured"] = True
    facts["ghz"] *= draw.uniform(0.5, 2)
    for level in facts["levels"]:
        for rate in ("read_gbs", "write_gbs", "copy_gbs", "latency_ns"):
            level[rate] *= draw.uniform(0.2, 5)
    return _core.MachineModel.from_json(json.dumps(facts))


if os.environ.get("TEST_NOISE"):
    syno.timing.bench.measure = measure


def make() -> Task:
    return drawing_task.make(metric="loss")  # unlike accuracies of a few images, no two are equal
