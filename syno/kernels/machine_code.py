"""Compiled code of an operator, for this CPU or another: what can be looked at and linked."""

from __future__ import annotations

from syno._core import CompileReport, LoopCode
from syno._core import Kernel as Code


class MachineCode:
    """What a kernel and an object for another CPU have in common."""

    _core: Code

    @property
    def key(self) -> str:
        """The object cache's key: everything that can change the code."""
        return str(self._core.key)

    @property
    def symbol(self) -> str:
        """Name of the object's only function."""
        return str(self._core.symbol)

    @property
    def workspace_bytes(self) -> int:
        """Memory that a call on one thread needs beside its arguments, bytes."""
        shared, for_each_thread = self._core.workspace_bytes
        return int(shared + for_each_thread)

    @property
    def report(self) -> CompileReport:
        """Milliseconds of compilation, bytes of code, spills, and whether it came from the cache."""
        return self._core.report

    @property
    def innermost_loops(self) -> list[LoopCode]:
        """What the innermost loops of the machine code are made of."""
        return self._core.innermost_loops

    def object_bytes(self) -> bytes:
        """The ELF object; a linker for its CPU takes it, without LLVM."""
        return bytes(self._core.object_bytes())

    def loops(self) -> str:
        """The loop nest as text."""
        return str(self._core.loops())

    def llvm(self) -> str:
        """The LLVM IR as text."""
        return str(self._core.llvm())

    def asm(self) -> str:
        """The machine code as text."""
        return str(self._core.assembly())
