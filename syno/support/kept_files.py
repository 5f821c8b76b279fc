"""A file of a session that names no code, JSON with the tensors beside it: written once, read with limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from syno.errors import SessionError
from syno.support.files import not_a_file, write_whole

if TYPE_CHECKING:
    from torch import Tensor

_Content = TypeVar("_Content", bound=msgspec.Struct)
_Used = TypeVar("_Used")


@dataclass(frozen=True)
class KeptFiles(Generic[_Content]):
    """Where they are and what they hold; ``content`` has the fields ``format`` and ``version``."""

    file: str
    values: str
    content: type[_Content]
    format: str
    version: int
    largest: tuple[int, int]
    """Bytes that a reader takes of either."""
    instead: str
    """What a user can give where they are damaged."""
    indent: int = -1
    """Of what people may want to read; -1: none."""

    def write(self, directory: Path, content: _Content, tensors: Mapping[str, Tensor]) -> None:
        """Writes both, the file that says they are there last.

        Raises:
            OSError: they cannot be written.
        """
        from safetensors.torch import save

        values = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
        write_whole(directory / self.values, save(values))
        text = msgspec.json.format(msgspec.json.encode(content), indent=self.indent)
        write_whole(directory / self.file, text)

    def read(self, directory: Path, use: Callable[[Any, dict[str, Tensor]], _Used]) -> _Used | None:
        """What ``use`` makes of content and tensors; ``None`` where nothing is kept.

        Raises:
            SessionError: a file is damaged, of another kind or newer.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load

        path = directory / self.file
        if not path.exists():
            return None
        try:
            for file, most in zip((path, directory / self.values), self.largest, strict=True):
                if kind := not_a_file(file):
                    raise ValueError(f"{file.name} is {kind}")
                if file.stat().st_size > most:
                    raise ValueError(
                        f"{file.name} has {file.stat().st_size} bytes; at most {most} are read"
                    )
            content: Any = msgspec.json.decode(path.read_bytes(), type=self.content)
            if content.format != self.format or content.version != self.version:
                raise ValueError(
                    f"format {content.format!r}, version {content.version}; this syno reads {self.version}"
                )
            return use(content, load((directory / self.values).read_bytes()))
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            RecursionError,
            msgspec.MsgspecError,
            SafetensorError,
        ) as error:
            raise SessionError(
                f"{path} cannot be used: {error}",
                fix=f"remove {self.file} and {self.values}, and give {self.instead}",
                code="R005",
            ) from None
