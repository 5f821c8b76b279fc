"""GPU files: what tiles of Triton kernels are chosen from, beside the machine files of CPUs."""

from __future__ import annotations

import functools
from pathlib import Path

from syno import _core
from syno.errors import FormatError, unknown_name
from syno.support.arguments import checked
from syno.support.files import not_a_file

GpuModel = _core.GpuModel

_FOLDER = Path(__file__).parent / "machines"
_LARGEST_BYTES = 1 << 20
DEFAULT = "h200"


def gpu_names() -> list[str]:
    """GPUs that there is a file of; its figures are those of data sheets, none is measured."""
    return sorted(path.stem for path in _FOLDER.glob("*.json"))


@checked()
def gpu_named(name: str | Path = DEFAULT) -> GpuModel:
    """The model of a GPU: one of :func:`gpu_names`, or the path of a GPU file (it ends in ``.json``).

    Raises:
        UnknownName: no such GPU; the message lists those there are.
        FormatError: the file cannot be read, or the path in it that is wrong.
    """
    if str(name).endswith(".json"):
        return _read(Path(name))
    if str(name) not in gpu_names():
        raise unknown_name("gpu", str(name), gpu_names())
    return _builtin(str(name))


@functools.lru_cache(maxsize=8)
def _builtin(name: str) -> GpuModel:
    return _read(_FOLDER / f"{name}.json")


def _read(path: Path) -> GpuModel:
    if kind := not_a_file(path):
        raise FormatError(f"[gpu] {path} cannot be read: it is {kind}; give a GPU file")
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
        if len(content) > _LARGEST_BYTES:
            raise FormatError(f"[gpu] {path} has over {_LARGEST_BYTES} bytes; a GPU file has few")
        text = content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"[gpu] {path} cannot be read: {error}") from error
    return GpuModel.from_json(text)
