"""What a session keeps of its network, so that its candidates can be used where the task is not: the inputs that
latencies refer to, and the sites with their shapes. Weights and operators have files of their own.

``network.json`` holds the structure, ``example.safetensors`` the tensors; neither names any code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from syno.errors import SessionError
from syno.files import write_whole
from syno.inputs import plain, structured

if TYPE_CHECKING:
    from torch import Tensor

    from syno.torch import Sites

FILE, VALUES = FILES = "network.json", "example.safetensors"
_FORMAT, _VERSION = "syno-network", 1
#: What a reader takes of a file; a network of a thousand layers needs a hundredth.
_LARGEST, _LARGEST_VALUES = 64 << 20, 4 << 30


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    version: int
    batch: int
    example: Any
    total_us: float
    threads: int
    sites: list[dict[str, Any]]


@dataclass(frozen=True)
class KeptNetwork:
    """The example is on the CPU; it has the structure that the model takes (`syno.inputs`)."""

    batch: int
    example: Any
    sites: Sites


def keep_network(directory: Path, batch: int, example: Any, sites: Sites) -> bool:
    """Writes what is kept, unless it is there. False where the example holds what no file can."""
    from safetensors.torch import save

    if (directory / FILE).exists():
        return True
    held: list[Tensor] = []
    try:
        structure = plain(example, held)
    except TypeError:
        return False
    content = _File(
        format=_FORMAT,
        version=_VERSION,
        batch=batch,
        example=structure,
        total_us=sites.total_us,
        threads=sites.threads,
        sites=[msgspec.to_builtins(site) for site in sites],
    )
    values = {f"{i}": t.detach().cpu().contiguous().clone() for i, t in enumerate(held)}
    write_whole(directory / VALUES, save(values))
    write_whole(directory / FILE, msgspec.json.format(msgspec.json.encode(content), indent=1))
    return True


def read_network(directory: Path) -> KeptNetwork | None:
    """What is kept; ``None`` where nothing is.

    Raises:
        SessionError: a file is damaged, of another kind or newer.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    from syno.torch.sites import Site, Sites

    path = directory / FILE
    if not path.exists():
        return None
    try:
        for file, most in ((path, _LARGEST), (directory / VALUES, _LARGEST_VALUES)):
            if file.stat().st_size > most:
                raise ValueError(
                    f"{file.name} has {file.stat().st_size} bytes; at most {most} are read"
                )
        content = msgspec.json.decode(path.read_bytes(), type=_File)
        if content.format != _FORMAT or content.version != _VERSION:
            raise ValueError(
                f"format {content.format!r}, version {content.version}; this syno reads {_VERSION}"
            )
        values = load((directory / VALUES).read_bytes())
        example = structured(content.example, values)
        sites = [msgspec.convert(site, Site) for site in content.sites]
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        msgspec.MsgspecError,
        SafetensorError,
    ) as error:
        raise SessionError(
            f"{path} cannot be used: {error}",
            fix=f"remove {FILE} and {VALUES}, and give the example (apply(model, example=x)) or the task",
            code="R005",
        ) from None
    return KeptNetwork(content.batch, example, Sites(sites, content.total_us, content.threads))
