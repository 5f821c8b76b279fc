"""Pictures of compiled networks: well-formed, with every step, and lines that do not run into each other."""

from __future__ import annotations

import random
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import syno
from syno.cli.main import app
from syno.errors import FormatError
from syno.graph.drawing import drawn, edges_of
from syno.graph.stages import Stage

SVG = "{http://www.w3.org/2000/svg}"


class Forked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.first(x))
        return y + torch.relu(self.second(y)), y.flatten(1).topk(2).values


def _random(rng: random.Random) -> tuple[list[Stage], list[str], list[str]]:
    """Steps that read what came before, by any names."""
    known = [f"in<{i}>&\"'" for i in range(rng.randint(1, 3))]
    inputs, stages = list(known), []
    for step in range(rng.randint(1, 25)):
        reads = tuple(rng.choice([*known, "weight"]) for _ in range(rng.randint(0, 4)))
        makes = tuple(f"t{step}<{i}>" for i in range(rng.randint(1, 2)))
        kind = rng.choice(["kernel", "view", "engine", "host"])
        time = rng.choice([0.0, rng.random() * 1e6])
        stages.append(
            Stage(f"step<{step}>&", kind, reads, makes, (), "a < b && c", predicted_us=time)
        )
        known += makes
    return stages, inputs, rng.sample(known, min(len(known), 3))


@pytest.mark.parametrize("seed", range(40))
def test_random_networks_are_drawn(seed: int) -> None:
    stages, inputs, outputs = _random(random.Random(seed))
    edges = edges_of(stages, inputs, outputs)
    assert all(edge.source < edge.target for edge in edges)
    for one in edges:
        assert (one.lane == 0) == (one.target == one.source + 1)
        for other in edges:
            if one is not other and one.lane and one.lane == other.lane:
                assert one.target <= other.source or other.target <= one.source
    made = dict.fromkeys(inputs, 0) | {
        name: row for row, stage in enumerate(stages, 1) for name in stage.outputs
    }
    wanted = {
        (made[name], row)
        for row, stage in enumerate(stages, 1)
        for name in stage.inputs
        if name in made
    } | {(made[name], len(stages) + 1) for name in outputs}
    assert {(edge.source, edge.target) for edge in edges} == wanted
    root = ElementTree.fromstring(drawn(stages, inputs, outputs, name="a<b", shapes={}))
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert [text for text in texts if text.startswith("step")] == [stage.name for stage in stages]
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "bar"]
    assert len(bars) == sum(stage.predicted_us > 0 for stage in stages)


def test_compiled_networks_are_drawn(tmp_path: Path) -> None:
    fast = syno.compile(Forked().eval(), torch.randn(1, 3, 8, 8))
    text = fast.to_svg(tmp_path / "new" / "graph.svg")
    assert (tmp_path / "new" / "graph.svg").read_text() == text
    root = ElementTree.fromstring(text)
    kinds = [rect.get("class") for rect in root.iter(f"{SVG}rect")]
    steps = fast.network.stages
    assert kinds.count("host") == len(fast.fallbacks) == 1
    assert kinds.count("kernel") == sum(stage.kind == "kernel" for stage in steps)
    assert "predicted" in text and "float32[1, 3, 8, 8]" in text
    profile = fast.profile(turns=3)
    assert "measured" in profile.to_svg()
    with pytest.raises(FormatError):
        fast.to_svg("/dev/null/graph.svg")


def test_the_command_line_draws(tmp_path: Path) -> None:
    model = tmp_path / "net.py"
    model.write_text("from torch import nn\ndef make():\n    return nn.Linear(4, 3)\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        words = ["compile", "net:make", "--example", "2,4", "--profile", "--svg"]
        made = CliRunner().invoke(app, [*words, str(tmp_path / "net.svg")])
        assert made.exit_code == 0, made.output
        assert "measured" in (tmp_path / "net.svg").read_text()
        wrong = CliRunner().invoke(app, [*words, str(tmp_path / "net.png")])
        assert wrong.exit_code == 2 and ".svg" in wrong.output
