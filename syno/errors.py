"""Every error a user can cause, in one place: what was wrong, the values, and what to do.

The engine's errors (``ShapeError``, ``ParseError``, …) are re-exported from ``syno._core``; the
ones below belong to the Python side. All derive from :class:`SynoError`, and all have ``code``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if not TYPE_CHECKING:
    from syno._checkout import check
    from syno._core import (
        FormatError,
        KernelError,
        ParseError,
        ScheduleError,
        ShapeError,
        SpecError,
        SynoError,
        UnknownName,
        VerifyError,
    )

    # The letter says which part complains; the engine's types carry one code each.
    for _type, _code in (
        (SynoError, "E000"),
        (ShapeError, "S001"),
        (ParseError, "P001"),
        (VerifyError, "V001"),
        (SpecError, "C001"),
        (ScheduleError, "L001"),
        (KernelError, "K001"),
        (FormatError, "F001"),
        (UnknownName, "N001"),
    ):
        _type.code = _code
    check()
    del _type, _code, check

else:  # those who read sources find here what each type says

    class SynoError(RuntimeError):
        """Base of every error that syno raises for a caller's mistake."""

        code: str

    class ShapeError(SynoError):
        """Sizes or index ranges do not fit together."""

    class ParseError(SynoError):
        """A text form is not well formed."""

    class VerifyError(SynoError):
        """A program or graph breaks one of its invariants."""

    class SpecError(SynoError):
        """A specification contradicts itself."""

    class ScheduleError(SynoError):
        """A schedule does not apply to its program."""

    class KernelError(SynoError):
        """A kernel cannot be built, or computes the wrong values."""

    class FormatError(SynoError):
        """A file is corrupt, of another kind, or of a newer version."""

    class UnknownName(SynoError):
        """A name that is not one of the valid ones."""


class _Coded(SynoError):
    """An error with a code and a remedy; prints as ``[R003] what`` and a line ``fix: …``."""

    code = "E000"

    def __init__(self, what: str, *, fix: str = "", code: str | None = None) -> None:
        self.what = what
        self.fix = fix
        if code is not None:
            self.code = code
        super().__init__(f"[{self.code}] {what}" + (f"\n  fix: {fix}" if fix else ""))

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.fix, self.code))


def _rebuild(kind: type[_Coded], what: str, fix: str, code: str) -> _Coded:
    return kind(what, fix=fix, code=code)


class ArgumentError(_Coded, TypeError):
    """An argument is of another type than the function takes, or is none of its arguments.

    Args:
        what: what was wrong, with the values.
        fix: what to do about it; prints as a line ``fix: …``.
        code: a letter for the part that complains and three digits, such as ``"R003"``; default the type's own.
    """

    code = "E001"


class SessionError(_Coded):
    """A session directory cannot be created, opened, resumed or written. Made as :class:`ArgumentError` is."""

    code = "R000"


class TaskError(_Coded):
    """A task cannot be imported, built, or trained as it stands. Made as :class:`ArgumentError` is."""

    code = "T000"


class DataError(_Coded):
    """Data are missing, empty, truncated or of another format. Made as :class:`ArgumentError` is."""

    code = "D000"


class BudgetError(_Coded):
    """A budget cannot be understood or allows nothing. Made as :class:`ArgumentError` is."""

    code = "B000"


class UnsupportedOp(_Coded):
    """A model has operators that syno does not compute: `operators` lists them with the reasons. Made as :class:`ArgumentError` is."""

    code = "O000"

    def __init__(
        self, what: str, *, fix: str = "", code: str | None = None, operators: Iterable[str] = ()
    ) -> None:
        super().__init__(what, fix=fix, code=code)
        self.operators = tuple(operators)
        self.needed: tuple[str, ...] = ()
        """Inputs whose values must be known beforehand."""

    def __reduce__(self) -> tuple[object, ...]:
        return (*super().__reduce__(), {"operators": self.operators, "needed": self.needed})


class TrustError(_Coded):
    """What somebody else may have written would be run, or the secret that tells it is not safe. Made as :class:`ArgumentError` is."""

    code = "A000"


def unknown_name(kind: str, name: object, valid: Iterable[str]) -> UnknownName:
    """The error for a name that is none of ``valid``: lists them, and the nearest first.

    What is no text at all, such as ``torch.float64`` for a dtype, is shown as it prints.

    Args:
        kind: what it should have named: ``"dtype"``, ``"policy"``.
        name: what was given.
        valid: all names that there are.
    """
    names = sorted(set(valid))
    near = difflib.get_close_matches(str(name)[:100], names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    listed = ", ".join(shown(name)[1:-1] for name in names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return UnknownName(f"[{kind}] unknown {kind} {shown(name)}{hint} Valid: {listed}{more}".strip())


_MOST_NAMES = 40


def shown(value: object, most: int = 80) -> str:
    """A caller's value for a message: as `repr` prints it, its middle left out where it is long.

    Numbers of hundreds of bits are shown by their size; what cannot be printed, by its type.

    Args:
        value: anything.
        most: characters that are shown.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 400:
        return f"{'-' * (value < 0)}about 10^{int(value.bit_length() * 0.30103)}"
    try:
        text = repr(value)
    except Exception:  # whatever a caller's own __repr__ raises
        text = f"a {type(value).__name__}"
    text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) <= most:
        return text
    return f"{text[: most * 3 // 4]} ... ({len(text)} characters) ... {text[-most // 4 :]}"


def told(error: BaseException, most: int = 400) -> str:
    """An exception of anybody's in one line: its type and what it says.

    None of its characters would steer a terminal.

    Args:
        error: of any type, also one whose text cannot be made.
        most: characters that are shown of what it says.
    """
    try:
        said = " ".join(str(error).split())
    except Exception:  # whatever its own __str__ raises
        said = ""
    said = said.encode("utf-8", "backslashreplace").decode()
    if len(said) > most:
        said = f"{said[: most * 3 // 4]} ... ({len(said)} characters) ... {said[-most // 4 :]}"
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in said)
    return f"{type(error).__name__}: {safe}" if safe else type(error).__name__


def require_unicode(where: str, *texts: object) -> None:
    """Looks for half characters, as the names of files and command lines may hold them.

    Args:
        where: the function that complains, for the message.
        texts: those that are looked at; what is no text passes.
    Raises:
        ParseError: a text holds one; the message says where.
    """
    for text in texts:
        if isinstance(text, str):
            try:
                text.encode("utf-8")
            except UnicodeEncodeError as error:
                raise ParseError(
                    f"[{where}] character {error.start + 1} of {shown(text)} is none of Unicode; write another"
                ) from None


__all__ = [
    "ArgumentError",
    "BudgetError",
    "DataError",
    "FormatError",
    "KernelError",
    "ParseError",
    "ScheduleError",
    "SessionError",
    "ShapeError",
    "SpecError",
    "SynoError",
    "TaskError",
    "TrustError",
    "UnknownName",
    "VerifyError",
    "require_unicode",
    "shown",
    "told",
    "unknown_name",
]
