"""Which operators candidates have in their networks, rebuilt from what was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from syno.errors import SessionError
from syno.session.records import (
    COMBINED,
    Candidate,
    Combination,
)

if TYPE_CHECKING:
    from syno.operators.operator import Operator

from syno.session.view_candidates import CandidatesView


class OperatorsView(CandidatesView):
    """The operators of a session's candidates. Made by :func:`syno.session.open_view`, as part of what it gives."""

    def operator(self, id: str | int | Candidate) -> Operator:
        """The operator of a candidate, rebuilt from its text and checked against its hash.

        Args:
            id: the candidate, or what :meth:`candidate` finds it by.
        Raises:
            SessionError: the baseline was asked for, or what combines several operators.
        """
        candidate = id if isinstance(id, Candidate) else self.candidate(id)
        if not candidate.key:
            raise SessionError(
                "the baseline has no operator", fix="ask for a candidate, such as c1", code="R012"
            )
        if candidate.kind == COMBINED:
            stages = ", ".join(self.assignment(candidate))
            raise SessionError(
                f"{candidate.id} has operators in several stages ({stages})",
                fix="ask for all of them: operators(candidate)",
                code="R012",
            )
        return self.operator_of(candidate.key)

    def operator_of(self, key: str) -> Operator:
        """The operator of a key, rebuilt from its text and checked against its hash.

        Args:
            key: the operator's hash, one of :meth:`assignment`'s.
        """
        from syno.operators.operator import Operator

        return Operator.from_json(self._store.operator(key).text)

    def operator_text(self, candidate: Candidate) -> str:
        """The text of a candidate's operator file, JSON that :meth:`syno.Operator.from_json` reads.

        Args:
            candidate: one that has a single operator of its own.
        """
        return self._store.operator(candidate.key).text

    def assignment(self, candidate: Candidate) -> dict[str, str]:
        """Which operator (by key) serves which stage's sites in a candidate's network.

        Args:
            candidate: of this session; the original has none.
        """
        if candidate.kind == COMBINED:
            return self._combination(candidate)
        chosen: dict[str, str] = {}
        for row in self._store.execute(
            "SELECT s.name, c.operator FROM stage s LEFT JOIN candidate c ON c.number = s.chosen"
            " ORDER BY s.position"
        ):
            if row["name"] == candidate.stage:
                chosen[row["name"]] = candidate.key
                break
            if row["operator"]:
                chosen[row["name"]] = row["operator"]
        return chosen if candidate.key else {}

    def _combination(self, candidate: Candidate) -> dict[str, str]:
        try:
            found = msgspec.json.decode(self._store.operator(candidate.key).text, type=Combination)
        except msgspec.MsgspecError as error:
            raise SessionError(
                f"{self.directory}: what {candidate.id} combines cannot be read: {error}",
                fix="restore the session from a copy",
                code="R005",
            ) from None
        return found.operators

    def operators(self, candidate: Candidate) -> dict[str, Operator]:
        """By stage, all operators in a candidate's network, rebuilt: its own, and those chosen before.

        Args:
            candidate: as for :meth:`assignment`.
        """
        keys = self.assignment(candidate)
        return {stage: self.operator_of(key) for stage, key in keys.items()}

    def formulas(self, candidate: Candidate) -> dict[str, str]:
        """By stage, the formulas of all operators in a candidate's network: its own, and those chosen before.

        Args:
            candidate: as for :meth:`assignment`.
        """
        keys = self.assignment(candidate)
        return {stage: self._store.operator(key).expr for stage, key in keys.items()}

    def formula(self, candidate: Candidate) -> str:
        """:meth:`formulas` in a line; a stage is named where there are several.

        Args:
            candidate: as for :meth:`assignment`.
        """
        found = self.formulas(candidate)
        if len(found) < 2:
            return candidate.expr
        return "; ".join(f"{stage}: {expr}" for stage, expr in found.items())
