"""The networks have the shapes, parameters and structure their papers give them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from syno import models  # noqa: E402
from syno.errors import TaskError, UnknownName  # noqa: E402
from syno.training.train import torch_threads  # noqa: E402

# Parameters as torchvision documents them for the same definitions.
IMAGENET = {
    "densenet121": 7_978_856,
    "efficientnet_v2_s": 21_458_488,
    "mobilenet_v2": 3_504_872,
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """So small, more threads only wait for each other."""
    with torch_threads(1):
        yield


@pytest.mark.parametrize(("name", "params"), sorted(IMAGENET.items()))
def test_imagenet_networks_have_the_published_parameters(name: str, params: int) -> None:
    model = models.make(name).eval()
    assert sum(p.numel() for p in model.parameters()) == params
    with torch.inference_mode():
        assert model(torch.randn(1, 3, 32, 32)).shape == (1, 1000)


@pytest.mark.parametrize(("cardinality", "millions"), [(8, 34.4), (16, 68.1)])
def test_resnext29_has_the_parameters_of_its_papers_table(
    cardinality: int, millions: float
) -> None:
    with torch.device("meta"):
        model = models.make("resnext29", cardinality=cardinality, group_width=64)
    params = sum(p.numel() for p in model.parameters())
    assert abs(params / 1e6 - millions) < 0.1  # the table cuts digits off rather than rounding


def test_resnext29_halves_its_images_twice() -> None:
    model = models.make("resnext29", group_width=8).eval()
    seen = []
    for block in model.stages:
        block.register_forward_hook(lambda module, args, out: seen.append(tuple(out.shape[1:])))
    assert model(torch.randn(1, 3, 32, 32)).shape == (1, 10)
    assert seen == [(256, 32, 32)] * 3 + [(512, 16, 16)] * 3 + [(1024, 8, 8)] * 3
    with pytest.raises(TaskError, match="cardinality=0"):
        models.make("resnext29", cardinality=0)


def test_the_small_image_resnet_keeps_its_resolution_in_the_first_stage() -> None:
    model = models.make("cifar_resnet18", classes=7, width=8).eval()
    seen = []
    model.layer1.register_forward_hook(lambda module, args, out: seen.append(out.shape))
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 7)
    assert seen == [(2, 8, 32, 32)]


@pytest.mark.parametrize("widths", [(4,), (4, 8), (8, 16, 32)])
@pytest.mark.parametrize("blocks", [1, 2])
def test_the_fashion_network_has_two_convolutions_a_block(
    widths: tuple[int, ...], blocks: int
) -> None:
    model = models.make("fashion_resnet", widths=widths, blocks=blocks)
    equal = [
        m
        for m in model.modules()
        if isinstance(m, torch.nn.Conv2d) and m.in_channels == m.out_channels and m.stride == (1, 1)
    ]
    strided = [m for m in model.modules() if getattr(m, "stride", None) == (2, 2)]
    assert len(equal) == 2 * blocks * len(widths)
    assert len(strided) == min(2, len(widths))
    seen = []
    model.stages.register_forward_hook(lambda module, args, out: seen.append(out.shape[-2:]))
    assert model(torch.randn(3, 1, 28, 28)).shape == (3, 10)
    assert seen == [(14, 14) if len(widths) == 1 else (7, 7)]


def test_gpt_looks_only_backwards() -> None:
    torch.manual_seed(0)
    model = models.make("gpt", vocabulary=20, context=12, width=16, heads=4, layers=2).eval()
    tokens = torch.randint(0, 20, (2, 12))
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 20
    with torch.inference_mode():
        before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert not torch.allclose(before[:, 7:], after[:, 7:])
    with pytest.raises(TaskError, match="context is 12"):
        model(torch.zeros(1, 13, dtype=torch.long))


@pytest.mark.parametrize("name", models.names())
def test_every_model_gets_a_gradient_everywhere(name: str) -> None:
    options = {
        "cifar_resnet18": {"width": 8},
        "gpt": {"context": 8, "width": 16},
        "resnext29": {"group_width": 8},
    }.get(name, {})
    torch.manual_seed(0)
    model = models.make(name, **options)
    channels = {"fashion_resnet": 1}.get(name, 3)
    size = {"fashion_resnet": 28}.get(name, 32)
    inputs = (
        torch.randint(0, 256, (2, 8)) if name == "gpt" else torch.randn(2, channels, size, size)
    )
    model(inputs).square().mean().backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None]
    assert not missing


def test_unknown_models_and_options_are_named() -> None:
    with pytest.raises(UnknownName, match="did you mean 'resnet18'"):
        models.make("resnet17")
    with pytest.raises(TaskError, match="colour"):
        models.make("resnet18", colour="red")
    with pytest.raises(TaskError, match="for 3 stages"):
        models.make("fashion_resnet", strides=(2, 2))
    with pytest.raises(TaskError, match="widths="):
        models.make("fashion_resnet", widths=())
    with pytest.raises(TaskError, match="3 heads do not divide"):
        models.make("gpt", width=16, heads=3)


def test_models_can_be_registered() -> None:
    models.register("one-layer", lambda: torch.nn.Linear(2, 1))
    try:
        assert "one-layer" in models.names()
        assert isinstance(models.make("one-layer"), torch.nn.Linear)
    finally:
        models._FACTORIES.pop("one-layer")


def test_importing_the_packages_does_not_import_torch() -> None:
    code = (
        "import sys, syno.models, syno.data, syno.training.tasks, syno.training.train, syno.session, syno.errors;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
