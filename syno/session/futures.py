"""Calls on any :class:`concurrent.futures.Executor`: one that spans machines, or a test's."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable

import msgspec

from syno.errors import SessionError
from syno.session.elsewhere import Heard, RemoteExecutor, decoded
from syno.session.executors import Call, Outcome
from syno.session.nodes import Facts
from syno.session.remote import Answer, Word, end_workers, examine, run_job
from syno.session.worker import describe

#: Times that a pool which broke is made again.
_MOST_POOLS = 20

#: Seconds of a training, see :class:`FuturesExecutor`: beginning again with imports and data takes a small share of it.
HAND_BACK_S = 900.0


class FuturesExecutor(RemoteExecutor):
    """Runs calls on a pool; in each of its processes (or threads) a worker process that can be killed.

    Args:
        pool: the pool, or what makes one: then it is made again when it breaks.
        width: calls that run at the same time; default what the pool says of itself, else 1.
        memory_bytes: see :class:`RemoteExecutor`.
        hand_back_s: a training that takes longer than this, and was written down since, comes back and goes on in whichever
            process is free: a pool says nothing of a call before it ends, and what its process had written down would be
            lost with it. 0: never.
    """

    kind = "futures"

    def __init__(
        self,
        pool: concurrent.futures.Executor | Callable[[], concurrent.futures.Executor],
        *,
        width: int | None = None,
        memory_bytes: int | None = None,
        hand_back_s: float = HAND_BACK_S,
    ) -> None:
        super().__init__(memory_bytes)
        self.hand_back_s = hand_back_s
        self._make = None if isinstance(pool, concurrent.futures.Executor) else pool
        self._pool: concurrent.futures.Executor = (
            pool if isinstance(pool, concurrent.futures.Executor) else self._made()
        )
        self._width = width
        self._futures: dict[concurrent.futures.Future[bytes], int] = {}
        self._begun: set[concurrent.futures.Future[bytes]] = set()
        self._broken = 0

    def _made(self) -> concurrent.futures.Executor:
        assert self._make is not None
        made = self._make()
        if not isinstance(made, concurrent.futures.Executor):
            raise SessionError(
                f"a pool was to be made, and a {type(made).__name__} came",
                fix="give a concurrent.futures.Executor, or a function without arguments that returns one",
                code="R018",
            )
        return made

    @property
    def count(self) -> int:
        """Calls that run at the same time."""
        return max(1, int(self._width or getattr(self._pool, "_max_workers", 1) or 1))

    def _submit(self, number: int, call: Call, job: bytes) -> None:
        try:
            future = self._pool.submit(run_job, job)
        except concurrent.futures.BrokenExecutor as error:
            self._mend(error)
            future = self._pool.submit(run_job, job)
        self._futures[future] = number

    def _mend(self, error: Exception) -> None:
        self._broken += 1
        if self._make is None or self._broken > _MOST_POOLS:
            raise SessionError(
                f"the pool is broken: {describe(error)}",
                fix="run again with a new one: the session goes on",
                code="R010",
            ) from error
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = self._made()

    def _poll(self, timeout_s: float) -> list[Heard]:
        done, _ = concurrent.futures.wait(
            self._futures, timeout_s, return_when=concurrent.futures.FIRST_COMPLETED
        )
        begun = [f for f in self._futures if f.running() and f not in self._begun]
        self._begun.update(begun)
        heard = [Heard(self._futures[future], Word(what="started")) for future in begun]
        self._begun.difference_update(done)
        return [*heard, *(Heard(self._futures.pop(future), _answer(future)) for future in done)]

    def _abandon(self) -> None:
        for future in self._futures:
            future.cancel()
        self._futures.clear()
        self._begun.clear()

    def _examine(self, job: bytes) -> list[Facts]:
        try:
            found = self._pool.submit(examine, job).result()
        except Exception as error:  # whatever a pool raises
            raise SessionError(
                f"the pool does no work: {describe(error)}",
                fix="its processes must be able to import syno; then run again",
                code="R019",
            ) from error
        return [msgspec.msgpack.decode(found, type=Facts)]

    def close(self) -> None:
        super().close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        end_workers()  # those of threads of this process


def _answer(future: concurrent.futures.Future[bytes]) -> Answer | Outcome:
    try:
        return decoded(future.result())
    except (concurrent.futures.BrokenExecutor, concurrent.futures.CancelledError) as error:
        return Outcome("node", reason=f"the pool's process is gone: {describe(error)}")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a pool raises in place of an answer
        return Outcome("node", reason=f"the pool gave no answer: {describe(error)}")
