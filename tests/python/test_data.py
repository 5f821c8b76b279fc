"""Readers give exactly what the files hold, and a sentence when the files are not what they should be."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syno import data
from syno.data.idx import FASHION_MNIST
from syno.errors import DataError, UnknownName

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array: np.ndarray[Any, Any]) -> bytes:
    kind = array.dtype.str[1:]
    head = bytes([0, 0, CODES[kind], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(CODES)),
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    zipped=st.booleans(),
    seed=st.integers(0, 99),
)
def test_idx_round_trips(
    tmp_path_factory: pytest.TempPathFactory, kind: str, shape: list[int], zipped: bool, seed: int
) -> None:
    array = (
        np.random.default_rng(seed).integers(-100 if kind != "u1" else 0, 100, shape).astype(kind)
    )
    path = tmp_path_factory.mktemp("idx") / "file"
    raw = idx_bytes(array)
    path.write_bytes(gzip.compress(raw) if zipped else raw)
    read = data.read_idx(path)
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


def idx_folder(folder: Path, count: int = 20, labels: int | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for prefix in ("train", "t10k"):
        images = rng.integers(0, 256, (count, 6, 6), dtype=np.uint8)
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        classes = rng.integers(0, 10, labels if labels is not None else count, dtype=np.uint8)
        (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(classes)))
    return folder


def test_fashion_mnist_reads_plain_and_zipped_files(tmp_path: Path) -> None:
    train, test = data.fashion_mnist(idx_folder(tmp_path / "f"))
    assert train.inputs.shape == (20, 1, 6, 6)
    assert train.targets.dtype == np.int64
    assert len(test) == 20
    assert train.mean == test.mean  # the test part is normalised by the training part


@pytest.mark.skipif(not FASHION_MNIST.exists(), reason="dataset-fashion-mnist is not installed")
def test_the_real_fashion_mnist_has_its_sizes_and_classes() -> None:
    train, test = data.open_dataset("fashion-mnist")
    assert train.inputs.shape == (60_000, 1, 28, 28)
    assert test.inputs.shape == (10_000, 1, 28, 28)
    assert np.bincount(train.targets).tolist() == [6_000] * 10
    assert train.mean[0] / 255 == pytest.approx(0.286, abs=0.003)


def break_missing(folder: Path) -> None:
    (folder / "train-images-idx3-ubyte").unlink()


def break_truncated(folder: Path) -> None:
    file = folder / "t10k-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:-5])


def break_zip(folder: Path) -> None:
    file = folder / "train-labels-idx1-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-9])


def break_kind(folder: Path) -> None:
    (folder / "train-images-idx3-ubyte").write_bytes(b"not an idx file")


def break_header(folder: Path) -> None:
    (folder / "train-images-idx3-ubyte").write_bytes(
        b"\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\0\0"
    )


def break_huge(folder: Path) -> None:
    head = b"\0\0\x08\x03" + b"\xff" * 12
    (folder / "train-images-idx3-ubyte").write_bytes(head)


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (break_missing, "D001", "apt-get install dataset-fashion-mnist"),
        (break_truncated, "D002", "t10k-images"),
        (break_zip, "D002", "fetch it again"),
        (break_kind, "D002", "not an idx file"),
        (break_header, "D002", "ends inside its header"),
        (break_huge, "D002", "should hold 4294967295x"),
    ],
)
def test_damaged_idx_files_are_named(tmp_path: Path, damage: Any, code: str, words: str) -> None:
    folder = idx_folder(tmp_path / "f")
    damage(folder)
    with pytest.raises(DataError, match=words) as caught:
        data.fashion_mnist(folder)
    assert caught.value.code == code


def test_labels_that_do_not_fit_and_empty_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="20 inputs but 19 targets"):
        data.fashion_mnist(idx_folder(tmp_path / "odd", labels=19))
    with pytest.raises(DataError, match="no examples"):
        data.fashion_mnist(idx_folder(tmp_path / "none", count=0))


def cifar_folder(root: Path, kind: str = "10") -> Path:
    folder = root / ("cifar-10-batches-py" if kind == "10" else "cifar-100-python")
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)

    def write(name: str, values: dict[bytes, Any]) -> None:
        (folder / name).write_bytes(pickle.dumps(values, protocol=2))

    def part(labels: bytes) -> dict[bytes, Any]:
        images = rng.integers(0, 256, (4, 3072), dtype=np.uint8)
        return {b"data": images, labels: [0, 1, 2, 1], b"batch_label": b"one"}

    if kind == "10":
        for i in range(1, 6):
            write(f"data_batch_{i}", part(b"labels"))
        write("test_batch", part(b"labels"))
        write("batches.meta", {b"label_names": [b"plane", b"car", b"bird"]})
    else:
        write("train", part(b"fine_labels"))
        write("test", part(b"fine_labels"))
        write("meta", {b"fine_label_names": [b"a", b"b", b"c"]})
    return root


@pytest.mark.parametrize(("kind", "count"), [("10", 20), ("100", 4)])
def test_cifar_folders_are_read(tmp_path: Path, kind: str, count: int) -> None:
    train, test = data.open_dataset(f"cifar{kind}", cifar_folder(tmp_path, kind))
    assert train.inputs.shape == (count, 3, 32, 32)
    assert test.targets.tolist() == [0, 1, 2, 1]
    assert len(train.classes) == 3
    assert len(train.mean) == 3


class Harm:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.marker),))


def test_a_cifar_file_cannot_run_code(tmp_path: Path) -> None:
    root = cifar_folder(tmp_path / "c")
    marker = tmp_path / "harm"
    file = root / "cifar-10-batches-py" / "data_batch_3"
    file.write_bytes(pickle.dumps({b"data": Harm(marker), b"labels": []}, protocol=2))
    with pytest.raises(DataError, match=r"names posix\.mkdir"):
        data.cifar10(root)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "corrupt"),
        (pickle.dumps([1, 2], protocol=2), "not a dictionary"),
        (pickle.dumps({b"labels": [1]}, protocol=2), "no images"),
        (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8)}, protocol=2), "no list of labels"),
    ],
)
def test_damaged_cifar_files_are_named(tmp_path: Path, content: bytes, words: str) -> None:
    root = cifar_folder(tmp_path)
    (root / "cifar-10-batches-py" / "data_batch_1").write_bytes(content)
    with pytest.raises(DataError, match=words):
        data.cifar10(root)
    with pytest.raises(DataError, match="give path="):
        data.cifar100()
    with pytest.raises(DataError, match="cannot be read"):
        data.cifar100(tmp_path)


def picture_folder(root: Path, per_class: int = 5) -> Path:
    image = pytest.importorskip("PIL.Image")
    for label, name in enumerate(("cat", "dog")):
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            pixels = np.full((20 + i, 30, 3), 40 * label + i, np.uint8)
            image.fromarray(pixels).save(root / name / f"{i}.png")
    return root


def test_image_folders_are_scaled_cropped_and_split(tmp_path: Path) -> None:
    train, test = data.image_folder(picture_folder(tmp_path / "p"), size=16)
    assert train.inputs.shape == (8, 3, 16, 16)
    assert test.targets.tolist() == [0, 1]
    assert train.classes == ("cat", "dog")
    assert set(np.unique(train.inputs[train.targets == 1])) == {40, 41, 42, 43}


def test_image_folders_that_hold_nothing_usable_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no directory"):
        data.image_folder(tmp_path / "none")
    with pytest.raises(DataError, match="no sub-directories"):
        data.image_folder(tmp_path)
    (tmp_path / "class").mkdir()
    with pytest.raises(DataError, match="no images"):
        data.image_folder(tmp_path)
    pytest.importorskip("PIL")
    (tmp_path / "class" / "a.png").write_bytes(b"no picture")
    (tmp_path / "class" / "b.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match="no readable image"):
        data.image_folder(tmp_path)


def test_text_targets_are_the_next_bytes(tmp_path: Path) -> None:
    file = tmp_path / "t.txt"
    file.write_bytes(bytes(range(100)))
    train, test = data.text_bytes(file, context=9)
    assert train.inputs[1].tolist() == list(range(9, 18))
    assert train.targets[1].tolist() == list(range(10, 19))
    assert int(test.targets.max()) == 99
    file.write_bytes(b"short")
    with pytest.raises(DataError, match="too few"):
        data.text_bytes(file, context=9)
    with pytest.raises(DataError, match="cannot be read"):
        data.text_bytes(tmp_path / "none")


def test_unknown_data_sets_and_augmentations_list_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="did you mean 'fashion-mnist'"):
        data.open_dataset("fashion-mnst")
    pytest.importorskip("torch")
    with pytest.raises(UnknownName, match="flip"):
        data.BatchLoader(tiny(), batch=2, augment="flop")


def tiny(count: int = 10) -> data.Dataset:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (count, 1, 5, 5), dtype=np.uint8)
    return data.Dataset("tiny", images, np.arange(count) % 3, ("a", "b", "c"), (100.0,), (50.0,))


@settings(max_examples=30, deadline=None)
@given(
    count=st.integers(1, 23),
    batch=st.integers(1, 25),
    seed=st.integers(0, 5),
    drop_last=st.booleans(),
)
def test_an_epoch_has_every_example_once(
    count: int, batch: int, seed: int, drop_last: bool
) -> None:
    torch = pytest.importorskip("torch")
    images = np.arange(count, dtype=np.uint8)[:, None, None, None]
    dataset = data.Dataset("numbers", images, np.arange(count), ())
    if drop_last and count < batch:
        with pytest.raises(DataError, match="no full batch"):
            data.BatchLoader(dataset, batch=batch, drop_last=True)
        return
    loader = data.BatchLoader(dataset, batch=batch, seed=seed, drop_last=drop_last)
    again = data.BatchLoader(dataset, batch=batch, seed=seed, drop_last=drop_last)
    epochs = []
    for _ in range(2):
        batches = list(loader)
        assert len(batches) == len(loader)
        for inputs, targets in batches:
            assert torch.equal(inputs.flatten().long(), targets)
        epochs.append(torch.cat([targets for _, targets in batches]).tolist())
        assert epochs[-1] == torch.cat([targets for _, targets in again]).tolist()
    for epoch in epochs:
        assert len(set(epoch)) == len(epoch) == (count // batch * batch if drop_last else count)
    if count > 12 and not drop_last:
        assert epochs[0] != epochs[1]


def test_batches_are_normalised_in_the_wanted_format() -> None:
    torch = pytest.importorskip("torch")
    dataset = tiny()
    loader = data.BatchLoader(dataset, batch=10, shuffle=False, channels_last=True)
    inputs, _ = next(iter(loader))
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(inputs.numpy(), (dataset.inputs - 100.0) / 50.0, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(data.AUGMENTATIONS))
def test_augmentations_keep_shape_and_follow_the_seed(name: str) -> None:
    torch = pytest.importorskip("torch")

    def first(seed: int) -> Any:
        return next(iter(data.BatchLoader(tiny(), batch=10, seed=seed, augment=name)))[0]

    assert first(1).shape == (10, 1, 5, 5)
    assert torch.equal(first(1), first(1))
    plain = next(iter(data.BatchLoader(tiny(), batch=10, seed=1)))[0]
    assert any(not torch.equal(first(seed), plain) for seed in range(1, 4))


def test_subsets_nest_and_splits_are_disjoint() -> None:
    dataset = data.Dataset("n", np.arange(50)[:, None], np.arange(50), ())
    assert dataset.subset(20).targets[:10].tolist() == dataset.subset(10).targets.tolist()
    train, validation = dataset.split(15)
    assert sorted([*train.targets, *validation.targets]) == list(range(50))
    with pytest.raises(DataError, match="cannot be held out"):
        dataset.split(50)
    with pytest.raises(DataError, match="0 examples"):
        dataset.subset(0)


def test_digits_come_with_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    train, test = data.open_dataset("digits")
    assert len(train) + len(test) == 1797
    assert train.inputs.shape[1:] == (1, 8, 8)
    with pytest.raises(DataError, match="leave path out"):
        data.digits("somewhere")
