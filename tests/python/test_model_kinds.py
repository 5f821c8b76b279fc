"""Models of many kinds: every product with a weight is listed, and whatever can be searched is, in its own dtype.

`models` draws networks of layers and functions, each with what its table must say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import syno  # noqa: E402
from syno.errors import ShapeError, TaskError, UnknownName  # noqa: E402
from syno.operators.operator import Operator  # noqa: E402
from syno.searching.result import Result  # noqa: E402
from syno.session import Prune  # noqa: E402
from syno.support.inputs import call, plain, structured  # noqa: E402
from syno.training.checking import check_task  # noqa: E402
from syno.training.task import Task  # noqa: E402

WIDTH = 8


class Functional(nn.Module):
    """Multiplies with a parameter by a function; no layer does."""

    def __init__(self, function: Callable[..., Any], *shape: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(shape) / 8)
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x, self.w)


class First(nn.Module):
    """The first of several results of a layer."""

    def __init__(self, layer: nn.Module, times: int = 1) -> None:
        super().__init__()
        self.layer, self.times = layer, times

    def forward(self, x: Any) -> Any:
        y = self.layer(*[x] * self.times)
        return y[0] if isinstance(y, tuple) else y


class Turned(nn.Module):
    """A layer of ``[N, C, L]`` in the place of one of ``[N, L, C]``."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x.transpose(1, 2)).transpose(1, 2)


#: Name -> (module of ``[N, L, 8] -> [N, L, 8]``, name within it of what must be listed, kind, a word of the reason).
PARTS: dict[str, tuple[Callable[[], nn.Module], str, str, str]] = {
    "linear": (lambda: nn.Linear(8, 8), "", "linear", ""),
    "conv": (lambda: Turned(nn.Conv1d(8, 8, 3, padding=1)), "layer", "conv1d", ""),
    "grouped": (lambda: Turned(nn.Conv1d(8, 8, 3, padding=1, groups=4)), "layer", "conv1d", ""),
    "transposed": (lambda: Turned(nn.ConvTranspose1d(8, 8, 1)), "layer", "conv_transpose1d", ""),
    "bilinear": (lambda: First(nn.Bilinear(8, 8, 8), 2), "layer", "bilinear", "two inputs"),
    "attention": (
        lambda: First(nn.MultiheadAttention(8, 2, batch_first=True), 3), "layer", "attention", "in_proj_weight",
    ),
    "gru": (lambda: First(nn.GRU(8, 8, batch_first=True)), "layer", "recurrent", "every step"),
    "lstm": (lambda: First(nn.LSTM(8, 8, batch_first=True)), "layer", "recurrent", "every step"),
    "matmul": (lambda: Functional(torch.matmul, 8, 8), "w", "matmul", "no layer"),
    "einsum": (lambda: Functional(lambda x, w: torch.einsum("nlc,oc->nlo", x, w), 8, 8), "w", "matmul", "no layer"),
    "normalised": (lambda: Functional(lambda x, w: nn.functional.linear(x, w / w.norm()), 8, 8), "w", "matmul", "no layer"),
    "function": (
        lambda: Turned(Functional(lambda x, w: nn.functional.conv1d(x, w, padding=1), 8, 8, 3)),
        "layer.w", "convolution", "no layer",
    ),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0), "linear1", "linear", "",
    ),
}  # fmt: skip


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.sampled_from(sorted(PARTS)), min_size=1, max_size=4),
    st.sampled_from(["float32", "float64", "bfloat16"]),
)
def test_everything_that_multiplies_with_a_weight_is_listed(names: list[str], dtype: str) -> None:
    model = nn.Sequential(*(PARTS[name][0]() for name in names)).to(getattr(torch, dtype))
    x = torch.randn(2, 5, 8).to(getattr(torch, dtype))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found = syno.sites(model, x, repeats=1)
    for i, name in enumerate(names):
        _, inner, kind, word = PARTS[name]
        site = found[f"{i}.{inner}".rstrip(".")]
        assert site.kind == kind
        assert word in site.reason and bool(word) != site.replaceable
        assert site.calls or name == "bilinear"
        if site.replaceable:
            assert site.dtype == dtype
    # Every weight of two dimensions or more has a row: its own or its layer's.
    for parameter, value in model.named_parameters():
        rows = [s.name for s in found if parameter == s.name or parameter.startswith(s.name + ".")]
        assert rows or value.dim() < 2, parameter
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_replaced_layer_of_an_encoder_is_called_in_evaluation_mode() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
    x = torch.randn(2, 5, 8)
    other = Operator.parse("y[n,l,o] = sum[c] x[n,l,c] * k[o,7-c]", n=2, l=5, c=8, o=16)
    names = [f"layers.{i}.linear1" for i in range(2)]
    found = syno.sites(model, x, repeats=1)
    new = syno.torch.replace(model, {found[name]: other for name in names}).eval()
    plain_model = syno.torch.replace(model, {found[name]: other for name in names}, native=False)
    with torch.no_grad():
        mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        for key in names:
            plain_model.get_submodule(key).load_state_dict(new.get_submodule(key).state_dict())
        # Under training mode PyTorch never takes its fused function.
        wanted = plain_model.train()(x, src_key_padding_mask=mask)
        torch.testing.assert_close(new(x, src_key_padding_mask=mask), wanted, rtol=1e-4, atol=1e-4)


