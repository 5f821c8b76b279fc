"""The finalists and the original, timed in turns as they will be used."""

from __future__ import annotations

import copy

import msgspec

from syno.report.build import FINAL_FILE, FinalBench, read_final
from syno.searching.network import Network
from syno.searching.result import Result
from syno.session import SessionView
from syno.session.protocols import EAGER
from syno.support.files import write_whole
from syno.support.inputs import arguments
from syno.support.machine import describe_machine


def compare_finalists(view: SessionView, network: Network) -> None:
    """Times finalists and original in turns, each as it will be used: compiled whole where it can be. Beside them the
    original in eager and under ``torch.compile``. Kept in the session."""
    known = read_final(view)
    finalists = view.trained_again()
    if not finalists:
        return
    if known is not None and {"baseline", *(c.id for c in finalists)} == set(known.latencies_us):
        return
    from syno.graph.serving import compiled_or_why
    from syno.training.train import torch_threads

    threads = view.config.threads_per_measurement
    result = Result(view, network)
    original = network.task.make_model(network.task.seeds[0]).eval()
    example = network.task.example(network.batch)
    with torch_threads(threads):
        models, runners = {"baseline": original}, {}
        if view.compiles:
            models["baseline"] = copy.deepcopy(original)
            made = compiled_or_why(models["baseline"], example, threads=threads)
            runners["baseline"] = f"layers: {made}" if isinstance(made, str) else "compiled"
        for candidate in finalists:
            faster = result.apply(candidate, compile=False).eval()
            if view.compiles:
                made = compiled_or_why(faster, example, threads=threads)
                runners[candidate.id] = f"layers: {made}" if isinstance(made, str) else "compiled"
            models[candidate.id] = faster
    from syno.timing.bench import bench

    args, named = arguments(original, example)
    eager = EAGER if runners.get("baseline") == "compiled" else "baseline"
    peers = {EAGER: original} if eager == EAGER else {}
    timed = bench({**models, **peers}, *args, named=named, compile=eager, threads=threads)
    own = {name: timed[name] for name in models}
    by_torch = {
        "baseline" if label == f"{eager}, torch.compile" else label: timed[label].median_us
        for label in timed
        if label.endswith(", torch.compile")
    }
    final = FinalBench(
        latencies_us={name: timing.median_us for name, timing in own.items()},
        iqrs_us={name: timing.iqr_us for name, timing in own.items()},
        speedups={name: timing.speed_up for name, timing in own.items()},
        speedup_iqrs={name: timing.speed_up_iqr for name, timing in own.items()},
        samples=min(timing.samples for timing in own.values()),
        compiled_us=by_torch,
        skipped={name.replace(EAGER, "baseline"): why for name, why in timed.skipped.items()},
        threads=threads,
        batch=network.batch,
        runners=runners,
        eager_us=timed[EAGER].median_us if peers else None,
        note=next((timing.note for timing in own.values() if timing.note), ""),
        machine=describe_machine(),
    )
    text = msgspec.json.format(msgspec.json.encode(final), indent=1).decode()
    write_whole(view.directory / FINAL_FILE, text + "\n")
    view.record_file(view.directory / FINAL_FILE)
