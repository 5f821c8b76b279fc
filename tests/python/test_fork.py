"""Processes forked while other threads compile: the children compile and call kernels, and nothing hangs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from syno import Operator, _core
from syno.config import config
from syno.support.bounded import Bounded

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    # Python warns of what is tested here.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

_ROUNDS = int(os.environ.get("SYNO_TEST_FORKS", "100"))
_CHILD_S = 60  # a child that works takes a part of a second


def operator(size: int) -> Operator:
    return Operator.parse("y[i,j] = sum[k] a[i,k] * b[k,j]", i=size, j=5, k=3)


def works(size: int) -> None:
    """Compiles an operator and calls it, also on strided arguments, which have a kernel of their own."""
    kernel = operator(size).compile()
    a = np.arange(3 * size, dtype=np.float32).reshape(size, 3)
    b = np.arange(30, dtype=np.float32).reshape(3, 10)
    np.testing.assert_allclose(kernel(a, np.ascontiguousarray(b[:, ::2])), a @ b[:, ::2])
    np.testing.assert_allclose(kernel(a, b[:, ::2]), a @ b[:, ::2])


def forked(act: Callable[[], None]) -> int | None:
    """Exit status of a child that does ``act``; None where it hung and was killed."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    end = time.monotonic() + _CHILD_S
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return None


def beside(busy: Callable[[int], None], threads: int = 3) -> Callable[[], None]:
    """Runs ``busy`` again and again in threads, with numbers that never repeat; called, ends them."""
    over = threading.Event()
    failures: list[BaseException] = []

    def again(first: int) -> None:
        number = first
        try:
            while not over.is_set():
                busy(number)
                number += threads
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=again, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()

    def end() -> None:
        over.set()
        for thread in running:
            thread.join()
        assert not failures, failures

    return end


def compile_and_forget(number: int) -> None:
    # Few sizes: threads meet at the same kernel while it is made and removed.
    works(1 + number % 7)


def write_code(number: int) -> None:
    made = operator(2 + number % 50)
    made.compile().llvm()
    _core.emit_pytorch(made.program)


@pytest.mark.parametrize("busy", [compile_and_forget, write_code])
@pytest.mark.parametrize("cache", ["", "kept"])
def test_children_of_a_process_that_compiles_compile(
    busy: Callable[[int], None], cache: str, tmp_path: Path
) -> None:
    with config(cache=str(tmp_path / cache) if cache else ""):
        works(4)
        end = beside(busy)
        try:
            found = [forked(lambda n=n: works(1 + n % 9)) for n in range(_ROUNDS // 4)]  # type: ignore[misc]
        finally:
            end()
    assert set(found) == {0}


def test_a_kernel_of_the_parent_is_called_in_children(tmp_path: Path) -> None:
    with config(cache=""):
        kernel = operator(6).compile(threads=2)
        a, b = np.ones((6, 3), np.float32), np.ones((3, 10), np.float32)
        kernel(a, np.ones((3, 5), np.float32))
        end = beside(compile_and_forget)
        try:
            # The variant for strided arguments is made by the child.
            found = [
                forked(lambda: assert_three(kernel(a, b[:, ::2]))) for _ in range(_ROUNDS // 4)
            ]
        finally:
            end()
    assert set(found) == {0}


def assert_three(result: np.ndarray) -> None:
    assert (result == 3).all()


def test_a_table_that_another_thread_uses_is_free_in_a_child() -> None:
    table: Bounded[int, int] = Bounded(8)

    def use(number: int) -> None:
        table.setdefault(number % 16, number)

    end = beside(use)
    try:
        found = [forked(lambda: assert_set(table)) for _ in range(_ROUNDS // 4)]
    finally:
        end()
    assert set(found) == {0}


def assert_set(table: Bounded[int, int]) -> None:
    assert table.setdefault(99, 1) == 1 and table.get(99) == 1


def test_forks_do_not_wait_for_ever_for_threads_that_compile() -> None:
    end = beside(compile_and_forget, threads=4)
    try:
        for _ in range(_ROUNDS // 4):
            assert forked(lambda: None) == 0
    finally:
        end()
