"""Cases measured in a process of their own, so that a system that crashes costs its own column only."""

from __future__ import annotations

import ctypes
import dataclasses
import multiprocessing
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.sharedctypes import Synchronized
from types import TracebackType
from typing import Any

import torch

from kernelbench.cases import Case
from kernelbench.peers import keep_compiled
from kernelbench.results import Result, Settings
from kernelbench.run import run_case
from syno.errors import KernelError

#: The number of the peer that is at work, in `Settings.peers`; -1 when none is.
_at_work: Synchronized[int] | None = None


def _enter(at_work: Synchronized[int], threads: int) -> None:
    global _at_work
    _at_work = at_work
    torch.set_num_threads(threads)
    keep_compiled()
    warnings.filterwarnings("ignore", module=r"torch\._inductor")


def _note(number: int) -> None:
    assert _at_work is not None, "a worker is entered before it measures"
    _at_work.value = number


#: What measures a case: the case, settings, peers to leave out and why, what is told who is at work.
Measure = Callable[[Case, Settings, Mapping[str, str], Callable[[int], None]], Result]


def _measured(measure: Measure, case: Case, settings: Settings, crashed: dict[str, str]) -> Result:
    return measure(case, settings, crashed, _note)


class Worker:
    """Measures cases one after the other in a child process; starts another child when one dies.

    A peer that takes the child with it is left out of that case, with the reason; the case is measured
    again without it.
    """

    def __init__(self, settings: Settings, measure: Measure = run_case) -> None:
        self._measure = measure
        self._settings = dataclasses.replace(settings)  # as plain as a case, below
        self._context = multiprocessing.get_context("spawn")
        self._at_work: Any = self._context.Value(ctypes.c_int, -1)
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and not issubclass(
            kind, Exception
        ):  # nobody waits for what is half done
            for child in multiprocessing.active_children():
                child.terminate()
        self._end()

    def measure(self, case: Case) -> Result:
        """One row.

        Raises:
            SynoError: there is no kernel of the case, or the process died where no peer was at work.
        """
        crashed: dict[str, str] = {}
        # What a case remembers about its operator stays here; a child makes its own.
        plain = dataclasses.replace(case)
        while True:
            self._at_work.value = -1
            try:
                return self._submitted(plain, crashed)
            except BrokenProcessPool as error:
                self._end()
                number = self._at_work.value
                if number < 0:
                    raise KernelError(
                        f"[kernels] {case.name}: the process died while the kernel was made or timed"
                    ) from error
                crashed[self._settings.peers[number]] = (
                    "took its process with it (a crash of the peer)"
                )

    def _submitted(self, case: Case, crashed: dict[str, str]) -> Result:
        task = self._running().submit(_measured, self._measure, case, self._settings, crashed)
        return task.result()

    def _running(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                max_workers=1,
                mp_context=self._context,
                initializer=_enter,
                initargs=(self._at_work, self._settings.threads),
            )
        return self._pool

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
