"""What is recorded of a session as a whole, by names: how its stages ended, who is finalist, how trainings go."""

from __future__ import annotations

import sqlite3

import msgspec

from syno.session.damage import explained
from syno.session.database import Database
from syno.session.records import RungState, Score, StageEnd


class Facts(Database):
    """A session's database, and values of it that have names."""

    def meta(self, key: str, default: str = "") -> str:
        row = self.execute("SELECT value FROM meta WHERE key = ?", key).fetchone()
        return str(row[0]) if row else default

    def set_meta(self, key: str, value: str) -> None:
        self.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", key, value)

    def check_stages(self, names: list[str]) -> None:
        """Raises SessionError where the session's stages are not those of its settings."""
        rows = self.execute("SELECT name FROM stage ORDER BY position").fetchall()
        if [row[0] for row in rows] != names:
            wrong = sqlite3.DatabaseError("it is damaged: its stages are not those of session.toml")
            raise explained(self._path, wrong)

    def stage_ends(self) -> dict[str, StageEnd]:
        """How the searches of stages ended, by the stage's name, of those that did."""
        return msgspec.json.decode(self.meta("stage_ends", "{}"), type=dict[str, StageEnd])

    def set_stage_end(self, stage: str, end: StageEnd) -> None:
        ends = {**self.stage_ends(), stage: end}
        self.set_meta("stage_ends", msgspec.json.encode(ends).decode())

    def finalists(self) -> list[int]:
        """Numbers of the candidates that were chosen to be trained again, in the order they were chosen."""
        return msgspec.json.decode(self.meta("finalists", "[]"), type=list[int])

    def set_finalists(self, numbers: list[int]) -> None:
        self.set_meta("finalists", msgspec.json.encode(numbers).decode())

    def rung_state(self) -> RungState:
        """Who went on from which rung."""
        return msgspec.json.decode(self.meta("rungs", "{}"), type=RungState)

    def set_rung_state(self, state: RungState) -> None:
        self.set_meta("rungs", msgspec.json.encode(state).decode())

    def asked(self) -> dict[str, int]:
        """By stage, the last batch that was proposed when the stage's proposer was kept."""
        return msgspec.json.decode(self.meta("asked", "{}"), type=dict[str, int])

    def set_asked(self, batches: dict[str, int]) -> None:
        self.set_meta("asked", msgspec.json.encode(batches).decode())

    def climbed_s(self) -> dict[str, float]:
        """By stage, the time within which no further candidate is proposed: its rungs were climbed, or are."""
        return msgspec.json.decode(self.meta("climbed_s", "{}"), type=dict[str, float])

    def set_climbed_s(self, times: dict[str, float]) -> None:
        self.set_meta("climbed_s", msgspec.json.encode(times).decode())

    def given(self) -> dict[str, Score]:
        """Of the model as it was handed in, untouched: its score on each part."""
        return msgspec.json.decode(self.meta("given", "{}"), type=dict[str, Score])

    def set_given(self, scores: dict[str, Score]) -> None:
        self.set_meta("given", msgspec.json.encode(scores).decode())

    def recipe(self) -> dict[str, str]:
        """How trainings go, for people."""
        return msgspec.json.decode(self.meta("recipe", "{}"), type=dict[str, str])

    def words(self) -> dict[str, str]:
        """Operators in plain sentences, by key."""
        return msgspec.json.decode(self.meta("words", "{}"), type=dict[str, str])

    def set_words(self, words: dict[str, str]) -> None:
        self.set_meta("words", msgspec.json.encode(words).decode())

    def known(self) -> dict[str, str]:
        """Names of known operators, by the operator's key."""
        return msgspec.json.decode(self.meta("known", "{}"), type=dict[str, str])

    def name_known(self, key: str, name: str) -> None:
        names = {**self.known(), key: name}
        self.set_meta("known", msgspec.json.encode(names).decode())

    def set_recipe(self, recipe: dict[str, str]) -> None:
        self.set_meta("recipe", msgspec.json.encode(recipe).decode())
