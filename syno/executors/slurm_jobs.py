"""Trainings as jobs of Slurm, handed over by submitit: a job a training, in a worker process that can be killed."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from syno.errors import SessionError, told
from syno.executors.target import difference, own_traits, traits
from syno.session.config import Component
from syno.session.elsewhere import Context, Heard, RemoteExecutor, decoded
from syno.session.executors import Call, Outcome
from syno.session.memory import show_bytes
from syno.session.nodes import Facts
from syno.session.remote import Answer, Word, examine, run_job
from syno.support.files import write_whole

_MORE_MIN = 5.0  # minutes that a job may take beside its training

_POLLS_S = 0.2


def run_and_write(job: bytes, path: str) -> bytes:
    """The job: what a training is written down in is put where the head reads it, too."""

    def tell(word: bytes) -> None:
        if msgspec.msgpack.decode(word, type=Word).what == "checkpoint":
            with contextlib.suppress(OSError):  # no room: it begins again where its machine is lost
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                write_whole(Path(path), word)

    return run_job(job, "", tell)


class SlurmExecutor(RemoteExecutor):
    """Runs calls as Slurm jobs; see :func:`syno.executors.slurm` for the arguments."""

    kind = "slurm"

    def __init__(
        self,
        *,
        partition: str = "",
        gpus: int = 0,
        memory_bytes: int | None = None,
        width: int = 16,
        target: str = "",
        folder: str | Path | None = None,
        cluster: str = "slurm",
    ) -> None:
        super().__init__(memory_bytes)
        self._partition, self._gpus, self._target = partition, gpus, target
        self._width = width
        self._folder = None if folder is None else Path(folder)
        self._cluster = cluster
        self._made: Any = None
        self._waiting: deque[tuple[int, Call, bytes]] = deque()
        self._jobs: dict[int, Any] = {}
        self._begun: set[int] = set()
        self._serial = 0
        self._written: dict[int, tuple[Path, tuple[int, int] | None]] = {}

    @property
    def count(self) -> int:
        """Jobs that are handed over at the same time."""
        return self._width

    def measures(self) -> bool:
        return bool(self._target or self.target)

    def lend(
        self, context: Context, target: str, machine: str, part: Component | None = None
    ) -> str:
        self._folder = self._folder or context.directory / "slurm"
        return super().lend(context, target, machine, part)

    def prepare(self, context: Context) -> None:
        self._threads = context.config.threads_per_training
        self._folder = self._folder or context.directory / "slurm"
        super().prepare(context)
        if not self._target or context.config.measurer is None:
            return
        given = context.config.predicted_on
        there = self._result(
            self._executor(context.config.limits.start_limit_s, measure=True).submit(own_traits)
        )
        if differs := difference(own_traits() if given is None else traits(given), there):
            raise SessionError(
                f"the machines of {self._target!r} measure latencies, and differ from the session's: {differs}",
                fix="choose target= anew, or begin a session there",
                code="R024",
            )  # fmt: skip

    def _executor(self, limit_s: float, *, measure: bool = False) -> Any:
        try:
            import submitit
        except ImportError as error:
            raise SessionError(
                f"there is no submitit: {told(error)}",
                fix='pip install "syno[slurm]"',
                code="R013",
            ) from None
        if self._made is None:
            assert self._folder is not None
            try:
                self._made = submitit.AutoExecutor(
                    self._folder / "%j", cluster=self._cluster, slurm_max_num_timeout=0
                )
            except (RuntimeError, OSError, AssertionError, ValueError) as error:
                raise SessionError(
                    f"Slurm does not take jobs here: {told(error)}",
                    fix="run where sbatch is, or choose another executor",
                    code="R021",
                ) from None
        minutes = (limit_s + self._start_limit_s) / 60.0 + _MORE_MIN
        wanted: dict[str, Any] = {
            "name": "syno",
            "timeout_min": math.ceil(minutes),
            "cpus_per_task": self._threads,
            "gpus_per_node": self._gpus,
            "slurm_partition": self._partition or None,
            "slurm_mem": f"{math.ceil(self.memory_bytes / (1 << 20))}M"
            if self.memory_bytes
            else None,
            "slurm_constraint": self._target or None if measure else None,
            "slurm_exclusive": True if measure else None,
        }
        self._made.update_parameters(**{n: v for n, v in wanted.items() if v is not None})
        return self._made

    def _examine(self, job: bytes) -> list[Facts]:
        found = self._result(self._executor(self._start_limit_s).submit(examine, job))
        return [msgspec.msgpack.decode(found, type=Facts)]

    def _result(self, job: Any) -> Any:
        """Of one of the jobs that come before any training."""
        try:
            while not job.done():
                time.sleep(_POLLS_S)
            return job.result()
        except KeyboardInterrupt:
            with contextlib.suppress(Exception):
                job.cancel()
            raise
        except Exception as error:  # whatever a job, or submitit, raises
            raise SessionError(
                f"Slurm's first job failed: {told(error)}",
                fix=f"read its output in {self._folder}; its machines must be able to import syno",
                code="R019",
            ) from error

    def _submit(self, number: int, call: Call, job: bytes) -> None:
        self._waiting.append((number, call, job))

    def _hand_over(self) -> None:
        while self._waiting and len(self._jobs) < self._width:
            number, call, job = self._waiting.popleft()
            measure = call.kind == "measure" or bool(self.target)
            executor = self._executor(call.limit_s, measure=measure)
            self._serial += 1
            # On the file system that all share: what is written down is not lost with the job's machine.
            assert self._folder is not None
            written = self._folder / "written" / f"{os.getpid()}-{self._serial}"
            self._written[number] = (written, None)
            self._jobs[number] = executor.submit(run_and_write, job, str(written))

    def _poll(self, timeout_s: float) -> list[Heard]:
        end = time.monotonic() + timeout_s
        while True:
            self._hand_over()
            heard = []
            for number, job in list(self._jobs.items()):
                heard += self._newly_written(number)
                if job.done():
                    heard += self._newly_written(number)  # since
                    heard.append(Heard(number, self._answer(job)))
                    del self._jobs[number]
                    self._forget(number)
                    self._begun.discard(number)
                elif number not in self._begun and job.state.upper() == "RUNNING":
                    self._begun.add(number)
                    heard.append(Heard(number, Word(what="started")))
            if heard or time.monotonic() >= end:
                return heard
            time.sleep(_POLLS_S)

    def _newly_written(self, number: int) -> list[Heard]:
        path, seen = self._written[number]
        try:
            status = path.stat()
            if (status.st_mtime_ns, status.st_size) == seen:
                return []
            word = msgspec.msgpack.decode(path.read_bytes(), type=Word)
        except (OSError, msgspec.MsgspecError):  # none is there, or it is being replaced
            return []
        self._written[number] = (path, (status.st_mtime_ns, status.st_size))
        return [Heard(number, word)]

    def _forget(self, number: int) -> None:
        path, _ = self._written.pop(number)
        with contextlib.suppress(OSError):
            path.unlink()

    def _answer(self, job: Any) -> Answer | Outcome:
        try:
            return decoded(job.result())
        except Exception as error:  # submitit's, where there is no answer
            state = str(job.state).upper().split(" ")[0].rstrip("+")
            words = f"Slurm job {job.job_id} ended with {state}: {told(error)}"
        if state == "OUT_OF_MEMORY":
            limit = f" (limit {show_bytes(self.memory_bytes)})" if self.memory_bytes else ""
            return Outcome("memory", reason=words + limit)
        if state == "TIMEOUT":
            return Outcome("limit", reason=words)
        return Outcome(
            "node", reason=words
        )  # its machine failed, somebody took it, or it died before it could answer

    def _abandon(self) -> None:
        self._waiting.clear()
        for job in self._jobs.values():
            with contextlib.suppress(Exception):  # it may be over
                job.cancel()
        for number in self._jobs:
            self._forget(number)
        self._jobs.clear()
        self._begun.clear()

    def describe(self) -> dict[str, Any]:
        return {
            **super().describe(),
            "partition": self._partition,
            "jobs": sorted(str(job.job_id) for job in self._jobs.values()),
        }

    def close(self) -> None:
        super().close()
        self._abandon()


__all__ = ["SlurmExecutor"]
