"""Where a session stands, as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from syno.session.overview import latencies
from syno.session.protocols import ON
from syno.session.records import STATES
from syno.session.table import row_of

if TYPE_CHECKING:
    from syno.session.view import SessionView


def states_of(view: SessionView) -> dict[str, int]:
    """How many candidates are in each state, the original among them."""
    rows = view._store.execute("SELECT state, count(*) FROM candidate GROUP BY state")
    return dict.fromkeys(STATES, 0) | {row[0]: row[1] for row in rows}


def status_of(view: SessionView) -> dict[str, Any]:
    """Where the session stands, as plain data."""
    stages = [
        {"name": row["name"], "state": row["state"], "chosen": row["chosen"]}
        for row in view._store.execute("SELECT * FROM stage ORDER BY position")
    ]
    verdict, baseline = view.verdict(), view.baseline
    best = None if verdict.best is None else view.candidate(verdict.best)
    last = view._store.execute("SELECT at, what FROM event ORDER BY id DESC LIMIT 1").fetchone()
    return {
        "session": str(view.directory),
        "running": view.running,
        "elapsed_s": view.elapsed_s,
        "trained": view.trained,
        "states": states_of(view),
        "stages": stages,
        "given": msgspec.to_builtins(view.given),
        "recipe": view.recipe,
        "repeatable": view.repeatable,
        "runner": view.runner or None,
        "original_us": view.original_us(),
        "why_layers": (baseline.why_layers or None) if baseline is not None else None,
        "rungs": msgspec.to_builtins(view.rungs()),
        "baseline": None if baseline is None else row_of(baseline),
        "best": None if best is None else row_of(best),
        "verdict": msgspec.to_builtins(verdict),
        "known": {f"c{number}": name for number, name in view._store.known_numbers()},
        "known_refused": view.known_refused,
        "pareto": [c.id for c in view.pareto()],
        "pareto_test": [c.id for c in view.pareto("test")],
        "targets": {name: _on_target(view, name) for name in view.targets},
        "numeric_class": view.numeric_class,
        "executor": view.executor,
        "finalists": [f"c{number}" for number in view.finalists],
        "ended": view.ended,
        "stage_ends": msgspec.to_builtins(view.stage_ends),
        "notes": view.notes(),
        "last_event": None if last is None else {"at": last["at"], "what": last["what"]},
    }


def _on_target(view: SessionView, target: str) -> dict[str, Any]:
    """Of a further machine: how many networks were timed there, and which hold."""
    machine = view.targets[target]
    done = view.overview()
    names = dict(zip(done.numbers.tolist(), done.original.tolist(), strict=True))
    timed = set(latencies(view._store, ON + target)[0].tolist()) & names.keys()
    cannot = {n: why for n, why in view._store.unfit(target) if n in names}
    verdict, baseline = view.verdict(target=target), view.baseline
    return {
        "machine": msgspec.json.decode(machine).get("name", "") if machine else None,
        "timed": len(timed),
        "not_yet": len(names.keys() - timed - cannot.keys()),
        "cannot": {"baseline" if names[n] else f"c{n}": why for n, why in cannot.items()},
        "original_us": None if baseline is None else baseline.targets_us.get(target),
        "pareto": [c.id for c in view.pareto(target=target)],
        "pareto_test": [c.id for c in view.pareto("test", target=target)],
        "best": verdict.best,
        "verdict": msgspec.to_builtins(verdict),
    }
