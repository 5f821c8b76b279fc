"""The settings of a session: what decides its results and may not change, and what may."""

from __future__ import annotations

import importlib
import itertools
import math
import sys
from pathlib import Path
from typing import Any

import msgspec

from syno.errors import SessionError, TaskError, shown
from syno.support.files import not_a_file, write_whole
from syno.support.moved import now_at
from syno.support.streams import Stream

FORMAT = "syno-session"
VERSION = 1


class Component(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A replaceable part by name: ``factory(**options)``, importable in any process.

    ``reference`` is ``"module:function"`` or ``"path/to/file.py:function"``.
    """

    reference: str
    options: dict[str, Any] = {}

    def make(self, **more: Any) -> Any:
        """The part itself.

        Raises:
            TaskError: it cannot be imported, or its factory refuses the options.
        """
        from syno.training.tasks import resolve

        try:
            with Stream("component", self.reference):
                factory = resolve(self.reference)
                return factory(**more, **self.options)
        except TypeError as error:
            raise TaskError(
                f"{self.reference!r} cannot be made with {', '.join([*more, *self.options])}: {error}",
                fix="give the options its signature has",
                code="T008",
            ) from error

    @property
    def now_at(self) -> str:
        """The reference as it is written today, where an earlier version wrote it down."""
        return now_at(self.reference)

    @classmethod
    def of(cls, value: Component | str) -> Component:
        """A component from its reference."""
        return value if isinstance(value, Component) else cls(reference=value)


class Stage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One search space: the operators for one group of sites.

    Stages are searched in order, each on top of the best so far. ``share`` is the stage's part of the
    budget, in proportion to the others'.
    """

    name: str
    proposer: Component
    share: float = 1.0


class Prune(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a candidate is given up early.

    Attributes:
        after: candidates (the baseline is one) that must be done before curves stop others.
        margin: standard errors by which a curve must miss its floor.
        keep: successive halving: at each point of the curve a training goes on only if it is among this
            share of the best of all earlier ones there (0.5: the better half). ``None``: only trainings
            that cannot end well are stopped.
        max_drop: a candidate that cannot come within this of the baseline is stopped; absolute for
            metrics where more is better, a share of the baseline's value else. Infinity: no such limit.
        max_latency_ratio, max_flops_ratio, max_params_ratio: a candidate with more than this many times
            the baseline's is not trained at all. ``None``: no such limit.
    """

    after: int = 4
    margin: float = 2.0
    keep: float | None = None
    max_drop: float = 0.15
    max_latency_ratio: float | None = None
    max_flops_ratio: float | None = None
    max_params_ratio: float | None = None


class Rung(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A short training before the whole one, with a whole learning-rate schedule of its own.

    Attributes:
        share: of the steps of a whole training.
        keep: of its candidates, the best share that goes on; at least a tenth (and 8, where there are so many)
            goes on at random beside them, to the end.
    """

    share: float
    keep: float = 0.25


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may change when a session goes on.

    Attributes:
        workers: processes that train at the same time; 0: one a core.
        train_limit_s, measure_limit_s: wall time after which a worker's process is killed.
        start_limit_s: what a new worker may take for imports and data before a call's limit begins.
        checkpoint_s: a training that takes longer is written down after each epoch, and goes on from there when it was
            killed or interrupted.
        retries: times a call is repeated whose worker was lost (killed from outside), or found no memory left on a GPU.
    """

    workers: int = 0
    train_limit_s: float = 3_600.0
    measure_limit_s: float = 300.0
    start_limit_s: float = 120.0
    retries: int = 1
    checkpoint_s: float = 300.0


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings. Everything but ``limits`` and ``note`` decides results and is fixed for good.

    Attributes:
        seed: of the search's trainings; finalists are trained with ``seed + 1``, ``seed + 2``, …
        stages: search spaces with their proposers.
        evaluator, measurer: who trains and who times; without a measurer FLOPs stand for latency.
        batch_width: candidates proposed together, before any of them is told: decides the search, while
            the number of workers does not.
        lag: candidates (tickets) that may be under way while further ones are proposed: a batch is proposed once all
            those at least ``lag`` tickets before it were told, so that nobody waits for the slowest of a batch, and the
            order is that of the tickets still. Decides the search; give at least twice as many as are trained at the
            same time. ``None``: a batch is told before the next is proposed.
        threads_per_training, threads_per_measurement: torch and kernel threads of each.
        reward: factory of the reward.
        rungs: short trainings, ascending, that come before whole ones: every candidate is trained on the first, and when
            a stage's budget is used up, the best and some at random go on from rung to rung. What policies are told is
            what the first rung gave. ``None``: every candidate is trained as a whole at once.
        combine: share of the budget for networks that have the best operators of several stages together, trained as
            candidates of their own once the stages are searched; ``None``: none.
        space: free text or numbers that describe the space, compared like all other fields.
        predicted_on: machine file (JSON) that latencies are predicted from. Proposals, pruning and what comes of
            rungs then follow from seed, predictions and trainings, and measured latencies decide nothing but the
            finalists and the verdict; the kernels of trainings depend on program, this file and seed. ``None``:
            measured latencies decide, and the search can be repeated from its record only.
        machine: of a deterministic session: the machine file (JSON) that its kernels depend on, beside program
            and seed. ``None``: kernels also follow what was measured since.
        targets: by name, further machines whose latencies are recorded, with the machine file (JSON) each must fit (empty:
            what is lent first). They decide nothing of the search.
        note: free text.
    """

    seed: int = 0
    stages: tuple[Stage, ...] = ()
    evaluator: Component
    measurer: Component | None = None
    batch_width: int = 4
    lag: int | None = None
    threads_per_training: int = 1
    threads_per_measurement: int = 1
    reward: Component = Component(reference="syno.session:QualityTimesSpeed")
    prune: Prune = Prune()
    rungs: tuple[Rung, ...] | None = None
    combine: float | None = None
    space: dict[str, Any] = {}
    predicted_on: str | None = None
    limits: Limits = Limits()
    machine: str | None = None
    targets: dict[str, str] | None = None
    note: str = ""

    @property
    def batches_open(self) -> int:
        """Batches that may be under way at the same time."""
        if self.lag is None:
            return 1
        return max(1, math.ceil((self.lag - 1) / self.batch_width) + 1)

    def check(self) -> None:
        """Raises SessionError for values that make no session."""
        names = [stage.name for stage in self.stages]
        problems = [
            (not names, "stages is empty", "give at least one stage with a proposer"),
            (len(set(names)) < len(names), f"stages share a name: {names}", "name them apart"),
            (
                any(not stage.share > 0 for stage in self.stages),
                f"shares {[stage.share for stage in self.stages]}",
                "give each stage a positive share",
            ),
            (self.batch_width < 1, f"batch_width={self.batch_width}", "choose at least 1"),
            (self.lag is not None and self.lag < 1, f"lag={self.lag}", "choose at least 1"),
            (
                self.lag is not None and self.measurer is not None and self.predicted_on is None,
                f"lag={self.lag} with latencies that are measured before anything is trained",
                "let predicted latencies decide (predicted_on, latency='predicted'), or leave lag out",
            ),
            (
                self.threads_per_training < 1 or self.threads_per_measurement < 1,
                f"threads_per_training={self.threads_per_training}, "
                f"threads_per_measurement={self.threads_per_measurement}",
                "choose at least 1",
            ),
            (
                self.prune.keep is not None and not 0 < self.prune.keep <= 1,
                f"prune.keep={self.prune.keep}",
                "choose a share above 0 and at most 1, or None",
            ),
            (
                self.predicted_on is not None and self.measurer is None,
                "predicted_on without a measurer",
                "give a measurer: it predicts as well",
            ),
            (
                self.combine is not None and not 0 <= self.combine < 1,
                f"combine={self.combine}",
                "give a share of the budget, from 0 to below 1",
            ),
            (
                self.rungs is not None and not _ascending(self.rungs),
                f"rungs {[(rung.share, rung.keep) for rung in self.rungs or ()]}",
                "give shares that ascend between 0 and 1, and keep above 0 and at most 1",
            ),
            (self.limits.workers < 0, f"workers={self.limits.workers}", "choose 0 or more"),
            (
                min(self.limits.train_limit_s, self.limits.measure_limit_s) <= 0,
                f"limits of {self.limits.train_limit_s} and {self.limits.measure_limit_s} s",
                "choose positive limits",
            ),
            (
                not self.limits.checkpoint_s >= 0,
                f"checkpoint_s={self.limits.checkpoint_s}",
                "choose 0 seconds or more",
            ),
            (self.limits.retries < 0, f"retries={self.limits.retries}", "choose 0 or more"),
        ]
        for wrong, what, fix in problems:
            if wrong:
                raise SessionError(what, fix=fix, code="R008")


def _ascending(rungs: tuple[Rung, ...]) -> bool:
    shares = [0.0, *(rung.share for rung in rungs), 1.0]
    ascend = all(one < other for one, other in itertools.pairwise(shares))
    return bool(rungs) and ascend and all(0 < rung.keep <= 1 for rung in rungs)


CHANGEABLE = ("limits", "targets", "note")
FIXED = tuple(name for name in SessionConfig.__struct_fields__ if name not in CHANGEABLE)


def fixed_json(config: SessionConfig) -> str:
    """The fields that may not change, as canonical JSON."""
    fixed = {name: msgspec.to_builtins(getattr(config, name)) for name in FIXED}
    return msgspec.json.encode(without_none(fixed), order="deterministic").decode()


def first_difference(stored: str, asked: str) -> tuple[str, Any, Any] | None:
    """The first field in which two :func:`fixed_json` differ, with both values."""
    old, new = msgspec.json.decode(stored), msgspec.json.decode(asked)
    for name in FIXED:
        if old.get(name) != new.get(name):
            return _deepest(name, old.get(name), new.get(name))
    return None


def _deepest(name: str, old: Any, new: Any) -> tuple[str, Any, Any]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return _deepest(f"{name}.{key}", old.get(key), new.get(key))
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (a, b) in enumerate(zip(old, new, strict=True)):
            if a != b:
                return _deepest(f"{name}[{index}]", a, b)
    return name, old, new


class _File(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    format: str
    version: int
    session: SessionConfig
    made_with: dict[str, str] = {}


def write_config(path: Path, config: SessionConfig) -> None:
    """Writes ``session.toml``, whole or not at all."""
    content = _File(format=FORMAT, version=VERSION, session=config, made_with=made_with())
    plain = without_none(msgspec.to_builtins(content))
    write_whole(path, msgspec.toml.encode(plain))


def read_config(path: Path) -> SessionConfig:
    """Reads ``session.toml``.

    Raises:
        SessionError: it is missing, no TOML, of another kind, newer, or has a wrong field (named).
    """
    if kind := not_a_file(path):
        raise SessionError(
            f"{path} cannot be read: it is {kind}",
            fix=f"put the file {path.name} of the session back in its place",
            code="R005",
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise SessionError(
            f"{path.parent} has no session.toml", fix="give the directory of a session", code="R005"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise SessionError(f"{path} cannot be read: {error}", code="R005") from None
    try:
        head = msgspec.toml.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise SessionError(
            f"{path} is not TOML: {error}", fix="undo the last edit of the file", code="R005"
        ) from None
    if head.get("format") != FORMAT:
        raise SessionError(
            f"{path} does not describe a session: format is {shown(head.get('format'))}",
            fix="give the directory of a session",
            code="R005",
        )
    version = head.get("version")
    if not isinstance(version, int) or version > VERSION:
        raise SessionError(
            f"{path} has version {shown(version)}; this syno reads up to {VERSION}",
            fix="install a newer syno",
            code="R004",
        )
    try:
        return msgspec.convert(head, _File).session
    except (msgspec.ValidationError, RecursionError) as error:
        raise SessionError(f"{path}: {error}", fix="correct that field", code="R005") from None


def without_none(value: Any) -> Any:
    """TOML has no null: a field that is absent has its default, which is null wherever null is allowed."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [without_none(item) for item in value]
    return value


def made_with() -> dict[str, str]:
    """Versions and machine, for the reader of a session."""
    from importlib import metadata

    from syno.support.machine import cpu_model

    found = {"python": sys.version.split()[0], "cpu": cpu_model()}
    for package in ("syno", "torch", "numpy"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if "syno" not in found:
        found["syno"] = str(importlib.import_module("syno").__version__)
    return found
