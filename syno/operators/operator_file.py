"""Operator files: one operator as versioned JSON that people can read and diff.

A file holds the pGraph where there is one, else the program, and the hash of what it says; reading
rebuilds the operator and compares. `schema()` is the published JSON Schema.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from syno import _core
from syno.errors import FormatError, SynoError, shown, told
from syno.operators.operator import Operator
from syno.support.files import not_a_file, write_whole

FORMAT = "syno-operator"
VERSION = 1
_LARGEST_BYTES = 16 << 20


class Written(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How a formula was given, so that it can be read again for other shapes."""

    expr: str
    sizes: dict[str, int] = {}
    weights: list[str] | None = None
    data: list[str] | None = None


class OperatorFile(msgspec.Struct, forbid_unknown_fields=True):
    """Version 1. `dims` are the values of the size variables, one row a valuation."""

    format: str
    version: int
    expr: str
    dims: list[dict[str, int]]
    steps: list[str]
    hash: str
    program: str
    pgraph: str | None = None
    valuation: int | None = None
    written: Written | None = None
    provenance: dict[str, Any] = {}


def schema() -> dict[str, Any]:
    """The JSON Schema of operator files."""
    return msgspec.json.schema(OperatorFile)


def dumps(operator: Operator, provenance: dict[str, Any]) -> str:
    """The file's text, the same for the same operator."""
    whole = operator.symbolic
    pgraph, source = operator.pgraph, operator._source
    written = None
    if source is not None:
        written = Written(
            source.expr,
            dict(source.sizes),
            None if source.weights is None else list(source.weights),
            None if source.data is None else list(source.data),
        )
    content = OperatorFile(
        format=FORMAT,
        version=VERSION,
        expr=operator.expr,
        dims=whole.valuations,
        steps=list(pgraph.steps) if pgraph is not None else [],
        hash=operator.canonical_hash,
        program=str(whole.program.text()),
        pgraph=None if pgraph is None else str(pgraph.text()),
        valuation=operator.valuation,
        written=written,
        provenance=provenance,
    )
    try:
        encoded = msgspec.json.encode(content)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FormatError(
            f"[operator file] what is to be stored along is no plain data: {told(error)}"
        ) from None
    return msgspec.json.format(encoded, indent=1).decode() + "\n"


def loads(text: str | bytes, name: str = "operator file") -> Operator:
    """Rebuilds the operator; FormatError says what is wrong with `name`."""
    try:
        head = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise FormatError(f"[{name}] is not complete JSON: {shown(str(error))}") from error
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise FormatError(f'[{name}] is not an operator file: it has no "format": "{FORMAT}"')
    version = head.get("version")
    if not isinstance(version, int) or version < 1:
        raise FormatError(f"[{name}] has version {shown(version)}, which is no version")
    if version > VERSION:
        raise FormatError(
            f"[{name}] has version {shown(version)}; this syno reads up to {VERSION}: install a newer one"
        )
    try:
        content = msgspec.convert(head, OperatorFile)
    except (msgspec.ValidationError, RecursionError) as error:
        raise FormatError(f"[{name}] {shown(str(error), 300)}") from error
    try:
        operator = _rebuild(content)
    except SynoError as error:
        raise FormatError(f"[{name}] holds an operator that cannot be built: {error}") from error
    if operator.canonical_hash != content.hash:
        raise FormatError(
            f"[{name}] says its hash is {shown(content.hash)[1:-1]}, but its content has "
            f"{operator.canonical_hash}: the file was changed or damaged"
        )
    return operator


def _rebuild(content: OperatorFile) -> Operator:
    if content.pgraph is not None:
        # The program of a pGraph follows from it; the stored text is for people.
        operator = Operator.from_pgraph(_core.PGraph.parse(content.pgraph))
    elif content.written is not None:
        operator = _read_formula(content.written, content.program)
    else:
        operator = Operator(_core.Program.parse(content.program))
    return operator if content.valuation is None else operator.at(content.valuation)


def _read_formula(written: Written, program_text: str) -> Operator:
    """The operator as it was parsed; shapes that the formula left open come from the program."""
    program = _core.Program.parse(program_text)
    for name in {"shapes", "weights", "data"} & written.sizes.keys():
        raise FormatError(f"[operator] {name!r} is no name of a size")
    return Operator.parse(
        written.expr,
        shapes={name: program.shape(name) for name in program.inputs},
        weights=written.weights,
        data=written.data,
        **written.sizes,
    )


def save(operator: Operator, path: Path, provenance: dict[str, Any]) -> Path:
    """Writes beside the target and renames, so that no reader sees half a file."""
    text = dumps(operator, provenance)
    if not path.name:
        raise FormatError(f"[{path}] cannot be written: it is a directory; give a file's name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    except OSError as error:
        raise FormatError(f"[{path}] cannot be written: {error.strerror}") from error
    return path


def load(path: Path) -> Operator:
    """Reads `path`; FormatError when it is missing, too large or not what it says."""
    if kind := not_a_file(path):
        raise FormatError(f"[{path}] cannot be read: it is {kind}; give an operator file")
    try:
        size = path.stat().st_size
        if size > _LARGEST_BYTES:
            raise FormatError(f"[{path}] has {size} bytes; an operator file has few")
        text = path.read_bytes()
    except OSError as error:
        raise FormatError(f"[{path}] cannot be read: {error.strerror}") from error
    return loads(text, str(path))
