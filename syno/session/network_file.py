"""What a session keeps of its network, so that its candidates can be used where the task is not: the inputs that
latencies refer to, and the sites with their shapes. Weights and operators have files of their own.

``network.json`` holds the structure, ``example.safetensors`` the tensors; neither names any code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from syno.support.inputs import plain, structured
from syno.support.kept_files import KeptFiles

if TYPE_CHECKING:
    from torch import Tensor

    from syno.torch import Sites

FILE, VALUES = FILES = "network.json", "example.safetensors"


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    version: int
    batch: int
    example: Any
    total_us: float
    threads: int
    sites: list[dict[str, Any]]


#: A network of a thousand layers needs a hundredth.
_FILES = KeptFiles(
    FILE, VALUES, _File, "syno-network", 1, (64 << 20, 4 << 30),
    "the example (apply(model, example=x)) or the task", indent=1,
)  # fmt: skip


@dataclass(frozen=True)
class KeptNetwork:
    """The example is on the CPU; it has the structure that the model takes (`syno.support.inputs`)."""

    batch: int
    example: Any
    sites: Sites


def keep_network(directory: Path, batch: int, example: Any, sites: Sites) -> bool:
    """Writes what is kept, unless it is there. False where the example holds what no file can."""
    if (directory / FILE).exists():
        return True
    held: list[Tensor] = []
    try:
        structure = plain(example, held)
    except TypeError:
        return False
    content = _File(
        format=_FILES.format,
        version=_FILES.version,
        batch=batch,
        example=structure,
        total_us=sites.total_us,
        threads=sites.threads,
        sites=[msgspec.to_builtins(site) for site in sites],
    )
    _FILES.write(directory, content, {f"{i}": tensor for i, tensor in enumerate(held)})
    return True


def read_network(directory: Path) -> KeptNetwork | None:
    """What is kept; ``None`` where nothing is.

    Raises:
        SessionError: a file is damaged, of another kind or newer.
    """
    from syno.torch.sites import Site, Sites

    def kept(content: _File, values: dict[str, Tensor]) -> KeptNetwork:
        sites = [msgspec.convert(site, Site) for site in content.sites]
        return KeptNetwork(
            content.batch,
            structured(content.example, values),
            Sites(sites, content.total_us, content.threads),
        )

    return _FILES.read(directory, kept)
