"""Going back to a candidate of a session: time it, train it again, export it, explain it."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.errors import SessionError, SynoError, TaskError, told, unknown_name
from syno.machines.model import fixed_kernels
from syno.searching.network import NetworkEvaluator, NetworkMeasurer
from syno.searching.result import Result, in_dtype_of
from syno.session import Candidate, Score, SessionView, open_view
from syno.session.protocols import AS_TIMED, RUNNERS
from syno.session.records import COMBINED
from syno.support.inputs import arguments
from syno.support.numbers import significant

if TYPE_CHECKING:
    from torch import nn

    from syno.export import Exported
    from syno.operators.explain import Explanation
    from syno.session import Measurement
    from syno.timing.bench import Comparison
    from syno.torch import Op
    from syno.training.task import Task
    from syno.training.train import TrainResult


def model_of(reference: str) -> nn.Module:
    """The model that ``"module:function"`` makes, or that its task trains.

    Raises:
        TaskError: it cannot be imported, fails, or makes something else.
    """
    from torch import nn

    from syno.training.task import Task
    from syno.training.tasks import resolve

    factory = resolve(reference)
    try:
        made = factory if isinstance(factory, nn.Module) else factory()
    except SynoError:
        raise
    except Exception as error:
        raise TaskError(
            f"{reference!r} failed: {told(error)}",
            fix="give a function that makes the model without arguments",
            code="T008",
        ) from error
    if isinstance(made, Task):
        made = made.make_model(made.seeds[0])
    if not isinstance(made, nn.Module):
        raise TaskError(
            f"{reference!r} returned a {type(made).__name__}, not a torch module",
            fix="give a function that returns the model, or a syno.Task",
            code="T002",
        )
    return made


#: What a candidate can be timed against.
CONTESTANTS = ("eager", "whole", "derived", "compile", "onednn", "onnxruntime", "openvino")


def bench_candidate(
    directory: Path,
    id: str,
    *,
    against: Sequence[str],
    threads: int = 1,
    model: nn.Module | None = None,
    trust: bool = False,
) -> Comparison:
    """Times the network with a candidate against the original.

    Args:
        against: ``"eager"`` (the original, which is always there), ``"whole"`` (both compiled whole by
            :func:`syno.compile`, as :meth:`Found.apply <syno.searching.result.Found.apply>` gives them), ``"derived"`` (the same
            with ``derive=True``), ``"compile"`` (both under ``torch.compile``), ``"onednn"`` (the original as a frozen
            graph with its layers packed for oneDNN), ``"onnxruntime"``, ``"openvino"`` (the original there, in float32).
        trust: as for :meth:`Result.load <syno.searching.result.Result.load>`.
        model: the original; default the task's.
    Raises:
        TrustError: the session was made by somebody else.
        UnknownName: another contestant, or no such candidate.
        SessionError: the session names no task, and no model was given.
    """
    from syno.timing.bench import bench, check_threads
    from syno.training.train import torch_threads

    check_threads(threads)
    _check_contestants(against)
    with open_view(directory) as view, fixed_kernels(view.config.machine):
        result = Result(view, trust=trust)
        candidate = view.candidate(id)
        original = result.original() if model is None else model
        example = in_dtype_of(original, result.example)
        with torch_threads(threads):
            models: dict[str, Callable[..., Any]] = {
                "original": original,
                candidate.id: result.apply(candidate, original, compile=False),
            }
            wanted = list(models) if "compile" in against else []
            skipped: dict[str, str] = {}
            compiled = dict(models)
            for derive in (False, True):
                if ("derived" if derive else "whole") in against:
                    whole, without = compiled_forms(
                        compiled, example, threads=threads, derive=derive
                    )
                    models |= whole
                    skipped |= without
        args, named = arguments(original, example)
        skipped |= _elsewhere(models, original, args, named, against, threads)
        timed = bench(models, *args, named=named, compile=wanted, threads=threads)
        return dataclasses.replace(timed, skipped={**timed.skipped, **skipped})


def bench_original(
    model: nn.Module, example: Any, *, against: Sequence[str], threads: int = 1
) -> Comparison:
    """Times a model without any session: in eager, and the other forms that are asked for, in turns.

    Args:
        example: what it is called with: a tensor, a tuple of arguments or a dictionary of named ones.
        against: of :data:`CONTESTANTS`; ``"eager"`` is always there.
    Raises:
        UnknownName: another contestant.
        ShapeError: the model does not take the example.
    """
    from syno.timing.bench import bench, check_threads
    from syno.training.train import torch_threads

    _check_contestants(against)
    check_threads(threads)
    models: dict[str, Callable[..., Any]] = {"original": model}
    skipped: dict[str, str] = {}
    args, named = arguments(model, example)
    with torch_threads(threads):
        for derive in (False, True):
            if ("derived" if derive else "whole") in against:
                whole, without = compiled_forms(
                    {"original": model}, example, threads=threads, derive=derive
                )
                models |= whole
                skipped |= without
    skipped |= _elsewhere(models, model, args, named, against, threads)
    wanted = ["original"] if "compile" in against else []
    timed = bench(models, *args, named=named, compile=wanted, threads=threads)
    return dataclasses.replace(timed, skipped={**timed.skipped, **skipped})


def _check_contestants(against: Sequence[str]) -> None:
    for name in against:
        if name not in CONTESTANTS:
            raise unknown_name("contestant", name, CONTESTANTS)


def _packed(
    models: dict[str, Callable[..., Any]], original: nn.Module, args: Sequence[Any], named: Any
) -> dict[str, str]:
    """Adds the original packed for oneDNN to ``models``; why it cannot be, by name."""
    from syno.timing.onednn import OneDnnUnavailable, packed_for_onednn

    label = "original, oneDNN"
    try:
        if named:
            raise OneDnnUnavailable("the network takes inputs by name")
        models[label] = packed_for_onednn(original, tuple(args))
    except OneDnnUnavailable as error:
        return {label: str(error)}
    return {}


def _elsewhere(
    models: dict[str, Callable[..., Any]],
    original: nn.Module,
    args: Sequence[Any],
    named: Mapping[str, Any],
    against: Sequence[str],
    threads: int,
) -> dict[str, str]:
    """Adds the original as others run it to ``models``; why some cannot, by name."""
    from syno.timing.runtimes import RUNTIMES, RuntimeUnavailable, running

    skipped = _packed(models, original, args, named) if "onednn" in against else {}
    for runtime in RUNTIMES:
        if runtime.name in against:
            label = f"original, {runtime.title}"
            try:
                models[label] = running(runtime, original, args, named, threads=threads)
            except RuntimeUnavailable as error:
                skipped[label] = str(error)
    return skipped


def compiled_forms(
    models: Mapping[str, Any], example: Any, *, threads: int, derive: bool = False
) -> tuple[dict[str, nn.Module], dict[str, str]]:
    """Copies of networks that are compiled whole, and why some are not; by name."""
    from syno.graph.serving import compiled_or_why

    found: dict[str, nn.Module] = {}
    skipped: dict[str, str] = {}
    for name, model in models.items():
        label = f"{name}, {RUNNERS['compiled']}{', derived' if derive else ''}"
        twin = copy.deepcopy(model).eval()
        made = compiled_or_why(twin, example, threads=threads, derive=derive)
        if isinstance(made, str):
            skipped[label] = made
        else:
            found[label] = twin
    return found, skipped


#: How often a latency outside its tolerance is measured again: what else the machine does passes.
_MEASUREMENTS = 3


def replay_candidate(
    directory: Path,
    id: str,
    *,
    tolerance: float,
    latency_tolerance: float = 0.25,
    trust: bool = False,
    task: Task | str | None = None,
) -> dict[str, Any]:
    """Rebuilds, trains and times one candidate again, as the session did, and compares.

    Args:
        tolerance: by how much the metric may differ.
        latency_tolerance: by which share of the recorded latency the new one may differ, beside the interquartile
            ranges of both. Outside it is measured up to three times, and the nearest counts; one that was
            recorded on another CPU is not judged.
        task: instead of the one that the session names; needed where it names none.
    Returns:
        ``{"id", "same", "rows": [{"quantity", "recorded", "again", "same", "tolerance"}]}``; the operator's hash
        must be equal. ``same`` of a row is ``None`` where it cannot be judged.
    Raises:
        SessionError: the candidate was never trained.
        TrustError: the session was made by somebody else.
    """
    from syno.operators.operator import Operator
    from syno.session.protocols import MeasureRequest, TrainRequest

    with open_view(directory) as view, fixed_kernels(view.config.machine):
        candidate = view.candidate(id)
        score = candidate.score
        if score is None:
            raise SessionError(
                f"{candidate.id} was never trained: {candidate.state} {candidate.reason}".rstrip(),
                fix="replay a candidate that is done",
                code="R012",
            )
        network = Result(view, trust=trust, task=task).network
        keys = view.assignment(candidate)
        texts = {stage: view._store.operator(key) for stage, key in keys.items()}
        rows = [
            _row("operator", text.key, key, text.key == key, "equal")
            for text in texts.values()
            for key in [Operator.from_json(text.text).canonical_hash]
        ]
        request = TrainRequest(
            candidate=candidate.number,
            assignment=texts,
            seed=score.seed,
            part=score.part,
            threads=score.threads,
            time_limit_s=view.config.limits.train_limit_s,
            machine=view.config.predicted_on or "",
        )
        evaluator = NetworkEvaluator(
            network.task,
            stages=network.stages,
            batch=network.batch,
            native=network.native,
            fit=network.fit,
        )
        again = evaluator.evaluate(request, lambda step, **metrics: None)
        value = _value_at(again, score)
        near = abs(value - score.value) <= tolerance
        limit = f"{tolerance:g}"
        rows.append(
            _row(score.metric, significant(score.value, 4), significant(value, 4), near, limit)
        )
        measurer = NetworkMeasurer(
            network.task, stages=network.stages, batch=network.batch, compiled=view.compiles
        )
        request_us = MeasureRequest(
            candidate=candidate.number,
            assignment=texts,
            threads=view.config.threads_per_measurement,
            time_limit_s=view.config.limits.measure_limit_s,
        )
        rows.append(
            compare_latency(candidate, lambda: measurer.measure(request_us), latency_tolerance)
        )
    return {"id": candidate.id, "same": all(row["same"] is not False for row in rows), "rows": rows}


def _value_at(again: TrainResult, score: Score) -> float:
    """The metric where the recorded training ended; one that was stopped early is compared there."""
    for point in again.curve:
        if point.step == score.steps and score.steps < again.steps:
            return point.metrics.get(score.metric, math.nan)
    return again.value


def compare_latency(
    candidate: Candidate, measure: Callable[[], Measurement], tolerance: float
) -> dict[str, Any]:
    """The row of a replay that says whether ``measure()`` is near the latency on record."""
    from syno.support.machine import cpu_model

    # A session records latencies as parts of the original's; here the network is timed alone.
    alone = [t.latency_us for t in candidate.timings if t.runner == AS_TIMED]
    recorded = alone[0] if alone else candidate.latency_us
    if recorded is None:
        return _row("latency_us", "-", significant(measure().latency_us), None, "never measured")
    machines = {t.cpu for t in candidate.timings if not t.site and t.runner == "syno"}
    if machines != {cpu_model()}:
        where = f"recorded on {', '.join(machines) or 'an unknown CPU'}"
        return _row(
            "latency_us", significant(recorded), significant(measure().latency_us), None, where
        )
    nearest, same = math.inf, False
    for _ in range(_MEASUREMENTS):
        found = measure()
        nearest = min(nearest, found.latency_us, key=lambda us: abs(us - recorded))
        spread = (candidate.latency_iqr_us or 0.0) + found.iqr_us
        same = abs(found.latency_us - recorded) <= tolerance * recorded + spread
        if same:
            break
    return _row(
        "latency_us", significant(recorded), significant(nearest), same, f"{tolerance:.0%} + spread"
    )


def _row(
    quantity: str, recorded: str, again: str, same: bool | None, tolerance: str
) -> dict[str, Any]:
    return {
        "quantity": quantity,
        "recorded": recorded,
        "again": again,
        "same": same,
        "tolerance": tolerance,
    }


def export_candidate(
    directory: Path,
    id: str,
    *,
    format: str,
    output: Path,
    dtype: str = "float32",
    trust: bool = False,
    model: nn.Module | None = None,
    operator: str | None = None,
    seed: int | None = None,
    target: str | None = None,
    cpu: str | None = None,
    gpu: str | None = None,
) -> Exported:
    """Exports the network with a candidate in it, trained where it was a finalist; see :func:`syno.export`.

    Args:
        model: the original; default the task's.
        operator: a site, to export the operator in it alone, at the site's sizes and with its trained weights.
        seed: of the finalists' training whose weights to take; default the first.
        target, cpu, gpu: that C, and Triton, are for; see :func:`syno.export`.
    Raises:
        UnknownName: no such candidate, dtype, site, target, CPU or GPU.
        SessionError: the session names no task, and a model was not given.
        TrustError: the session was made by somebody else.
    """
    import torch

    from syno.export import _made_for, _tiles_for, export
    from syno.torch.native import TORCH

    if dtype not in TORCH:
        raise unknown_name("dtype", dtype, TORCH)
    _made_for(format, target, cpu)  # before any work
    _tiles_for(format, gpu)
    with open_view(directory) as view, fixed_kernels(view.config.machine):
        result = Result(view, trust=trust)
        candidate = view.candidate(id)
        if not candidate.key:
            raise SessionError(
                "the baseline has no operator to export",
                fix="name a candidate, such as c1",
                code="R012",
            )
        trained = result.trained_seed(candidate, seed)
        weights = (
            "weights not trained: it was no finalist"
            if trained is None
            else f"weights trained with seed {trained}"
        )
        if operator is not None:
            module = operator_at(result, candidate, operator, trained).eval().to(TORCH[dtype])
            about = f"the operator of {candidate.id} at site {operator}, {weights}"
            shape = result.sites[operator].calls[0].input
            example = torch.randn(shape, generator=torch.Generator().manual_seed(0))
            return export(
                module,
                output,
                format=format,
                example=example.to(TORCH[dtype]),
                about=about,
                target=target,
                cpu=cpu,
                gpu=gpu,
            )
        network = result.apply(candidate, model, seed=seed, measured=False, compile=False)
        network = network.eval().to(TORCH[dtype])
        example = in_dtype_of(network, result.example)
        about = f"the network with {candidate.id}, {weights}"
        return export(
            network,
            output,
            format=format,
            example=example,
            about=about,
            target=target,
            cpu=cpu,
            gpu=gpu,
        )


def operator_at(result: Result, candidate: Candidate, site: str, seed: int | None) -> Op:
    """The module that a candidate has at a site, with the trained weights of ``seed`` if there are such.

    Raises:
        UnknownName: the candidate has no operator in such a site.
    """
    import torch
    from safetensors import safe_open

    from syno.torch import Op
    from syno.torch.replace import at_fit

    assigned = result.assigned(candidate)
    if site not in assigned:
        raise unknown_name("site", site, assigned)
    place = result.sites[site]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        concrete = at_fit(assigned[site], place.fits[0])
        module = Op(concrete, layer=place.layer, dtype=getattr(torch, place.dtype))
    if seed is not None:
        path = result.view.weights(candidate)[seed]
        result.view.check_file(path)
        with safe_open(str(path), framework="pt") as file, torch.no_grad():
            stored = set(file.keys())
            for name, parameter in module.named_parameters():
                # Of a module with several names, the file has one.
                names = [f"{each}.{name}" if each else name for each in (place.name, *place.also)]
                parameter.copy_(file.get_tensor(next(n for n in names if n in stored)))
    return module


def spec_of(view: SessionView, stage: str) -> str:
    """The JSON of a stage's space."""
    for one in view.config.stages:
        if one.name == stage:
            return str(one.proposer.options["spec"])
    names = ", ".join(s.name for s in view.config.stages)
    raise SessionError(f"there is no stage {stage!r}", fix=f"there are: {names}", code="R012")


def explain_candidate(
    directory: Path, id: str, *, neighbours: int = 0
) -> tuple[str, Explanation | None]:
    """How a candidate was chosen and judged, in lines of text, and its derivation.

    There is no derivation for the baseline, for combinations and for operators that were given as formulas.
    """
    from syno import _core
    from syno.operators.explain import explain

    with open_view(directory) as view:
        candidate = view.candidate(id)
        text = view.explain(candidate)
        if candidate.kind == COMBINED:
            return text, None  # each of its operators is a candidate of its own
        operator = view.operator(candidate) if candidate.key else None
        if operator is None or operator.pgraph is None:
            return text, None
        spec = _core.Spec.from_json(spec_of(view, candidate.stage))
        return text, explain(operator, spec, neighbours=neighbours)
