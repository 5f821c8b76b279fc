"""Batches of a data set as tensors: seeded, in memory, without worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from syno.data.dataset import Dataset
from syno.errors import DataError, unknown_name

if TYPE_CHECKING:
    import torch

    Augment = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


class BatchLoader:
    """Iterates over batches ``(inputs, targets)`` of a :class:`Dataset`; an epoch an iteration.

    Args:
        dataset: the examples; images are kept as uint8 and normalised batch by batch.
        batch: examples a batch; the last may be smaller unless ``drop_last``.
        shuffle: another order every epoch, given by ``seed`` and the epoch's number alone.
        augment: a name of :data:`AUGMENTATIONS`, or a function of a normalised batch and a generator.
        device: where batches go, as torch writes it.
        channels_last: memory format of image batches; faster for PyTorch's convolutions on CPUs.

    Raises:
        DataError: batch < 1, or no batch would be left.
        UnknownName: no such augmentation.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        batch: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        augment: str | Augment | None = None,
        device: str = "cpu",
        channels_last: bool = False,
    ) -> None:
        import torch

        if batch < 1:
            raise DataError(f"batch={batch}", fix="choose at least 1", code="D005")
        if drop_last and len(dataset) < batch:
            raise DataError(
                f"{dataset.name} has {len(dataset)} examples: no full batch of {batch}",
                fix=f"choose batch <= {len(dataset)}, or drop_last=False",
                code="D003",
            )
        self.dataset = dataset
        self.batch = batch
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.device = torch.device(device)
        self.epoch = 0
        self._augment = _augmentation(augment)
        self._images = len(dataset.shape) == 3
        self._format = (
            torch.channels_last if channels_last and self._images else torch.contiguous_format
        )
        self._inputs = torch.from_numpy(dataset.inputs).to(self.device)
        self._targets = torch.from_numpy(dataset.targets).to(self.device)
        if dataset.mean:
            shape = (1, -1) + (1,) * (self._inputs.ndim - 2)
            self._mean = torch.tensor(dataset.mean).reshape(shape).to(self.device)
            self._scale = (1.0 / torch.tensor(dataset.std)).reshape(shape).to(self.device)

    def __len__(self) -> int:
        """Batches an epoch."""
        full, rest = divmod(len(self.dataset), self.batch)
        return full + (1 if rest and not self.drop_last else 0)

    def set_epoch(self, epoch: int) -> None:
        """The number of the epoch that begins next; without, each iteration is one more."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        import torch

        generator = torch.Generator().manual_seed(_stream(self.seed, self.epoch))
        self.epoch += 1
        count = len(self.dataset)
        order = torch.randperm(count, generator=generator) if self.shuffle else None
        for index in range(len(self)):
            start, stop = index * self.batch, min((index + 1) * self.batch, count)
            if order is None:
                inputs, targets = self._inputs[start:stop], self._targets[start:stop]
            else:
                chosen = order[start:stop].to(self.device)
                inputs, targets = self._inputs[chosen], self._targets[chosen]
            if self.dataset.mean:
                inputs = (inputs.float() - self._mean) * self._scale
            if self._augment is not None:
                inputs = self._augment(inputs, generator)
            yield inputs.contiguous(memory_format=self._format), targets


def _stream(seed: int, epoch: int) -> int:
    """A seed of its own for each epoch; distinct for all seeds below 2**31."""
    return (seed * 1_000_003 + epoch * 7_919 + 1) % (1 << 63)


def flip(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Mirrors each image left to right with probability 1/2."""
    import torch

    coin = torch.rand(len(images), generator=generator) < 0.5
    return torch.where(coin.to(images.device)[:, None, None, None], images.flip(-1), images)


def shift(images: torch.Tensor, generator: torch.Generator, *, by: int = 2) -> torch.Tensor:
    """Moves each batch's images by up to ``by`` pixels in both directions, filling with zeros."""
    import torch
    import torch.nn.functional as functional

    up, left = (int(v) for v in torch.randint(0, 2 * by + 1, (2,), generator=generator))
    height, width = images.shape[-2:]
    return functional.pad(images, (by, by, by, by))[..., up : up + height, left : left + width]


def flip_and_shift(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """:func:`flip`, then :func:`shift`."""
    return shift(flip(images, generator), generator)


AUGMENTATIONS: dict[str, Augment] = {
    "flip": flip,
    "shift": shift,
    "flip+shift": flip_and_shift,
}


def _augmentation(augment: str | Augment | None) -> Augment | None:
    if not isinstance(augment, str):
        return augment
    try:
        return AUGMENTATIONS[augment]
    except KeyError:
        raise unknown_name("augmentation", augment, AUGMENTATIONS) from None
