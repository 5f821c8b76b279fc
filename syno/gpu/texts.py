"""Triton text made here, loaded as a module; and the same in Triton's interpreter, in a process of its own.

Triton reads the source of kernels from their file, so that the text has to be in one. It is written by syno's emitter
from a program, in a directory of this process, and never read back from anywhere else.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, TypeAlias

import numpy as np

from syno import _core
from syno.errors import KernelError
from syno.support.bounded import Bounded
from syno.support.fresh import python_command, python_environment

Array: TypeAlias = "np.ndarray[Any, Any]"

#: Loaded texts that are kept.
KEPT_TEXTS = 256

_modules: Bounded[str, ModuleType] = Bounded(KEPT_TEXTS)
_lock = threading.Lock()
_folder: tempfile.TemporaryDirectory[str] | None = None


def no_triton() -> str:
    """What is to be installed, in a sentence; empty where Triton is there."""
    if importlib.util.find_spec("triton") is not None:
        return ""
    return 'Triton is not installed: pip install "syno[gpu]" (Linux only)'


def interpreting() -> bool:
    """Whether Triton interprets kernels in this process, on the CPU."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


def loaded(source: str) -> ModuleType:
    """The module of a text that syno's emitter made.

    Raises:
        KernelError: Triton is not installed.
    """
    if missing := no_triton():
        raise KernelError(f"[gpu] {missing}")
    key = str(_core.hash_bytes(source.encode()))
    found = _modules.get(key)
    if found is not None:
        return found
    global _folder
    with _lock:
        if _folder is None:
            _folder = tempfile.TemporaryDirectory(prefix="syno-triton-")
        path = Path(_folder.name) / f"syno_{key}.py"
        path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"syno_triton_{key}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return _modules.setdefault(key, module)


_CHILD = "from syno.gpu.texts import _serve; _serve()"


class Interpreter:
    """Triton's interpreter in a process of its own: kernels on the CPU, slowly, whatever this process has loaded.

    >>> with Interpreter() as interpreter:  # doctest: +SKIP
    ...     interpreter.run(text.source, arrays)
    """

    def __init__(self) -> None:
        if missing := no_triton():
            raise KernelError(f"[gpu] {missing}")
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="syno-interpreter-")

    def run(self, source: str, inputs: Sequence[Array]) -> list[Array]:
        """The outputs of a text, as float64 arrays.

        Args:
            inputs: arrays whose values the text's dtype holds, in order.
        Raises:
            KernelError: the text fails; the message has the interpreter's own.
        """
        folder = Path(self._folder.name)
        (folder / "text.py").write_text(source, encoding="utf-8")
        _save(folder / "inputs.npz", inputs)
        process = self._started()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(f"{folder}\n".encode())
            process.stdin.flush()
            answer = process.stdout.readline().decode().rstrip("\n")
        except BrokenPipeError:
            answer = ""
        if answer != "done":
            why = answer or "its process ended"
            raise KernelError(f"[gpu] Triton's interpreter cannot run the text: {why}")
        with np.load(folder / "outputs.npz", allow_pickle=False) as results:
            return [results[str(i)] for i in range(len(results.files))]

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                python_command(_CHILD),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**python_environment(), "TRITON_INTERPRET": "1"},
            )
        return self._process

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process.wait()
            self._process = None
        self._folder.cleanup()

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _save(path: Path, arrays: Sequence[Array]) -> None:
    named: dict[str, Any] = {str(i): array for i, array in enumerate(arrays)}
    np.savez(path, **named)


def _serve() -> None:
    """The process of an :class:`Interpreter`: a folder a line, ``done`` or what went wrong for each."""
    import torch

    from syno.errors import told

    torch.set_num_threads(1)
    np.seterr(all="ignore")  # lanes beyond the last result compute anything
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        try:
            module = loaded((folder / "text.py").read_text(encoding="utf-8"))
            with np.load(folder / "inputs.npz", allow_pickle=False) as given:
                arrays = [given[str(i)] for i in range(len(given.files))]
            results = module.run(*(torch.from_numpy(a).to(module.DTYPE) for a in arrays))
            _save(folder / "outputs.npz", [result.double().numpy() for result in results])
            said = "done"
        except Exception as error:  # whatever the interpreter raises
            said = " ".join(told(error).split())
        print(said, file=answers, flush=True)
