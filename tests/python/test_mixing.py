"""A network that mixes examples or tokens which the original keeps apart is found in the whole model, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import syno  # noqa: E402
from syno.searching.mixing import compare_mixing  # noqa: E402
from syno.session.verdict import MIXES  # noqa: E402
from syno.torch import replace  # noqa: E402

#: For a linear layer of 8 features at 6 tokens of 2 examples.
EACH_TOKEN = "y[n,t,o] = sum[c] x[n,t,c] * k[o,c]"


class Block(nn.Module):
    """Attention and a branch that begins with zero, as in many language models."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.up = nn.Linear(8, 8)
        self.down = nn.Linear(8, 8)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.down.bias)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return x + self.down(torch.relu(self.up(x)))


class Language(nn.Module):
    def __init__(self, causal: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList([Block(causal), Block(causal)])
        self.head = nn.Linear(8, 11)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Tokenwise(nn.Module):
    """No token sees another; not even an earlier one."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.tanh(self.up(x)))


class Same(nn.Module):
    """In the place of a layer, a function that mixes what it is told to."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        if self.how == "next":
            return y + 0.1 * nn.functional.pad(y[:, 1:], (0, 0, 0, 1))
        if self.how == "earlier":
            return y + 0.1 * nn.functional.pad(y[:, :-1], (0, 0, 1, 0))
        if self.how == "examples":
            return y + 0.1 * y.mean(0, keepdim=True)
        return y


def leaky(model: nn.Module, how: str, name: str = "blocks.0.up") -> nn.Module:
    import copy

    made = copy.deepcopy(model)
    parent, _, child = name.rpartition(".")
    setattr(made.get_submodule(parent), child, Same(how))
    return made


TOKENS = torch.arange(12).view(2, 6) % 11


@pytest.mark.parametrize(
    ("how", "leak"),
    [("next", "later tokens"), ("examples", "examples of a batch"), ("earlier", ""), ("none", "")],
)
def test_a_causal_model_stays_causal_though_its_branch_begins_with_zero(
    how: str, leak: str
) -> None:
    model = Language()
    said = compare_mixing(model, leaky(model, how), TOKENS, keep_tokens=True)
    # An earlier token is one that attention sees as well.
    assert said.startswith(MIXES) == bool(leak), said
    assert leak in said
    with torch.no_grad():  # with the weights it has, nothing of it shows
        torch.testing.assert_close(leaky(model, how)(TOKENS), model(TOKENS), rtol=0, atol=0)


def test_long_texts_are_asked_by_their_beginning_where_that_is_taken() -> None:
    class Watched(Language):
        lengths: tuple[int, ...] = ()
        least = 0

        def forward(self, tokens: Any) -> Any:
            if tokens.shape[1] < self.least:
                raise ValueError("the positions want all 96 tokens")
            type(self).lengths += (tokens.shape[1],)
            return super().forward(tokens)

    long = torch.arange(192).view(2, 96) % 11
    model = Watched()
    for least, longest in ((0, 32), (96, 96)):
        Watched.least, Watched.lengths = least, ()
        said = compare_mixing(model, leaky(model, "next"), long, keep_tokens=True)
        assert said.startswith(MIXES) and set(Watched.lengths) == {longest}
        assert not compare_mixing(model, leaky(model, "none"), long, keep_tokens=True).startswith(
            MIXES
        )


def test_where_everything_sees_everything_nothing_leaks() -> None:
    model = Language(causal=False)
    said = compare_mixing(model, leaky(model, "next"), TOKENS, keep_tokens=True)
    assert not said.startswith(MIXES) and "tokens" in said


def test_tokens_that_no_token_sees_stay_apart_only_where_they_must() -> None:
    model, x = Tokenwise(), torch.randn(2, 6, 8)
    changed = leaky(model, "earlier", "up")
    assert compare_mixing(model, changed, x, keep_tokens=True).startswith(MIXES)
    assert not compare_mixing(model, changed, x, keep_tokens=False).startswith(MIXES)


def test_operators_in_place_of_linear_layers_are_asked_as_they_are_placed() -> None:
    model, x = Tokenwise(), torch.randn(2, 6, 8)
    site = syno.sites(model, x, repeats=1)["up"]
    fine = replace(model, {site: syno.Operator.parse(EACH_TOKEN, n=2, t=6, o=8, c=8)}, native=False)
    assert not compare_mixing(model, fine, x, keep_tokens=True).startswith(MIXES)


def test_channels_are_no_tokens() -> None:
    model = nn.Conv1d(6, 6, 3, padding=1, groups=6)
    mixed = nn.Conv1d(6, 6, 3, padding=1)
    x = torch.randn(2, 6, 9)
    assert not compare_mixing(model, mixed, x, keep_tokens=False).startswith(MIXES)
    causal = nn.Sequential(nn.ConstantPad1d((2, 0), 0.0), nn.Conv1d(6, 6, 3))
    said = compare_mixing(causal, model, x, keep_tokens=False)
    assert "later tokens" in said and said.startswith(MIXES)


def test_a_model_that_cannot_be_asked_says_why_and_images_have_no_tokens() -> None:
    class Strict(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x.float())  # its weights are doubles now

    model = Strict(8, 8)
    assert "could not be asked" in compare_mixing(
        model, model, torch.randn(2, 6, 8), keep_tokens=True
    )
    image = nn.Conv2d(3, 3, 3, padding=1)
    said = compare_mixing(image, image, torch.randn(2, 3, 8, 8), keep_tokens=False)
    assert "examples of a batch" in said and "tokens" not in said


def test_a_candidate_that_leaks_fails_before_it_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from syno.session import Prune

    model = Tokenwise(64)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(4, 8, 6, 64, generator=draw)
    data = [(b, b.roll(-1, 1)) for b in x]
    found = syno.sites(model, data[0][0][:1], repeats=1).where(predicate=lambda s: s.name == "up")
    monkeypatch.setattr(
        "syno.searching.mixing.compare_mixing", lambda *a, **k: f"{MIXES} tokens: no"
    )
    result = syno.search(
        model, data[0][0][:1], sites=found, data=(data, data), budget=1, session=tmp_path / "run", loss="mse",
        finalists=0, batch_width=1, max_steps=4, policy="random", prune=Prune(), progress="off",
    )  # fmt: skip
    candidates = result.view.candidates()
    assert candidates
    for candidate in candidates:
        assert candidate.state == "failed" and "mixes tokens" in candidate.reason.lower()
        assert candidate.score is None