def test_a_compiled_model_shows_the_layers_of_the_model() -> None:
    model = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
    x = torch.randn(1, 8, 6, 6)
    found = syno.sites(torch.compile(model), x, repeats=1)
    assert [site.name for site in found] == ["0", "2"] and all(site.replaceable for site in found)
    operator = Operator.parse("y[n,o,h,w] = sum[c] x[n,c,h,w] * k[o,c]", n=1, o=8, c=8, h=6, w=6)
    new = syno.torch.replace(torch.compile(model), {found["2"]: operator})
    assert type(new) is nn.Sequential and new(x).shape == x.shape
    inner = nn.Sequential(torch.compile(model[0]), nn.ReLU())
    assert len(syno.sites(inner, x, repeats=1)) == 1
    model.compile()
    assert len(syno.sites(model, x, repeats=1)) == 2


CONV = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1))


@pytest.mark.parametrize(
    ("model", "example", "words"),
    [
        (CONV, ((1, 8, 28, 28),), r"a shape.*torch\.randn\(1, 8, 28, 28\)"),
        (CONV, (1, 8, 6, 6), "a shape"),
        (CONV, (torch.Size([1, 8, 6, 6]),), "a shape"),
        (CONV, (), "holds no tensor"),
        (CONV, ("cat.png",), "holds no tensor"),
        (CONV, (np.array(["a"]),), "is no tensor"),
        (CONV, (torch.randn(1, 3, 6, 6),), r"float32 \[1, 3, 6, 6\].*expected input"),
        (CONV, (torch.randn(1, 8, 6, 6).double(),), r"computes in float32.*x\.to\(torch\.float32\)"),
        (CONV, (torch.zeros(1, 8, 6, 6, dtype=torch.uint8),), r"uint8.*x\.to\(torch\.float32\)"),
        (nn.Linear(8, 8).double(), (torch.zeros(1, 8, dtype=torch.int64),), r"int64.*x\.to\(torch\.float64\)"),
        (nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 4)), (torch.randn(1, 4),), r"randint\(7, shape\)"),
        (nn.Bilinear(3, 3, 3), (torch.randn(1, 3),), "inputs are input1, input2"),
        (nn.Conv2d, (torch.randn(1, 3),), "is a class"),
        (3, (torch.randn(1, 3),), "no torch.nn.Module"),
    ],
)  # fmt: skip
def test_a_wrong_example_says_what_to_pass(model: Any, example: Any, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        syno.sites(model, *example, repeats=1)


def test_a_class_is_not_timed() -> None:
    with pytest.raises(ShapeError, match="'a' is a class"):
        syno.bench({"a": nn.Conv2d}, torch.randn(1, 3))


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, a: Any, b: Any) -> Any:
        return self.head(torch.relu(self.first(a + b)).mean(-1))


class OfDictionary(Two):
    def forward(self, batch: Any) -> Any:
        return super().forward(batch["a"], batch["b"])


class One(Two):
    def forward(self, a: Any) -> Any:
        return super().forward(a, a)


#: How a loader gives the inputs a and b.
STRUCTURES: dict[str, Callable[[Any, Any], Any]] = {
    "tensor": lambda a, b: a,
    "tuple": lambda a, b: (a, b),
    "list": lambda a, b: [a, b],
    "dict": lambda a, b: {"a": a, "b": b},
}

#: (dtype, model, structure, as NumPy arrays)
KINDS = [
    pytest.param("float64", One, "tensor", True, marks=pytest.mark.nightly),
    ("bfloat16", Two, "tuple", False),
    ("float16", OfDictionary, "dict", False),
    ("float32", Two, "dict", True),
    pytest.param("float32", Two, "list", False, marks=pytest.mark.nightly),
]


def batches(count: int, dtype: str, structure: str, numpy: bool) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    made = []
    for _ in range(count):
        a, b = (
            torch.randn(8, WIDTH, 12, generator=generator).to(getattr(torch, dtype)) for _ in "ab"
        )
        y = (a[:, 0].mean(-1) > b[:, 1].mean(-1)).long()
        if numpy:
            a, b, y = a.numpy(), b.numpy(), y.numpy()
        made.append((STRUCTURES[structure](a, b), y))
    return made


