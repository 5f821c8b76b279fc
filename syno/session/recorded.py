"""Latencies as another session recorded them: the same choices again, without timing anything."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from syno.errors import SessionError
from syno.session.protocols import (
    AS_TIMED,
    ON,
    ORIGINAL,
    Measurement,
    MeasureRequest,
    OperatorText,
    Predicted,
    PredictRequest,
    SiteTiming,
)
from syno.session.records import Candidate
from syno.session.view import open_view

_Recorded = TypeVar("_Recorded", Measurement, Predicted)


class RecordedMeasurer:
    """A :class:`~syno.session.Measurer` that reads the record of ``session``.

    A search repeated with it makes the choices of the first, whatever the machine does meanwhile.

    Raises:
        SessionError: the session cannot be read; in ``measure``, the network was never measured there.
    """

    def __init__(self, session: str) -> None:
        self._session = session
        self._found: dict[tuple[tuple[str, str], ...], Measurement] = {}
        self._predicted: dict[tuple[tuple[str, str], ...], Predicted] = {}
        with open_view(Path(session)) as view:
            baseline = view.baseline
            for candidate in [*([baseline] if baseline else []), *view.candidates()]:
                key = _key(view.assignment(candidate))
                if candidate.measured:
                    self._found[key] = recorded(candidate)
                if candidate.predicted_us is not None:
                    self._predicted[key] = Predicted(
                        latency_us=candidate.predicted_us,
                        flops=candidate.flops,
                        params=candidate.params,
                    )

    def measure(self, request: MeasureRequest) -> Measurement:
        """What was recorded for the same operators in the same stages."""
        return self._of(self._found, request.assignment, "latency")

    def predict(self, request: PredictRequest) -> Predicted:
        """What was predicted there, whatever machine file is asked for."""
        return self._of(self._predicted, request.assignment, "predicted latency")

    def _of(
        self,
        found: Mapping[tuple[tuple[str, str], ...], _Recorded],
        assignment: Mapping[str, OperatorText],
        what: str,
    ) -> _Recorded:
        key = _key({stage: operator.key for stage, operator in assignment.items()})
        try:
            return found[key]
        except KeyError:
            raise SessionError(
                f"{self._session} has no {what} of {dict(key) or 'the original network'}",
                fix="repeat the search with the settings of that session, or measure again",
                code="R015",
            ) from None


def _key(assignment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(assignment.items()))


def recorded(candidate: Candidate) -> Measurement:
    """A candidate's timings as the measurement they came from."""
    own = [t for t in candidate.timings if t.runner == "syno"]
    whole = next(t for t in own if not t.site)
    return Measurement(
        latency_us=whole.latency_us,
        iqr_us=whole.iqr_us,
        samples=whole.samples,
        threads=whole.threads,
        batch=whole.batch,
        flops=candidate.flops,
        params=candidate.params,
        verified=candidate.verified,
        max_rel_err=candidate.max_rel_err,
        sites={
            t.site: SiteTiming(
                latency_us=t.latency_us,
                iqr_us=t.iqr_us,
                verified=t.verified,
                max_rel_err=t.max_rel_err,
            )
            for t in own
            if t.site
        },
        runner=candidate.runner,
        why_layers=candidate.why_layers,
        # Already on the scale of the session's original: without what it took turns with it stays so.
        peers_us={
            t.runner: t.latency_us
            for t in candidate.timings
            if t.runner not in ("syno", ORIGINAL, AS_TIMED) and not t.runner.startswith(ON)
        },
    )
