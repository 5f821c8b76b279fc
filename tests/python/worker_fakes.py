"""A part of a session whose calls end in every way that a process can end. The request's ``why`` names the way."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from syno.session.protocols import TrainRequest


def _sleeper(pid_file: Path) -> None:
    pid_file.write_text(str(os.getpid()))
    time.sleep(1_000)


def _child_that_keeps_the_channel(fork: Callable[[], int], pid_file: Path) -> None:
    if fork() == 0:
        _sleeper(pid_file)
    while not pid_file.exists():
        time.sleep(0.01)


def _daemon(pid_file: Path) -> None:
    """As daemons begin: a session of its own, and no parent."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _sleeper(pid_file)
        os._exit(0)
    while not pid_file.exists():
        time.sleep(0.01)


class Stop(BaseException):
    """No Exception: as asyncio's CancelledError."""


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("an error without a text")


class Actor:
    """Does what ``request.floors_why`` says; pids of what it leaves behind go to ``folder``."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def evaluate(self, request: TrainRequest, report: Callable[..., None]) -> Any:
        pid_file = self.folder / f"left-{request.candidate}"
        getattr(self, request.floors_why)(pid_file)
        return os.getpid()

    def work(self, pid_file: Path) -> None:
        pass

    def fork_and_die(self, pid_file: Path) -> None:
        _child_that_keeps_the_channel(os.fork, pid_file)
        os._exit(3)

    def fork_unseen_and_die(self, pid_file: Path) -> None:
        # Not Python's fork: none of its hooks runs in the child.
        _child_that_keeps_the_channel(ctypes.PyDLL(None).fork, pid_file)
        os._exit(3)

    def fork_and_return_twice(self, pid_file: Path) -> None:
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)

    def leave(self, pid_file: Path) -> None:
        sys.exit(3)

    def interrupt(self, pid_file: Path) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1_000)

    def surrogate(self, pid_file: Path) -> None:
        raise ValueError("a name that is not Unicode: \udcff")

    def stop(self, pid_file: Path) -> None:
        raise Stop

    def close_its_generator(self, pid_file: Path) -> None:
        raise GeneratorExit

    def full(self, pid_file: Path) -> None:
        import torch

        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7.25 GiB.")

    def mute(self, pid_file: Path) -> None:
        raise Mute

    def much(self, pid_file: Path) -> None:
        raise ValueError("\x1b[31mred\x07" + "x" * (4 << 20))

    def die(self, pid_file: Path) -> None:
        os._exit(3)

    def daemon(self, pid_file: Path) -> None:
        _daemon(pid_file)

    def daemon_and_hang(self, pid_file: Path) -> None:
        _daemon(pid_file)
        time.sleep(1_000)

    def subprocess_and_die(self, pid_file: Path) -> None:
        code = "import sys; from worker_fakes import _sleeper, Path; _sleeper(Path(sys.argv[1]))"
        subprocess.Popen([sys.executable, "-c", code, str(pid_file)], start_new_session=True)
        while not pid_file.exists():
            time.sleep(0.01)
        os.abort()

    def hold_the_interpreter(self, pid_file: Path) -> None:
        pid_file.write_text(str(os.getpid()))
        ctypes.PyDLL(None).sleep(1_000)  # a call into C that keeps the interpreter's lock

    def talk(self, pid_file: Path) -> None:
        for number in range(3_000):
            print(f"line {number} of very many")

    def talk_and_die(self, pid_file: Path) -> None:
        self.talk(pid_file)
        print("and then it died", flush=True)
        os.abort()
