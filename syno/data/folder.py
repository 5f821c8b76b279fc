"""Image folders: one sub-directory a class, as most image sets are kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from syno.data.dataset import Dataset, Splits, channel_statistics
from syno.errors import DataError

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"})
_WHAT_TO_GIVE = (
    "give a directory with one sub-directory of images per class, or train/ and test/ of such"
)


def image_folder(
    path: str | Path | None, *, size: int = 64, channels: int = 3, test_share: float = 0.2
) -> Splits:
    """Images under ``path/<class>/*`` or ``path/{train,test|val}/<class>/*``, ``[N, C, size, size]`` uint8.

    Each image is scaled so that its shorter side is ``size`` and cropped to the centre. Without a test
    part every k-th file of each class, in order of names, is held out, ``test_share`` of them.

    Raises:
        DataError: no such directory, no classes, no images, an image that cannot be read, or no Pillow.
    """
    if path is None:
        raise DataError("an image folder needs a path", fix=_WHAT_TO_GIVE, code="D001")
    if size < 1 or channels not in (1, 3) or not 0 < test_share < 1:
        raise DataError(
            f"size={size}, channels={channels}, test_share={test_share} make no images",
            fix="choose size >= 1, channels 1 or 3, and 0 < test_share < 1",
            code="D005",
        )
    root = Path(path)
    if not root.is_dir():
        raise DataError(f"{root} is no directory", fix=_WHAT_TO_GIVE, code="D001")
    if (root / "train").is_dir():
        test_root = next((root / n for n in ("test", "val", "valid") if (root / n).is_dir()), None)
        if test_root is None:
            raise DataError(
                f"{root} has train/ but no test/ or val/", fix=_WHAT_TO_GIVE, code="D001"
            )
        classes, train_files = _list(root / "train")
        test_classes, test_files = _list(test_root)
        if test_classes != classes:
            odd = sorted(set(classes) ^ set(test_classes))
            raise DataError(
                f"{root / 'train'} and {test_root} differ in their classes: {', '.join(odd[:5])}",
                fix="give both the same sub-directories",
                code="D004",
            )
    else:
        classes, files = _list(root)
        period = max(2, round(1 / test_share))
        train_files, test_files = [], []
        position = dict.fromkeys(range(len(classes)), 0)
        for file, label in files:
            held_out = position[label] % period == period - 1
            (test_files if held_out else train_files).append((file, label))
            position[label] += 1
    train_images, train_labels = _load(train_files, size, channels)
    test_images, test_labels = _load(test_files, size, channels)
    if not len(train_images) or not len(test_images):
        raise DataError(
            f"{root} has {len(train_images)} training and {len(test_images)} test images",
            fix="every part needs at least one",
            code="D003",
        )
    mean, std = channel_statistics(train_images)
    return Splits(
        Dataset(f"{root.name} training", train_images, train_labels, classes, mean, std),
        Dataset(f"{root.name} test", test_images, test_labels, classes, mean, std),
    )


def _list(root: Path) -> tuple[tuple[str, ...], list[tuple[Path, int]]]:
    classes = tuple(sorted(p.name for p in root.iterdir() if p.is_dir()))
    if not classes:
        raise DataError(f"{root} has no sub-directories", fix=_WHAT_TO_GIVE, code="D003")
    files = []
    for label, name in enumerate(classes):
        for file in sorted((root / name).iterdir()):
            if file.suffix.lower() in SUFFIXES and file.is_file():
                files.append((file, label))
    if not files:
        raise DataError(f"{root} holds no images ({', '.join(sorted(SUFFIXES))})", code="D003")
    return classes, files


def _load(
    files: list[tuple[Path, int]], size: int, channels: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    try:
        from PIL import Image
    except ImportError:
        raise DataError(
            "reading image folders needs Pillow", fix='pip install "syno[images]"', code="D006"
        ) from None
    images = np.empty((len(files), channels, size, size), np.uint8)
    for i, (file, _) in enumerate(files):
        try:
            with Image.open(file) as opened:
                picture = opened.convert("RGB" if channels == 3 else "L")
        except Exception as error:  # Pillow raises many types for a broken file
            raise DataError(
                f"{file} is no readable image: {error}", fix="remove or replace it", code="D002"
            ) from None
        scale = size / min(picture.size)
        width, height = (max(size, round(extent * scale)) for extent in picture.size)
        left, top = (width - size) // 2, (height - size) // 2
        picture = picture.resize((width, height)).crop((left, top, left + size, top + size))
        pixels = np.asarray(picture, np.uint8)
        images[i] = pixels.transpose(2, 0, 1) if channels == 3 else pixels[None]
    return images, np.array([label for _, label in files], np.int64)