@pytest.mark.parametrize(("dtype", "kind", "structure", "numpy"), KINDS)
def test_models_of_every_dtype_and_structure_of_inputs_are_searched(
    tmp_path: Any, monkeypatch: Any, dtype: str, kind: Any, structure: str, numpy: bool
) -> None:
    monkeypatch.setattr(
        "syno.searching.pipeline.compare_finalists", lambda *_: None
    )  # torch.compile takes its time
    model = kind().to(getattr(torch, dtype))
    train = batches(3, dtype, structure, numpy)
    example = train[0][0]
    found = syno.sites(model, example, repeats=1)
    result = syno.search(
        model, example, sites=found.where(kind="conv1d"), data=(train, train[:1]), budget=1,
        session=tmp_path / "s", finalists=0, batch_width=1, policy="random", prune=Prune(), progress="off",
    )  # fmt: skip
    (candidate,) = result.view.candidates()
    assert candidate.state == "done", candidate.reason
    assert candidate.verified and candidate.latency_us
    kept = Result.load(tmp_path / "s")
    new = kept["c1"].apply(kind().to(getattr(torch, dtype)), measured=dtype == "float64").eval()
    with torch.no_grad():
        assert call(new, kept.example).dtype == getattr(torch, dtype)


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ((torch.zeros(4, 8, 5), torch.zeros(4, 8, 5), torch.zeros(4).long()), r"(?s)tuple of 3.*\(\(a, b\), targets\)"),
        ({"x": torch.zeros(4, 8, 5)}, "dictionary of x"),
        (torch.zeros(4, 8, 5), "a Tensor"),
        ((torch.zeros(4, 3, 5), torch.zeros(4).long()), r"float32 \[4, 3, 5\]"),
        ((torch.zeros(4, 8, 5).double(), torch.zeros(4).long()), "computes in float32"),
        ((torch.zeros(4, 8, 5), torch.zeros(4, 7, 7)), "no class numbers"),
    ],
)  # fmt: skip
def test_batches_that_do_not_fit_get_a_sentence_before_the_search(
    tmp_path: Any, batch: Any, words: str
) -> None:
    model = One()
    with pytest.raises(TaskError, match=words):
        check_task(Task(name="toy", model=One, train=[batch], validation=[batch]))
    with pytest.raises(TaskError):
        syno.search(
            model, torch.zeros(4, 8, 5), sites=syno.sites(model, torch.zeros(4, 8, 5), repeats=1),
            data=([batch], [batch]), budget=1, session=tmp_path / "s", progress="off",
        )  # fmt: skip
    assert not (tmp_path / "s").exists()


def test_a_loader_that_can_be_read_once_is_refused() -> None:
    batch = (torch.zeros(4, 8, 5), torch.zeros(4).long())
    with pytest.raises(TaskError, match="read once only"):
        check_task(Task(name="toy", model=One, train=iter([batch]), validation=[batch]))
    with pytest.raises(TaskError, match="is a int, no batches"):
        check_task(Task(name="toy", model=One, train=3, validation=[batch]))  # type: ignore[arg-type]


_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=3),
    st.lists(st.integers(0, 3), max_size=3).map(torch.zeros),
)  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        _LEAVES,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=6,
    )
)
def test_structures_of_inputs_come_back_from_their_text(value: Any) -> None:
    import json

    held: list[Any] = []
    text = json.dumps(plain(value, held))
    again = structured(json.loads(text), {f"{i}": t for i, t in enumerate(held)})
    assert repr(again) == repr(value)


@pytest.mark.parametrize(
    "damaged", [3, {}, {"code": "os"}, {"tuple": 3}, {"dict": []}, {"value": [1]}]
)
def test_other_structures_are_refused(damaged: Any) -> None:
    with pytest.raises(ValueError, match="no structure"):
        structured(damaged, {})


def test_examples_on_the_command_line_have_the_models_dtype(tmp_path: Any) -> None:
    from typer.testing import CliRunner

    from syno.cli.main import app

    (tmp_path / "kinds.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def wide(): return nn.Linear(8, 8).double()\n"
        "def tokens(): return nn.Sequential(nn.Embedding(7, 8), nn.Linear(8, 8))\n"
        "def pair(): return nn.Bilinear(8, 8, 8)\n"
        "def broken(): return 1 / 0\n"
    )
    run = CliRunner()

    def sites(name: str, *examples: str) -> Any:
        options = [word for text in examples for word in ("--example", text)]
        return run.invoke(app, ["sites", f"{tmp_path / 'kinds.py'}:{name}", *options])

    assert "1 of 1 sites" in sites("wide", "2,8").stdout
    assert "1 of 1 sites" in sites("tokens", "2,5:int64").stdout
    assert "bilinear" in sites("pair", "2,8", "input2=2,8").stdout
    for name, example, code, words in [
        ("wide", "2,x", 2, "not a shape"),
        ("wide", "2,0", 2, "not a shape"),
        ("wide", "2,8:int5", 2, "no dtype"),
        ("wide", "2,7", 1, "does not run on"),
        ("tokens", "2,5", 1, "randint(7, shape)"),
        ("broken", "2,8", 1, "ZeroDivisionError"),
    ]:
        done = sites(name, example)
        assert done.exit_code == code, done.stderr
        assert words in " ".join(done.stderr.replace("│", " ").split()), done.stderr


def test_names_that_are_no_site_are_listed() -> None:
    found = syno.sites(nn.Bilinear(3, 3, 3), (torch.randn(1, 3), torch.randn(1, 3)), repeats=1)
    assert found.groups() == [] and len(found.where()) == 0
    with pytest.raises(UnknownName, match="no site is named"):
        found["x"]
