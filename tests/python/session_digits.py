"""A real training for sessions: digits, with networks as wide as the operator's number says."""

from __future__ import annotations

import json
from collections.abc import Callable

from syno.session.protocols import TrainRequest
from syno.training.tasks import digits
from syno.training.train import CurveFloor, TrainResult, train


class DigitsTrainer:
    def __init__(self, epochs: int = 1) -> None:
        self.epochs = epochs

    def evaluate(self, request: TrainRequest, report: Callable[..., None]) -> TrainResult:
        chosen = [json.loads(op.text)["number"] for op in request.assignment.values()]
        task = digits(width=2 + sum(chosen) % 5, epochs=self.epochs)
        model = task.make_model(request.seed)
        result = train(
            task,
            model,
            seed=request.seed,
            part=request.part,
            threads=request.threads,
            time_limit_s=request.time_limit_s,
            report=report,
            stop=CurveFloor(request.floors, why=request.floors_why) if request.floors else None,
        )
        if request.weights:
            from safetensors.torch import save_model

            save_model(model, request.weights)
        return result
