"""Search sessions: a directory that survives anything, and the loop that fills it.

>>> from syno.session import Session, Budget
>>> session = Session.open("runs/a", proposer=…, evaluator="pkg.mod:make", seed=0)   # doctest: +SKIP
>>> session.run(budget=Budget(candidates=12), finalists=3)                           # doctest: +SKIP
>>> session.pareto()                                                                 # doctest: +SKIP

Importing this package imports neither torch nor the engine.
"""

from __future__ import annotations

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
