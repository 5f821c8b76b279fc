"""The guard of one worker: ends everything the worker started when the worker or its coordinator is gone.

A script of the standard library alone: small, one thread, and nothing a user wrote ever runs in it, so
that a worker which cannot act (it holds the interpreter's lock, is stopped, was killed) has somebody who
can. It becomes the parent of whatever descends from the worker and lost its own parent, sessions and
process groups of their own notwithstanding; it ends as the worker did.

    guard.py COORDINATOR LOG BYTES COMMAND...

COORDINATOR is the process to end with. What COMMAND writes to standard error goes to the file LOG, of at
most BYTES, beside one older file LOG.1 of the same size; an empty LOG leaves standard error as it is.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CHUNK = 1 << 16


def control(option: int, value: int) -> None:
    """One ``prctl``; what the system does not have is done without, a second later."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass


class Log:
    """A file that is put aside when it is full; the one put aside before is forgotten."""

    def __init__(self, path: str, most: int) -> None:
        self._path, self._most = path, most
        self._file = -1
        self._size = 0
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        # Without its log a worker works on: the disk may be full, or the directory gone.
        with contextlib.suppress(OSError):
            self._file = os.open(self._path, flags, 0o666)
            self._size = os.fstat(self._file).st_size

    def write(self, data: bytes) -> None:
        data = data[-self._most :]
        if self._size + len(data) > self._most:
            self._turn()
        if self._file >= 0:
            with contextlib.suppress(OSError):
                self._size += os.write(self._file, data)

    def _turn(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        with contextlib.suppress(OSError):
            os.replace(self._path, self._path + ".1")
            self._open()
            name = os.path.basename(self._path)
            note = (
                f"[syno] a log holds {self._most} bytes: what came before is in {name}.1, and what "
                "was there before is gone\n"
            )
            self.write(note.encode())


class Guard:
    """One worker from its start to the end of all that descends from it."""

    def __init__(self, coordinator: int, log: Log | None) -> None:
        self._coordinator, self._log = coordinator, log
        self._told_to_end = False
        self._woken, wake = os.pipe()
        for end in (self._woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, self._end_soon)
        control(_PR_SET_CHILD_SUBREAPER, 1)
        # Comes when the thread ends that started this process, too: it only says to look.
        control(_PR_SET_PDEATHSIG, signal.SIGUSR1)
        self._words = -1

    def _end_soon(self, *_: object) -> None:
        self._told_to_end = True

    def run(self, command: list[str]) -> int:
        """Runs the command; its status as ``waitpid`` gives it, 0 where the coordinator was first."""
        words = -1
        if self._log is not None:
            self._words, words = os.pipe()
            os.set_blocking(self._words, False)
        worker = self._start(command, words)
        if words >= 0:
            os.close(words)
        nothing = os.open(os.devnull, os.O_RDWR)
        for end in (0, 1):  # the channel is the worker's alone
            os.dup2(nothing, end)
        waiting = select.poll()
        waiting.register(self._woken, select.POLLIN)
        if self._words >= 0:
            waiting.register(self._words, select.POLLIN)
        status = None
        while status is None:
            if self._told_to_end or os.getppid() != self._coordinator:
                status = 0
                break
            waiting.poll(1_000)
            with contextlib.suppress(BlockingIOError):
                os.read(self._woken, _CHUNK)
            if self._words >= 0 and not self._keep_words(16):
                waiting.unregister(self._words)
                self._words = -1
            status = self._reap(worker)
        self._end_all()
        if self._words >= 0:
            self._keep_words(256)
        return status

    def _start(self, command: list[str], words: int) -> int:
        own = os.getpid()
        worker = os.fork()
        if worker:
            return worker
        try:
            control(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != own:  # the guard ended before the line above
                os._exit(1)
            if words >= 0:
                os.dup2(words, 2)
            os.execv(command[0], command)
        finally:
            os._exit(127)

    def _keep_words(self, chunks: int) -> bool:
        """Moves what was written to the log; whether there may be more."""
        assert self._log is not None
        for _ in range(chunks):
            try:
                data = os.read(self._words, _CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._log.write(data)
        return True

    def _reap(self, worker: int) -> int | None:
        """Buries the dead; the worker's status where it is among them."""
        found = None
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == worker:
                    found = status
        return found

    def _end_all(self) -> None:
        """Kills children until there are none: theirs become this process's own when they die."""
        spared: set[int] = set()
        while True:
            found = set(_children(os.getpid())) - spared
            for pid in found:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                except PermissionError:  # it has become somebody else's
                    spared.add(pid)
            if not found - spared:
                return
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return
            self._reap(0)


def _children(parent: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(name))
    return found


def end_as(status: int) -> None:
    """Ends this process as another one ended."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the worker has left its own, if any
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 1)


if __name__ == "__main__":
    coordinator, log, most = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    end_as(Guard(coordinator, Log(log, most) if log else None).run(sys.argv[4:]))
