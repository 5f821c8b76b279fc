"""The tasks of the experiment `searched`, as workers make them: this file is imported on its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from syno import data
from syno.data import BatchLoader, Dataset
from syno.models.fashion import fashion_resnet
from syno.models.gpt import gpt
from syno.training.task import Task


def on_canvas(
    images: Tensor,
    generator: torch.Generator,
    *,
    canvas: int,
    place: bool = False,
    least_scale: float = 1.0,
    rotation: float = 0.0,
) -> Tensor:
    """Grey values 0 … 255 ``[N, 1, H, W]`` on black canvases ``[N, 1, canvas, canvas]``, float32.

    Args:
        place: each image lies anywhere within its canvas, else in the middle.
        least_scale: each is made smaller by a factor between this and 1.
        rotation: each is turned by at most so many degrees either way.
    """
    count, _, height, width = images.shape
    scale = least_scale + (1 - least_scale) * torch.rand(count, generator=generator)
    angle = math.radians(rotation) * (2 * torch.rand(count, generator=generator) - 1)
    where = 2 * torch.rand(count, 2, generator=generator) - 1
    if not place:
        where = torch.zeros(count, 2)
    cos, sin = torch.cos(angle), torch.sin(angle)
    # From a place of the canvas to one of the image, each from -1 to 1.
    x, y = canvas / (width * scale), canvas / (height * scale)
    room = (1 - torch.stack([1 / x, 1 / y], 1)).clamp(min=0)
    shift = -where * room
    theta = torch.stack(
        [
            torch.stack([x * cos, x * sin, x * (cos * shift[:, 0] + sin * shift[:, 1])], 1),
            torch.stack([-y * sin, y * cos, y * (cos * shift[:, 1] - sin * shift[:, 0])], 1),
        ],
        1,
    )
    grid = functional.affine_grid(theta, [count, 1, canvas, canvas], align_corners=False)
    return functional.grid_sample(
        images.float(), grid, mode="bilinear", padding_mode="zeros", align_corners=False
    )


def _fixed(part: Dataset, seed: int, move: Callable[..., Tensor]) -> Dataset:
    """Every image on its canvas, once and for all."""
    generator = torch.Generator().manual_seed(seed)
    parts = [
        move(torch.from_numpy(part.inputs[i : i + 1_000]), generator).round().to(torch.uint8)
        for i in range(0, len(part), 1_000)
    ]
    return Dataset(
        part.name, torch.cat(parts).numpy(), part.targets, part.classes, part.mean, part.std
    )


def images(
    *,
    path: str | None = None,
    canvas: int = 40,
    place: bool = False,
    least_scale: float = 1.0,
    rotation: float = 0.0,
    examples: int = 55_000,
    validation_examples: int = 5_000,
    test_examples: int = 10_000,
    widths: tuple[int, ...] = (32, 64, 112),
    blocks: int = 1,
    batch: int = 64,
    epochs: int = 6,
    learning_rate: float = 3e-3,
    device: str = "cpu",
    judged_on: str = "test",
) -> Task:
    """Fashion-MNIST on canvases. Images of training move anew every time, those that judge never.

    With ``judged_on="validation"`` there is no test part: what should not be looked at yet cannot be.
    """
    splits = data.fashion_mnist(path)
    rest, validation = splits.train.split(validation_examples)
    train = rest.subset(examples)
    move = partial(
        on_canvas, canvas=canvas, place=place, least_scale=least_scale, rotation=rotation
    )
    mean, std = train.mean[0], train.std[0]
    raw = Dataset(train.name, train.inputs, train.targets, train.classes)

    def moved(batch: Tensor, generator: torch.Generator) -> Tensor:
        return (move(batch, generator) - mean) / std

    test = splits.test.subset(test_examples)
    return Task(
        name="fashion-mnist on a canvas",
        model=partial(fashion_resnet, widths=tuple(widths), blocks=blocks),
        train=lambda seed: BatchLoader(
            raw, batch=min(batch, len(raw)), seed=seed, drop_last=True, augment=moved
        ),
        validation=BatchLoader(_fixed(validation, 1, move), batch=250, shuffle=False),
        test=None
        if judged_on == "validation"
        else BatchLoader(_fixed(test, 2, move), batch=250, shuffle=False),
        optimizer="adamw",
        learning_rate=learning_rate,
        weight_decay=0.01,
        epochs=epochs,
        evaluations=2,
        curve_batches=4,
        device=device,
    )


def language(
    *,
    corpus: str,
    context: int = 128,
    width: int = 256,
    heads: int = 4,
    layers: int = 4,
    batch: int = 16,
    steps: int = 2_000,
    learning_rate: float = 1e-3,
    validation_windows: int = 1_000,
    test_windows: int = 2_000,
    device: str = "cpu",
    judged_on: str = "test",
) -> Task:
    """A byte-level GPT on a corpus that :mod:`paper.corpus` wrote, judged by its loss, nats a byte."""

    def part(name: str, most: int | None) -> Dataset:
        raw = np.fromfile(Path(corpus) / f"{name}.bytes", np.uint8)
        windows = (len(raw) - 1) // context
        chosen = np.arange(windows)
        if most is not None and windows > most:
            chosen = np.linspace(0, windows - 1, most).astype(int)  # from all of the part
        whole = raw[: windows * context].reshape(windows, context)
        following = raw[1 : windows * context + 1].reshape(windows, context)
        names = tuple(f"byte {i}" for i in range(256))
        return Dataset(
            name, whole[chosen].astype(np.int64), following[chosen].astype(np.int64), names
        )

    train = part("train", None)

    def judging(name: str, most: int) -> Any:
        return BatchLoader(part(name, most), batch=50, shuffle=False)

    return Task(
        name="Debian's texts",
        model=partial(gpt, context=context, width=width, heads=heads, layers=layers),
        train=lambda seed: BatchLoader(train, batch=batch, seed=seed, drop_last=True),
        validation=judging("validation", validation_windows),
        test=None if judged_on == "validation" else judging("test", test_windows),
        optimizer="adamw",
        learning_rate=learning_rate,
        weight_decay=0.01,
        gradient_clip=1.0,
        metric="loss",
        class_dimension=-1,
        steps=steps,
        evaluations=2,
        curve_batches=4,
        device=device,
    )
