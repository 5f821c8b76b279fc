"""Search sessions: a directory that survives anything, and the loop that fills it.

>>> from syno.session import Session, Budget
>>> session = Session.open("runs/a", proposer=…, evaluator="pkg.mod:make", seed=0)   # doctest: +SKIP
>>> session.run(budget=Budget(candidates=12), finalists=3)                           # doctest: +SKIP
>>> session.pareto()                                                                 # doctest: +SKIP

Importing this package imports neither torch nor the engine; a name is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syno.support.late import late

if TYPE_CHECKING:
    from syno.session.asking import Trial
    from syno.session.budget import Budget
    from syno.session.config import Component, Limits, Prune, Rung, SessionConfig, Stage
    from syno.session.executors import (
        Call,
        Executor,
        InlineExecutor,
        Outcome,
        ProcessExecutor,
    )
    from syno.session.futures import FuturesExecutor
    from syno.session.protocols import (
        Callback,
        Evaluator,
        Gains,
        Measurement,
        Measurer,
        MeasureRequest,
        OperatorText,
        Proposal,
        Proposer,
        Reward,
        SiteTiming,
        TrainRequest,
    )
    from syno.session.recorded import RecordedMeasurer
    from syno.session.records import Candidate, Score, Timing
    from syno.session.rewards import QualityTimesSpeed
    from syno.session.session import RunSummary, Session
    from syno.session.view import SessionView, open_view
else:
    __getattr__ = late(
        __name__,
        {
            "Budget": "syno.session.budget",
            "Call": "syno.session.executors",
            "Callback": "syno.session.protocols",
            "Candidate": "syno.session.records",
            "Component": "syno.session.config",
            "Evaluator": "syno.session.protocols",
            "Executor": "syno.session.executors",
            "FuturesExecutor": "syno.session.futures",
            "Gains": "syno.session.protocols",
            "InlineExecutor": "syno.session.executors",
            "Limits": "syno.session.config",
            "MeasureRequest": "syno.session.protocols",
            "Measurement": "syno.session.protocols",
            "Measurer": "syno.session.protocols",
            "OperatorText": "syno.session.protocols",
            "Outcome": "syno.session.executors",
            "ProcessExecutor": "syno.session.executors",
            "Proposal": "syno.session.protocols",
            "Proposer": "syno.session.protocols",
            "Prune": "syno.session.config",
            "QualityTimesSpeed": "syno.session.rewards",
            "RecordedMeasurer": "syno.session.recorded",
            "Reward": "syno.session.protocols",
            "RunSummary": "syno.session.session",
            "Rung": "syno.session.config",
            "Score": "syno.session.records",
            "Session": "syno.session.session",
            "SessionConfig": "syno.session.config",
            "SessionView": "syno.session.view",
            "SiteTiming": "syno.session.protocols",
            "Stage": "syno.session.config",
            "Timing": "syno.session.records",
            "TrainRequest": "syno.session.protocols",
            "Trial": "syno.session.asking",
            "open_view": "syno.session.view",
        },
    )

__all__ = [
    "Budget",
    "Call",
    "Callback",
    "Candidate",
    "Component",
    "Evaluator",
    "Executor",
    "FuturesExecutor",
    "Gains",
    "InlineExecutor",
    "Limits",
    "MeasureRequest",
    "Measurement",
    "Measurer",
    "OperatorText",
    "Outcome",
    "ProcessExecutor",
    "Proposal",
    "Proposer",
    "Prune",
    "QualityTimesSpeed",
    "RecordedMeasurer",
    "Reward",
    "RunSummary",
    "Rung",
    "Score",
    "Session",
    "SessionConfig",
    "SessionView",
    "SiteTiming",
    "Stage",
    "Timing",
    "TrainRequest",
    "Trial",
    "open_view",
]
