"""Examples on the command line: by position, by name, and both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn
from typer.testing import CliRunner

from syno.cli.main import app
from syno.cli.targets import one_example
from syno.errors import TaskError


class Masked(nn.Module):
    def forward(self, x: Tensor, mask: Tensor | None = None, *, scale: Any = 1.0) -> Tensor:
        return (x if mask is None else x * mask) * scale


class Open(nn.Module):
    def forward(self, x: Tensor, /, *rest: Tensor, **named: Tensor) -> Tensor:
        return x


class Gathered(nn.Module):
    def forward(self, x: Tensor, **named: Tensor) -> Tensor:
        return x + named["y"]


def _shapes(example: Any) -> Any:
    if isinstance(example, dict):
        return {name: tuple(value.shape) for name, value in example.items()}
    return [tuple(value.shape) for value in example]


@pytest.mark.parametrize(
    ("model", "texts", "wanted"),
    [
        (Masked(), ["2,3"], [(2, 3)]),
        (Masked(), ["2,3", "2,1"], [(2, 3), (2, 1)]),
        (Masked(), ["2,3", "mask=2,1"], {"x": (2, 3), "mask": (2, 1)}),
        (Masked(), ["mask=2,1", "2,3"], {"x": (2, 3), "mask": (2, 1)}),
        (Masked(), ["2,3", "scale=1"], {"x": (2, 3), "scale": (1,)}),
        (Gathered(), ["2,3", "y=3"], {"x": (2, 3), "y": (3,)}),
        (Open(), ["2,3", "2"], [(2, 3), (2,)]),
    ],
)
def test_inputs_by_position_and_by_name(model: nn.Module, texts: list[str], wanted: Any) -> None:
    assert _shapes(one_example(texts, model)) == wanted


@pytest.mark.parametrize(
    ("model", "texts", "said"),
    [
        (Masked(), ["2,3", "x=2,1"], "multiple values"),
        (Masked(), ["2,3", "2,1", "2,1", "scale=1"], "too many positional"),
        (Masked(), ["2,3", "other=2,1"], "unexpected keyword"),
        (Open(), ["2,3", "y=3"], "by position only"),
    ],
)
def test_inputs_that_no_call_has(model: nn.Module, texts: list[str], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        one_example(texts, model)


def test_a_network_is_compiled_for_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "masked_net.py").write_text(
        "import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def forward(self, x, mask=None):\n"
        "        return torch.relu(x) if mask is None else x * mask\ndef make():\n    return Net()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ["compile", "masked_net:make", "--example", "2,3", "--example", "mask=2,3"]
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0, made.output
    assert "mul" in made.output
