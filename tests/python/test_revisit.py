"""Going back to a candidate: what differs from the record is said, with the tolerance it was judged by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_session import run, start
from typer.testing import CliRunner

from syno.cli.main import app
from syno.searching.revisit import compare_latency
from syno.session import Candidate, Measurement
from syno.support.machine import cpu_model


def candidate_of(tmp_path: Path, cpu: str | None = None) -> Candidate:
    """A candidate measured at 40 us."""
    with start(tmp_path) as session:
        run(session, budget=1)
        session._store.execute("UPDATE timing SET cpu = ?", cpu_model() if cpu is None else cpu)
        found = session.candidate(1)
        assert found.latency_us == 40.0
        return found


@pytest.mark.parametrize(
    ("measured", "tolerance", "again", "same"),
    [
        ([174.0, 180.0, 176.0], 0.25, "174", False),  # 4.4 times as long is not the same
        ([12.0, 11.0, 10.0], 0.25, "12.0", False),
        ([49.9], 0.25, "49.9", True),
        ([30.1], 0.25, "30.1", True),
        ([90.0, 80.0, 44.0], 0.25, "44.0", True),  # something else ran for a moment
        ([90.0, 41.0], 0.05, "41.0", True),
        ([50.6, 50.7, 50.8], 0.25, "50.6", False),
        ([50.1], 1.0, "50.1", True),
    ],
)
def test_a_latency_is_judged_by_its_tolerance(
    tmp_path: Path, measured: list[float], tolerance: float, again: str, same: bool
) -> None:
    times: Iterator[float] = iter(measured)
    candidate = candidate_of(tmp_path)
    row = compare_latency(candidate, lambda: Measurement(latency_us=next(times)), tolerance)
    assert row == {
        "quantity": "latency_us",
        "recorded": "40.0",
        "again": again,
        "same": same,
        "tolerance": f"{tolerance:.0%} + spread",
    }
    assert next(times, None) is None, "measured as often as need be"
    wide = Measurement(latency_us=174.0, iqr_us=134.0)
    assert compare_latency(candidate, lambda: wide, tolerance)["same"]


def test_a_latency_of_another_cpu_is_shown_and_not_judged(tmp_path: Path) -> None:
    row = compare_latency(
        candidate_of(tmp_path, cpu="Abacus 3"), lambda: Measurement(latency_us=1e3), 0.25
    )
    assert row["same"] is None
    assert row["tolerance"] == "recorded on Abacus 3"


@pytest.mark.parametrize(("slower", "code"), [(1.0, 0), (4.4, 1)])
def test_a_replay_that_runs_slower_fails(
    tmp_path: Path, slower: float, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = candidate_of(tmp_path)

    def replayed(directory: Path, id: str, **options: Any) -> dict[str, Any]:
        again = Measurement(latency_us=40.0 * slower)
        row = compare_latency(candidate, lambda: again, options["latency_tolerance"])
        return {"id": id, "same": row["same"], "rows": [row]}

    monkeypatch.setattr("syno.searching.revisit.replay_candidate", replayed)
    done = CliRunner().invoke(app, ["replay", str(tmp_path), "c1"])
    assert done.exit_code == code
    assert ("NO" in done.output) == bool(code)
    assert "25%" in done.output
    wide = CliRunner().invoke(app, ["replay", str(tmp_path), "c1", "--latency-tolerance", "5"])
    assert wide.exit_code == 0
