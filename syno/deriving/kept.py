"""Derivations on disk: as the steps that lead to them. What is read is made again from the original by these steps; a
file says nothing that is believed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from syno import _core
from syno.deriving import einnet
from syno.deriving.derivations import Derivations, Derived, made_by
from syno.deriving.einnet import Sought
from syno.deriving.steps import Step, path_of
from syno.errors import FormatError, SynoError, shown, told
from syno.operators.operator import Operator
from syno.support.files import read_input, write_output

FORMAT = "syno derivations"
VERSION = 1
_LARGEST_BYTES = 16 << 20


class _Derived(msgspec.Struct, forbid_unknown_fields=True):
    steps: list[Step]
    exact: bool
    program: str
    multiply_adds: int
    bytes: int
    constant_bytes: list[int]
    guessed_us: float
    predicted_us: float | None = None
    measured_us: float | None = None
    cold_us: float | None = None
    errors: dict[str, float] = {}
    note: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    original: str
    constants: list[str]
    dtype: str
    threads: int
    states: int
    seconds: float
    ended: str
    max_rel_err: float
    derived: list[_Derived]
    sought: Sought | None = None


def to_dict(found: Derivations) -> dict[str, Any]:
    original = found.original
    return {
        "format": FORMAT,
        "version": VERSION,
        "original": original.original.to_json(),
        "constants": list(original.constants),
        "dtype": original.dtype,
        "threads": original.threads,
        "states": found.states,
        "seconds": found.seconds,
        "ended": found.ended,
        "max_rel_err": found.max_rel_err,
        "derived": [found[number].to_dict() for number in range(len(found))],
        **({} if found.sought is None else {"sought": asdict(found.sought)}),
    }


def save(found: Derivations, path: Path) -> Path:
    text = msgspec.json.format(msgspec.json.encode(to_dict(found)), indent=1)
    write_output(path, text + b"\n", "derive")
    return path


def load(path: Path) -> Derivations:
    text = read_input(path, "derive", _LARGEST_BYTES)
    try:
        file = msgspec.json.decode(text, type=_File)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise FormatError(f"[derive] {path}: {told(error)}") from error
    if file.format != FORMAT or file.version != VERSION:
        raise FormatError(
            f"[derive] {path} is {shown(file.format)} version {file.version}; "
            f"this syno reads {FORMAT!r} version {VERSION}"
        )
    original = Operator.from_json(file.original)
    if not file.derived or file.derived[0].steps:
        raise FormatError(f"[derive] {path}: `derived` begins with the original, without steps")
    return Derivations(
        [_made_again(one, original, file, path) for one in file.derived],
        states=file.states,
        seconds=file.seconds,
        ended=file.ended,
        max_rel_err=file.max_rel_err,
        sought=file.sought,
    )


def _made_again(one: _Derived, original: Operator, file: _File, path: Path) -> Derived:
    steps = path_of(one.steps)
    try:
        operator = made_by(original, steps)
    except SynoError as error:
        raise FormatError(f"[derive] {path}: {error}") from error
    if operator.program.structural_key() != _core.Program.parse(one.program).structural_key():
        raise FormatError(
            f"[derive] {path}: the steps {[s.rule for s in one.steps]} make another program"
        )
    exact = {str(name): bool(is_exact) for name, _, is_exact, _ in _core.rewrite_rows()}
    exact[einnet.STEP] = True
    for name in file.constants:
        if name not in original.inputs:
            raise FormatError(f"[derive] {path}: there is no input {shown(name)} to be constant")
    return Derived(
        operator=operator,
        path=steps,
        exact=all(exact[rule] for rule, _ in steps),
        original=original,
        constants=tuple(file.constants),
        dtype=file.dtype,
        threads=file.threads,
        roughness=_core.roughness(operator.program),
        guessed_us=one.guessed_us,
        predicted_us=one.predicted_us,
        measured_us=one.measured_us,
        cold_us=one.cold_us,
        errors=dict(one.errors),
        note=one.note,
        label=einnet.label(original.program, steps, file.sought.target) if file.sought else "",
    )
