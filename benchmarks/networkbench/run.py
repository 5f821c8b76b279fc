"""Measures one network in processes of its own: compiled by us and made ready by every peer, in turns.

The first process compiles with an empty cache and measures, the second one compiles with what the first has left in the
cache. So no network finds the code of another, and one that crashes ends no run.
"""

from __future__ import annotations

import copy
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from kernelbench.limit import OutOfTime, time_limit
from kernelbench.peers import Unavailable, compiled_calls_only, first_line, result_array
from networks import make
from torch import Tensor, nn

from networkbench.peers import prepare
from syno.errors import SynoError
from syno.graph.compile import Compiling, check, compile_network
from syno.graph.compiled import CompiledNetwork
from syno.graph.from_torch import from_module
from syno.timing.bench import measure

#: Largest difference of a peer's outputs from float64, over the largest output.
TOLERANCE = 1e-3
#: What takes turns beside ours with derived kernels: ours without.
UNDERIVED = "underived"


@dataclass(frozen=True)
class Settings:
    """What a run is asked for."""

    peers: Sequence[str]
    threads: int = 1
    batch: int = 1
    turns: int = 15
    derive: bool = False
    seconds: float = 30.0
    """Of the derivations in one network."""
    limit_s: float = 120.0
    """Measuring of one network ends after this, at least three turns made."""
    prepare_s: float = 1200.0
    """A peer that needs longer to make a network ready is left out."""


def run_network(name: str, settings: Settings, machine: Path) -> dict[str, Any]:
    """A row of the report; one with `error` where the network does not compile.

    Args:
        machine: file of the machine model.
    """
    row = {"network": name, "batch": settings.batch, "threads": settings.threads}
    with tempfile.TemporaryDirectory() as directory:
        measured = _in_process("measured", name, settings, machine, Path(directory))
        if "error" not in measured:
            again = _in_process("compiled_again", name, settings, machine, Path(directory))
            measured["cached_s"] = again.get("compile_s")
            if "error" in again:
                measured["error"] = f"compiled again: {again['error']}"
    return row | measured


def _in_process(
    what: str, name: str, settings: Settings, machine: Path, directory: Path
) -> dict[str, Any]:
    answer = directory / "answer.json"
    answer.unlink(missing_ok=True)
    request = {"what": what, "name": name, "settings": asdict(settings), "answer": str(answer)}
    folder = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH", ""))))
    environment = os.environ | {
        "PYTHONPATH": path,
        "SYNO_CACHE": str(directory / "cache"),
        "SYNO_MACHINE": str(machine),
    }
    done = subprocess.run(
        [sys.executable, "-m", "networkbench.run"],
        input=json.dumps(request),
        env=environment,
        text=True,
        stdout=sys.stderr,  # of the peers, which may say something
        check=False,
    )
    if not answer.exists():
        return {"error": f"its process ended with {done.returncode}"}
    return dict(json.loads(answer.read_text()))


def main() -> None:
    """In the process of a network: reads a request, writes the answer to the file it names."""
    request = json.loads(sys.stdin.read())
    settings = Settings(**request["settings"])
    work = {"measured": measured, "compiled_again": compiled_again}[request["what"]]
    torch.set_num_threads(settings.threads)
    try:
        answer = work(request["name"], settings)
    except SynoError as error:
        answer = {"error": str(error)}
    Path(request["answer"]).write_text(json.dumps(answer))


