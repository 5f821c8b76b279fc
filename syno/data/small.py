"""Data without a download: scikit-learn's digits, and any file read as text of bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from syno.data.dataset import Dataset, Splits, channel_statistics
from syno.errors import DataError


def digits(path: str | Path | None = None, *, test_share: float = 0.2) -> Splits:
    """scikit-learn's 1,797 handwritten digits, ``[N, 1, 8, 8]`` uint8 in 0 … 16.

    Raises:
        DataError: scikit-learn is not installed, or a path is given (the data come with the package).
    """
    if path is not None:
        raise DataError(
            f"digits come with scikit-learn, not from {path}", fix="leave path out", code="D005"
        )
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError(
            "digits come with scikit-learn, which is not installed",
            fix='pip install "syno[demo]"',
            code="D006",
        ) from None
    loaded = load_digits()
    images = loaded.images.astype(np.uint8)[:, None]
    mean, std = channel_statistics(images)
    names = tuple(str(i) for i in range(10))
    whole = Dataset("digits", images, loaded.target.astype(np.int64), names, mean, std)
    train, test = whole.split(round(len(whole) * test_share), seed=0)
    return Splits(train, test)


def text_bytes(path: str | Path | None, *, context: int = 128, test_share: float = 0.1) -> Splits:
    """A file as byte-level language modelling: inputs ``[N, context]``, targets the next bytes.

    Windows do not overlap; the last ``test_share`` of the file is the test part.

    Raises:
        DataError: no such file, or too short for one window in each part.
    """
    if path is None:
        raise DataError("text needs a path", fix="give any text file", code="D001")
    if context < 1 or not 0 < test_share < 1:
        raise DataError(
            f"context={context}, test_share={test_share} make no windows",
            fix="choose context >= 1 and 0 < test_share < 1",
            code="D005",
        )
    file = Path(path)
    try:
        raw = np.frombuffer(file.read_bytes(), np.uint8)
    except OSError as error:
        raise DataError(
            f"{file} cannot be read: {error.strerror}", fix="give a text file", code="D001"
        ) from None
    windows = (len(raw) - 1) // context
    held_out = max(1, round(windows * test_share))
    if windows < 2:
        raise DataError(
            f"{file} has {len(raw)} bytes: too few for two windows of {context} + 1",
            fix="give a longer file or a smaller context",
            code="D003",
        )
    inputs = raw[: windows * context].reshape(windows, context).astype(np.int64)
    targets = raw[1 : windows * context + 1].reshape(windows, context).astype(np.int64)
    names = tuple(f"byte {i}" for i in range(256))
    cut = windows - held_out
    return Splits(
        Dataset(f"{file.name} training", inputs[:cut], targets[:cut], names),
        Dataset(f"{file.name} test", inputs[cut:], targets[cut:], names),
    )
