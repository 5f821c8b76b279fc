"""ALT's joint search against loops alone, operator by operator, with the same trials."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from altbench.operators import Case, one_node
from syno import _core
from syno.errors import SynoError
from syno.operators.operator import Operator
from syno.tuning.layouts.result import LaidTuned
from syno.tuning.layouts.search import Layouts
from syno.tuning.layouts.template import Template
from syno.tuning.search import tune

METHODS = ("ALT-OL", "ALT-WP", "ALT")
"""ALT-OL: loops alone, of channels last; ALT-WP: layouts and loops, a call copying its data into them and its result out, as
without propagation; ALT: data and result lie so, as kernels beside it would write and read them."""


def run_joint(case: Case, methods: list[str], trials: int, seed: int, **how: Any) -> dict[str, Any]:
    """Times of the best of each search, weights packed before calls; `loops` is row-major, loops alone."""
    begin = time.perf_counter()
    graph, node = one_node(case.module, case.shape)
    assert node.program is not None
    program = node.program
    row: dict[str, Any] = {"case": case.name, "us": {}, "over_loops": {}, "layouts": {}}
    try:
        template = Template(program, how.get("levels", 1))
    except SynoError as error:
        row["failed"] = str(error)[:200]
        return row
    weights = tuple(
        mine
        for mine, name in zip(program.inputs, node.inputs, strict=True)
        if graph.tensor(name)[2] == "weight"
    )
    data, result = template.axes.data, program.outputs[0]
    with tempfile.TemporaryDirectory() as folder:
        session = Path(folder) / "trials.jsonl"

        def searched(of: _core.Program, free: tuple[str, ...], share: float) -> LaidTuned:
            settings = Layouts(**{**how, "share": share, "constants": weights, "free": free})
            found = tune(
                Operator(of), trials=trials, seed=seed, keep=False, progress="off", session=session,
                layouts=settings, options=options(),
            )  # fmt: skip
            assert isinstance(found, LaidTuned)
            return found

        for method in methods:
            try:
                if method == "ALT-OL":
                    last = program
                    for name, layout in template.layouts(template.whole()).items():
                        if name in (data, *template.output):
                            last = _core.laid_out(last, name, layout)
                    found = searched(last, (), 1e-9)
                    row["us"][method] = found.loops_us
                    continue
                found = searched(program, (data, result) if method == "ALT" else (), how["share"])
            except SynoError as error:
                row.setdefault("failures", {})[method] = str(error)[:200]
                continue
            row["us"] |= {"constructed": found.constructed_us, "loops": found.loops_us}
            # Where no layout is better by measurement, its user has loops alone.
            row["us"][method] = found.joint_us
            row["over_loops"][method] = found.loops_us / found.joint_us
            row["layouts"][method] = found.joint_choice
            row[f"explored {method}"] = found.explored
            row["note"] = row.get("note") or found.note
    if "ALT-OL" in row["us"] and "loops" in row["us"]:
        row["over_loops"]["ALT-OL"] = row["us"]["loops"] / row["us"]["ALT-OL"]
    if "loops" in row["us"]:
        row["searched_over_constructed"] = row["us"]["loops"] / row["us"]["constructed"]
    row["seconds"] = round(time.perf_counter() - begin, 1)
    return row


def options() -> _core.MeasureOptions:
    """Brief, as there are many."""
    from syno.tuning.search import default_options

    made = default_options(1, cold=False)
    made.samples, made.sample_s, made.limit_s = 5, 3e-4, 20.0
    made.lock_wait_s = 5.0
    return made
