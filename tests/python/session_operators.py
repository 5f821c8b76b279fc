"""A session's evaluator and measurer that run nothing: quality follows from what an operator reads."""

from __future__ import annotations

from collections.abc import Callable

from syno.session.protocols import Measurement, MeasureRequest, TrainRequest
from syno.training.train import CurvePoint, TrainResult


class Reader:
    """The wider an operator's window and the more weights it has, the better; the original is at 0.7."""

    def evaluate(self, request: TrainRequest, report: Callable[..., None]) -> TrainResult:
        value = 0.7
        for operator in request.assignment.values():
            assert operator.params is not None
            value = 0.4 + 0.1 * operator.expr.count("(k/2)") + 0.2 * min(1.0, operator.params / 500)
        report(1, accuracy=value)
        return TrainResult(
            state="done",
            reason="",
            metric="accuracy",
            higher_is_better=True,
            value=value,
            stderr=0.001,
            metrics={"accuracy": value},
            count=1_000,
            part=request.part,
            curve=[CurvePoint(1, 0.0, {"accuracy": value})],
            steps=1,
            total_steps=1,
            seconds=0.01,
            examples_per_s=1.0,
            seed=request.seed,
            threads=request.threads,
        )


class Meter:
    """An operator takes as long as its weights are many; the original takes 100 us."""

    def measure(self, request: MeasureRequest) -> Measurement:
        latency = 100.0
        for operator in request.assignment.values():
            assert operator.params is not None
            latency = 30.0 + 0.1 * operator.params
        return Measurement(latency_us=latency)
