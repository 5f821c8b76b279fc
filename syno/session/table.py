"""One row a network: what tables and status show of it."""

from __future__ import annotations

from typing import Any

from syno.session.records import Candidate

ROW = (
    "id",
    "state",
    "known",
    "expr",
    "value",
    "std",
    "validation",
    "test",
    "latency_us",
    "targets_us",
    "predicted_us",
    "op_latency_us",
    "runner",
    "flops",
    "params",
    "reward",
    "verified",
    "max_rel_err",
    "reason",
)


def row_of(candidate: Candidate) -> dict[str, Any]:
    return {name: getattr(candidate, name) for name in ROW}


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{name} {cell(one)}" for name, one in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
