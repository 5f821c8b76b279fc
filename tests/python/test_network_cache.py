"""A network compiled again: schedules, checks and joined nodes are remembered, and only where they are ours."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import syno
from syno import _core
from syno.errors import KernelError
from syno.graph import fusing
from syno.kernels import construct, prepack
from syno.kernels.cache import write_entry


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path / "cache"))
    _forget()
    yield tmp_path / "cache"
    _forget()


def _forget() -> None:
    """As in a new process."""
    gc.collect()  # code that is alive is not read again
    prepack._kernels.clear()
    construct._constructed.clear()


def _model() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))
    return nn.Sequential(*layers, nn.Sigmoid()).eval()


def _compiled(x: torch.Tensor) -> Any:
    """Compiled, called, compared; what it consists of."""
    _forget()
    model = _model()
    fast = syno.compile(model, x)
    np.testing.assert_allclose(fast(x), model(x).detach(), rtol=1e-4, atol=1e-5)
    return [stage.nodes for stage in fast.network.stages], [
        stage.kernel.verification for stage in fast.network.stages if stage.kernel
    ]


def test_neither_checks_nor_joining_are_repeated(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(1, 3, 9, 9)
    first = _compiled(x)
    assert {path.suffix for path in cache.iterdir()} == {
        ".kernel",
        ".schedule",
        ".verified",
        ".joined",
    }

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("asked again")

    monkeypatch.setattr(fusing.PredictedCost, "__call__", never)
    monkeypatch.setattr(_core, "verify_prepacked", never)
    assert _compiled(x) == first


@pytest.mark.parametrize("content", ["", '{"passed": 1}'])
def test_damaged_checks_are_made_again(cache: Path, content: str) -> None:
    x = torch.randn(1, 3, 9, 9)
    first = _compiled(x)
    for path in cache.glob("*.verified"):
        path.write_text(content)
    assert _compiled(x) == first
    for path in cache.glob("*.verified"):
        write_entry(path, content.encode())  # ours, but not what it says
    assert _compiled(x) == first


_FOREIGN: list[Any] = [
    "{",
    "[1]",
    '[["a"]]',
    '[["no_such_node", "conv2d", 1.0, 0.5]]',
    '[["conv2d", "conv2d", 1.0, 0.5]]',
    '[["conv2d", "y", "1", null]]',
    '[["conv2d", "y", NaN, 0.5]]',
    '{"conv2d": 1}',
]


@pytest.mark.parametrize("content", _FOREIGN)
def test_joined_nodes_of_another_network_are_decided_anew(cache: Path, content: str) -> None:
    x = torch.randn(1, 3, 9, 9)
    first = _compiled(x)
    (path,) = cache.glob("*.joined")
    kept = path.read_bytes()
    path.write_text(content)
    assert _compiled(x) == first
    assert path.read_bytes() == kept, "written again"
    write_entry(path, content.encode())
    assert _compiled(x) == first


def test_a_wrong_kernel_is_not_remembered(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1, 3, 9, 9)

    class Wrong:
        passed, max_rel_err, limit, points, detail = False, 0.5, 1e-5, 9, "y[0]"

    # Whether a schedule packs weights, which makes two kernels, is this CPU's matter.
    monkeypatch.setattr(_core, "verify_prepacked", lambda *_: Wrong())
    monkeypatch.setattr(_core.Kernel, "verify", lambda *_: Wrong())
    with pytest.raises(KernelError, match="was discarded"):
        _compiled(x)
    for path in cache.glob("*.verified"):
        assert b'"passed": false' not in path.read_bytes()


def test_another_number_of_threads_is_another_decision(cache: Path) -> None:
    x = torch.randn(1, 3, 9, 9)
    syno.compile(_model(), x)
    syno.compile(_model(), x, threads=2)
    assert len(list(cache.glob("*.joined"))) == 2