def measured(name: str, settings: Settings) -> dict[str, Any]:
    """The fields of a row. Raises SynoError: the network does not compile, or computes something else."""
    model, x = _network(name, settings)
    net, row = _compiled(model, x, settings)
    plain = None
    row |= {"derived_kernels": sum(bool(stage.derived) for stage in net.stages)}
    if row["derived_kernels"]:
        plain, _ = _compiled(model, x, replace(settings, derive=False), verify=False)
    absent: dict[str, str] = {}
    with torch.inference_mode():
        exact = result_array(_doubled(model)(x.double() if x.is_floating_point() else x))
        errors = {"syno": difference(result_array(net(x)), exact)}
        calls: dict[str, Callable[[], Any]] = {"syno": lambda: net(x)}
        if plain is not None:
            calls[UNDERIVED] = partial(plain, x)
        for peer in settings.peers:
            calls |= _of_peer(peer, model, x, exact, settings, errors, absent)
        with compiled_calls_only():
            timings = measure(
                calls,
                turns=settings.turns,
                timeout_s=settings.limit_s,
                threads=settings.threads,
            )
        share = net.profile(x).kernels_share
    ours, others = timings[0], timings[1:]
    if plain is not None:
        before, others = others[0], others[1:]
        row |= {"underived_us": before.median_us, "ratio_to_underived": 1 / before.speed_up}
    elif settings.derive:  # the same kernels
        row |= {"underived_us": ours.median_us, "ratio_to_underived": 1.0}
    fastest: dict[str, Any] = {}
    for timing in others:
        peer = timing.name.partition(",")[0]
        if peer not in fastest or timing.median_us < fastest[peer].median_us:
            fastest[peer] = timing
    best = min(fastest, key=lambda peer: fastest[peer].median_us, default=None)
    return row | {
        "us": ours.median_us,
        "spread": ours.iqr_us,
        "turns": ours.samples,
        "peers_us": {peer: timing.median_us for peer, timing in fastest.items()},
        "peers_spread": {peer: timing.iqr_us for peer, timing in fastest.items()},
        "forms_us": {timing.name: timing.median_us for timing in others},
        "best_peer": best,
        # Speed-ups refer to ours, turn by turn.
        "ratio_to_best_peer": None if best is None else 1 / fastest[best].speed_up,
        "ratios": {peer: 1 / timing.speed_up for peer, timing in fastest.items()},
        "max_rel_err": errors.pop("syno"),
        "peers_max_rel_err": errors,
        "absent": absent,
        "kernels_share": share,
        "note": ours.note,
    }


def compiled_again(name: str, settings: Settings) -> dict[str, Any]:
    """How long it takes where the cache has the code."""
    model, x = _network(name, settings)
    return _compiled(model, x, settings, verify=False)[1]


def _network(name: str, settings: Settings) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model, example = make(name)
    shape = (settings.batch, *example.shape[1:])
    if example.is_floating_point():
        return model.eval(), torch.randn(shape)
    return model.eval(), torch.randint(0, 100, shape)


def _compiled(
    model: nn.Module, x: Tensor, settings: Settings, verify: bool = True
) -> tuple[CompiledNetwork, dict[str, Any]]:
    begin = time.perf_counter()
    with torch.no_grad():
        network = from_module(model, x).network
    traced = time.perf_counter()
    net, _ = compile_network(
        network,
        [x],
        settings=Compiling(
            threads=settings.threads,
            derive=settings.derive,
            seconds=settings.seconds,
            verify=False,
        ),
    )
    done = time.perf_counter()
    if verify:
        verdict = check(net, network, [x])
        if not verdict:
            raise SynoError(f"[networks] {verdict}")
    return net, {
        "trace_s": traced - begin,
        "compile_s": done - traced,
        "arena_mb": net.arena_bytes / 2**20,
        "live_mb": net.live_bytes / 2**20,
        "weights_mb": net.weight_bytes / 2**20,
        "fallbacks": net.fallbacks,
        "stages": len(net.stages),
        "multiply_adds": sum(stage.flops for stage in net.stages),
    }


def _of_peer(
    peer: str,
    model: nn.Module,
    x: Tensor,
    exact: Any,
    settings: Settings,
    errors: dict[str, float],
    absent: dict[str, str],
) -> dict[str, Callable[[], Any]]:
    """What of a peer takes turns; where nothing does, or a variant does not, `absent` says why."""
    found: dict[str, Callable[[], Any]] = {}
    try:
        with time_limit(settings.prepare_s):
            made = prepare(peer, model, x, settings.threads)
    except (Unavailable, OutOfTime) as error:
        absent[peer] = str(error)
        return found
    except Exception as error:  # whatever a peer throws is the reason
        absent[peer] = f"{type(error).__name__}: {first_line(error)}"
        return found
    for variant, call in made.items():
        label = ", ".join(filter(None, (peer, variant)))
        try:
            value = call()
            got = result_array(call.result() if hasattr(call, "result") else value)
        except Exception as error:
            absent[label] = first_line(error)
            continue
        errors[label] = difference(got, exact)
        if errors[label] <= TOLERANCE:
            found[label] = call
        else:
            absent[label] = f"its outputs differ from float64 by {errors.pop(label):.1e}"
    return found


def _doubled(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).double()


def difference(got: Any, exact: Any) -> float:
    """The greatest difference over the greatest exact value; infinite for other shapes and what is no number."""
    if got.shape != exact.shape:
        return math.inf
    worst = float(abs(got - exact).max()) / max(float(abs(exact).max()), 1e-30)
    return worst if math.isfinite(worst) else math.inf


if __name__ == "__main__":
    main()
