"""The idx format of MNIST and its relatives, plain or gzipped, and Fashion-MNIST from it."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from syno.data.dataset import Dataset, Splits, channel_statistics
from syno.errors import DataError

# Where Debian's dataset-fashion-mnist installs to.
FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")

_FASHION_CLASSES = (
    "t-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)

# Third byte of the header: element type (big-endian, as the format has it).
_ELEMENTS = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MAX_ELEMENTS = 1 << 32  # a corrupt header must not ask for all memory


def read_idx(path: str | Path) -> npt.NDArray[Any]:
    """The array in an idx file (gzipped when it starts so), in native byte order.

    Raises:
        DataError: the file is missing, truncated, of another format, or longer than its header says.
    """
    path = Path(path)
    raw = _read(path)
    if len(raw) < 4 or raw[0] != 0 or raw[1] != 0 or raw[2] not in _ELEMENTS:
        raise DataError(
            f"{path} is not an idx file: it starts with {raw[:4].hex(' ') or 'nothing'}",
            fix="give the original idx file, plain or gzipped",
            code="D002",
        )
    rank = raw[3]
    header = 4 + 4 * rank
    if rank == 0 or len(raw) < header:
        raise DataError(
            f"{path} ends inside its header ({len(raw)} bytes)", fix=_FETCH_AGAIN, code="D002"
        )
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(rank))
    dtype = np.dtype(_ELEMENTS[raw[2]])
    count = math.prod(shape)
    wanted = header + count * dtype.itemsize
    if count > _MAX_ELEMENTS or len(raw) != wanted:
        raise DataError(
            f"{path} should hold {'x'.join(map(str, shape))} elements in {wanted} bytes, but has {len(raw)}",
            fix=_FETCH_AGAIN,
            code="D002",
        )
    values = np.frombuffer(raw, dtype, count, header).reshape(shape)
    return values.astype(dtype.newbyteorder("="))


_FETCH_AGAIN = "the file is truncated or corrupt; fetch it again"


def _read(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} does not exist", fix="check the path", code="D001") from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", fix="check the path", code="D001"
        ) from None
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: {error}", fix=_FETCH_AGAIN, code="D002") from None


def fashion_mnist(path: str | Path | None = None) -> Splits:
    """Fashion-MNIST: 60,000 + 10,000 grey images of 28x28, ten classes, as ``[N, 1, 28, 28]`` uint8.

    Args:
        path: directory of the four idx files, gzipped or not; Debian's place when left out.

    Raises:
        DataError: a file is missing, truncated or does not fit the others.
    """
    folder = Path(path) if path is not None else FASHION_MNIST
    parts = []
    for part, prefix in (("training", "train"), ("test", "t10k")):
        images = read_idx(_find(folder, f"{prefix}-images-idx3-ubyte"))
        labels = read_idx(_find(folder, f"{prefix}-labels-idx1-ubyte"))
        if images.ndim != 3 or images.dtype != np.uint8 or labels.ndim != 1:
            raise DataError(
                f"{folder} holds images of {images.dtype}{list(images.shape)} and labels of "
                f"{labels.dtype}{list(labels.shape)}; wanted uint8 [N, H, W] and [N]",
                fix="give the directory of Fashion-MNIST's four files",
                code="D004",
            )
        parts.append((f"fashion-mnist {part}", images[:, None], labels.astype(np.int64)))
    mean, std = channel_statistics(parts[0][1]) if len(parts[0][1]) else ((), ())
    train, test = (
        Dataset(name, images, labels, _FASHION_CLASSES, mean, std) for name, images, labels in parts
    )
    return Splits(train, test)


def _find(folder: Path, name: str) -> Path:
    for candidate in (folder / f"{name}.gz", folder / name):
        if candidate.exists():
            return candidate
    raise DataError(
        f"Fashion-MNIST is not in {folder}: neither {name}.gz nor {name} is there",
        fix="apt-get install dataset-fashion-mnist, or give the directory of its four idx files",
        code="D001",
    )
