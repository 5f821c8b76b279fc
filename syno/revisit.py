"""Going back to a candidate of a session: time it, train it again, export it, explain it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.errors import SessionError, unknown_name
from syno.network import NetworkEvaluator, NetworkMeasurer
from syno.result import Result
from syno.session import SessionView, open_view

if TYPE_CHECKING:
    from syno.bench import Comparison
    from syno.explain import Explanation
    from syno.export import Exported


def bench_candidate(
    directory: Path, id: str, *, against: Sequence[str], threads: int = 1
) -> Comparison:
    """Times the network with a candidate against the original.

    Args:
        against: ``"eager"``, ``"compile"`` or both.
    Raises:
        UnknownName: another contestant, or no such candidate.
    """
    from syno.bench import bench
    from syno.errors import unknown_name

    for name in against:
        if name not in ("eager", "compile"):
            raise unknown_name("contestant", name, ("eager", "compile"))
    with open_view(directory) as view:
        result = Result(view)
        candidate = view.candidate(id)
        models = {
            "original": result.network.task.make_model(result.network.task.seeds[0]),
            candidate.id: result.apply(candidate),
        }
        wanted = list(models) if "compile" in against else []
        return bench(
            models,
            result.network.task.example(result.network.batch),
            compile=wanted,
            threads=threads,
        )


def replay_candidate(directory: Path, id: str, *, tolerance: float) -> dict[str, Any]:
    """Rebuilds, trains and times one candidate again, as the session did, and compares.

    Returns:
        ``{"id", "same", "rows": [{"quantity", "recorded", "again", "same"}]}``. The operator's hash must be
        equal, the metric within ``tolerance``; latencies are shown, not judged.
    Raises:
        SessionError: the candidate was never trained.
    """
    from syno.operator import Operator
    from syno.session.protocols import MeasureRequest, TrainRequest

    with open_view(directory) as view:
        candidate = view.candidate(id)
        score = candidate.score
        if score is None:
            raise SessionError(
                f"{candidate.id} was never trained: {candidate.state} {candidate.reason}".rstrip(),
                fix="replay a candidate that is done",
                code="R012",
            )
        network = Result(view).network
        keys = view.assignment(candidate)
        texts = {stage: view._store.operator(key) for stage, key in keys.items()}
        rows = [
            _row("operator", text.key, Operator.from_json(text.text).canonical_hash)
            for text in texts.values()
        ]
        request = TrainRequest(
            candidate=candidate.number,
            assignment=texts,
            seed=score.seed,
            part=score.part,
            threads=score.threads,
            time_limit_s=view.config.limits.train_limit_s,
        )
        evaluator = NetworkEvaluator(
            network.task, stages=network.stages, batch=network.batch, native=network.native
        )
        again = evaluator.evaluate(request, lambda step, **metrics: None)
        near = abs(again.value - score.value) <= tolerance
        rows.append(_row(score.metric, f"{score.value:.4f}", f"{again.value:.4f}", near))
        measurer = NetworkMeasurer(network.task, stages=network.stages, batch=network.batch)
        timed = measurer.measure(
            MeasureRequest(
                candidate=candidate.number,
                assignment=texts,
                threads=view.config.threads_per_measurement,
                time_limit_s=view.config.limits.measure_limit_s,
            )
        )
        recorded = "-" if candidate.latency_us is None else f"{candidate.latency_us:.0f}"
        rows.append(_row("latency_us", recorded, f"{timed.latency_us:.0f}", True))
    return {"id": candidate.id, "same": all(row["same"] for row in rows), "rows": rows}


def _row(quantity: str, recorded: str, again: str, same: bool | None = None) -> dict[str, Any]:
    equal = recorded == again if same is None else same
    return {"quantity": quantity, "recorded": recorded, "again": again, "same": equal}


def export_candidate(
    directory: Path, id: str, *, format: str, output: Path, dtype: str = "float32"
) -> Exported:
    """Exports the network with a candidate in it, or its operator; see :func:`syno.export`."""
    from syno.export import export
    from syno.torch.native import TORCH

    if dtype not in TORCH:
        raise unknown_name("dtype", dtype, TORCH)
    with open_view(directory) as view:
        result = Result(view)
        candidate = view.candidate(id)
        if not candidate.key:
            raise SessionError(
                "the baseline has no operator to export",
                fix="name a candidate, such as c1",
                code="R012",
            )
        if format in ("c", "onnx"):
            operator = view.operator(candidate).at(0)
            return export(operator, output, format=format, dtype=dtype)
        model = result.apply(candidate, measured=False).eval().to(TORCH[dtype])
        example = result.network.task.example(result.network.batch)
        if example.is_floating_point():
            example = example.to(TORCH[dtype])
        return export(model, output, format=format, example=example)


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

    There is no derivation for the baseline and for operators that were given as formulas.
    """
    from syno import _core
    from syno.explain import explain

    with open_view(directory) as view:
        candidate = view.candidate(id)
        text = view.explain(candidate)
        operator = view.operator(candidate) if candidate.key else None
        if operator is None or operator.pgraph is None:
            return text, None
        spec = _core.Spec.from_json(spec_of(view, candidate.stage))
        return text, explain(operator, spec, neighbours=neighbours)
