"""Networks for ranges of sizes in files: they compute what the model does, without torch, and refuse what does not fit."""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from test_network_c import STRICT, compiler
from torch import Tensor, nn
from typer.testing import CliRunner

import syno
from syno.cli.main import app
from syno.errors import (
    ArgumentError,
    FormatError,
    KernelError,
    ShapeError,
    SynoError,
    UnsupportedOp,
)
from syno.export import network_c
from syno.export.fitted import Fit
from syno.export.linking import c_compiler
from syno.graph import bundle
from syno.graph.loaded_ranged import LoadedRangedNetwork
from syno.graph.ranged_bundle import RangedManifest, filled, number_at

pytestmark = pytest.mark.skipif(c_compiler() is None, reason="no C compiler")

ROOT = Path(syno.__file__).resolve().parent.parent
OTHER_SIZE = 6


class Words(nn.Module):
    """Tokens with their places and a mask, of which a size is an extent in two dimensions; a number that follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(11, 16), nn.Embedding(64, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.register_buffer("mask", torch.triu(torch.full((64, 64), -9.0), 1))
        self.register_buffer("ids", torch.arange(64)[None])

    def forward(self, tokens: Tensor, *, scale: float = 2.0) -> Any:
        n = tokens.shape[1]
        x = self.words(tokens) + self.places(self.ids[:, :n])
        scores = torch.softmax(x @ x.transpose(1, 2) + self.mask[:n, :n], -1)
        return {"y": self.layer(scores @ x) * scale, "n": n, "best": x.argmax(2)}


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 4, 3, 2, 1), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Any:
        y = torch.relu(self.first(x))
        return self.last(y.mean((2, 3))), y


def words() -> Any:
    torch.manual_seed(0)
    tokens = torch.tensor([[1, 2, 10, 0, 5, 3, 7, 7]])
    model = Words().eval()
    return model, syno.compile(model, tokens, dynamic={"tokens": {1: ("n", 3, 40)}})


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    place = tmp_path_factory.mktemp("ranged") / "words.syno"
    model, fast = words()
    told = syno.export(fast, place)
    assert told.format == "bundle" and "float64 at" in told.checked and "n 3 to 40" in told.inputs
    return model, place


def tokens_of(n: int) -> Tensor:
    return torch.arange(n)[None] * 7 % 11


def test_it_computes_what_the_model_does_at_all_sizes(written: tuple[Any, Path]) -> None:
    model, place = written
    loaded = syno.load(place)
    assert isinstance(loaded, LoadedRangedNetwork)
    assert loaded.verify()
    for n in (3, 4, 15, 16, 17, 31, 32, 33, 40):
        made = loaded(tokens_of(n))
        with torch.no_grad():
            wanted = model(tokens_of(n))
        assert made["n"] == n
        torch.testing.assert_close(made["y"], wanted["y"], rtol=1e-4, atol=1e-5)
        assert torch.equal(made["best"], wanted["best"])
        assert loaded.at(n=n).inputs == {"tokens": ((1, n), "int64")}
    assert pickle.loads(pickle.dumps(loaded)).verify()
    assert "n 3 to 40" in str(loaded) and loaded.to_dict()["sizes"] == {"n": [3, 40]}


def test_several_sizes_and_those_of_one_are_there(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Image().eval()
    sizes = {0: ("batch", 1, 3), 2: ("h", 5, 20), 3: ("w", 5, 20)}
    fast = syno.compile(model, torch.randn(2, 2, 8, 8), dynamic={"x": sizes})
    syno.export(fast, tmp_path / "net.syno")
    loaded = syno.load(tmp_path / "net.syno")
    for batch, h, w in ((1, 5, 20), (3, 20, 20), (2, 9, 6), (1, 5, 5)):
        x = torch.randn(batch, 2, h, w)
        with torch.no_grad():
            for ours, theirs in zip(loaded(x), model(x), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_an_onnx_model_keeps_the_names_of_its_sizes(tmp_path: Path) -> None:
    text = (
        "g (float[batch, n] x, float[n] z) => (float[batch, n] y) { s = Add(x, z) y = Softmax(s) }"
    )
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]> ' + text)
    onnx.save(model, tmp_path / "m.onnx")
    fast = syno.load_onnx(tmp_path / "m.onnx").compile(dynamic={"batch": (1, 5), "n": (2, 30)})
    syno.export(fast, tmp_path / "net.syno")
    loaded = syno.load(tmp_path / "net.syno")
    x, z = np.random.default_rng(0).random((4, 17), np.float32), np.ones(17, np.float32)
    made = loaded(x, z)
    made = made if isinstance(made, np.ndarray) else made[0]
    np.testing.assert_allclose(made, torch.softmax(torch.tensor(x + z), 1).numpy(), rtol=1e-5)
    with pytest.raises(ShapeError, match="n=16, another argument 17"):
        loaded(x, z[:16])


def test_weights_are_as_they_are_when_it_is_written(tmp_path: Path) -> None:
    model, fast = words()
    fast(tokens_of(9))
    with torch.no_grad():
        model.words.weight.mul_(3)
        model.layer.linear1.weight.data.add_(1)
    syno.export(fast, tmp_path / "net.syno")
    with torch.no_grad():
        wanted = model(tokens_of(9))["y"]
    made = syno.load(tmp_path / "net.syno")(tokens_of(9))["y"]
    torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-4)


def test_sizes_outside_are_refused_in_a_sentence(written: tuple[Any, Path]) -> None:
    loaded = syno.load(written[1])
    for n in (2, 41):
        with pytest.raises(ShapeError, match=f"n={n}, and the network was exported for 3 to 40"):
            loaded(tokens_of(n))
        with pytest.raises(ShapeError, match=r"at least 3|at most 40"):
            loaded.at(n=n)
    for given, said in (((), "tokens is missing"), ((torch.zeros(3),), "its dimension 1 gives n")):
        with pytest.raises(ShapeError, match=said):
            loaded(*given)
    with pytest.raises(KernelError, match="int64"):
        loaded(tokens_of(9).float())
    with pytest.raises(ShapeError, match="2 sizes"):
        loaded.at(9, 9)


def test_it_is_read_and_run_without_torch(written: tuple[Any, Path]) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\nimport numpy as np, syno\n"
        f"loaded = syno.load({str(written[1])!r})\n"
        "assert loaded.verify()\n"
        "print(loaded(np.arange(23)[None] * 7 % 11)['y'].shape)\n"
        "try: loaded(np.zeros((1, 50), np.int64))\nexcept syno.errors.ShapeError as error: print(error)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "(1, 23, 16)" in done.stdout and "n=50" in done.stdout


def test_as_c_it_computes_the_same_at_all_sizes(written: tuple[Any, Path], tmp_path: Path) -> None:
    loaded = syno.load(written[1])
    syno.export(loaded, tmp_path / "c", format="c")
    where = tmp_path / "c"
    compiler(*STRICT, "-O1", "main.c", network_c.LIBRARY, "-lm", "-o", "main", folder=where)
    compiler(
        *STRICT, "-O1", "-shared", "-fPIC", "network.c", network_c.LIBRARY, "-o", "network.so", folder=where
    )  # fmt: skip
    library = ctypes.CDLL(str(where / "network.so"))
    library.syno_message.restype = ctypes.c_char_p
    handle = ctypes.c_void_p()
    assert library.syno_open(str(where / "weights.bin").encode(), ctypes.byref(handle)) == 0
    for n in (3, 16, 17, 39, 40, 41):
        network = loaded.at(n=min(n, 40))
        held = tokens_of(n).numpy().copy()
        made = [np.empty(shape, dtype) for shape, dtype in network.outputs.values()]
        results = (ctypes.c_void_p * len(made))(*[each.ctypes.data for each in made])
        given = (ctypes.c_void_p * 1)(held.ctypes.data)
        status = library.syno_run(handle, (ctypes.c_int64 * 1)(n), given, results, None)
        if n == 41:
            assert status == OTHER_SIZE and b"outside of its range" in library.syno_message(status)
            continue
        assert status == 0
        for ours, theirs in zip(made, network.run([held]), strict=True):
            assert np.array_equal(ours, theirs)
    library.syno_close(handle)


def test_the_command_line_writes_and_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ranged_file.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    where = str(tmp_path / "net.syno")
    given = ["ranged_file:make", "--example", "2,4", "--dynamic", "input:0=n:2..9", "-o", where]
    done = CliRunner().invoke(app, ["compile", *given])
    assert done.exit_code == 0, done.output
    assert "n 2 to 9" in done.output and "written to" in done.output
    shown = CliRunner().invoke(app, ["explain", where, "--json"])
    assert json.loads(shown.stdout)["sizes"] == {"n": [2, 9]}
    done = CliRunner().invoke(app, ["export", where, "-o", str(tmp_path / "c"), "--format", "c"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "c" / network_c.LIBRARY).exists()


def test_what_has_no_code_for_ranges_is_refused(tmp_path: Path) -> None:
    class Turned(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.roll(x, x.shape[0] // 2, 0) + 1

    class Host(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sort(x, 0)[0] + 1

    turned = syno.compile(Turned(), torch.randn(6, 3), dynamic={"x": {0: ("n", 4, 12)}})
    with pytest.raises((ArgumentError, UnsupportedOp), match=r"on its own|for ranges of sizes"):
        syno.export(turned, tmp_path / "turned")
    host = syno.compile(Host(), torch.randn(6, 3), dynamic={"x": {0: ("n", 4, 12)}})
    with pytest.raises(UnsupportedOp, match="run in PyTorch"):
        syno.export(host, tmp_path / "host")
    with pytest.raises(ArgumentError, match="leave out the example"):
        syno.export(words()[1], tmp_path / "words", example=tokens_of(9))
    assert not list(tmp_path.iterdir())


# What is damaged or lies


@pytest.mark.parametrize("name", [bundle.MANIFEST, *bundle.FILES])
def test_damaged_files_are_refused(name: str, written: tuple[Any, Path], tmp_path: Path) -> None:
    place = tmp_path / "net.syno"
    shutil.copytree(written[1], place)
    content = bytearray((place / name).read_bytes())
    content[len(content) // 2] ^= 1
    (place / name).write_bytes(content)
    read = {
        bundle.SAMPLE: lambda: syno.load(place).verify(),
        bundle.ARCHIVE: lambda: syno.export(syno.load(place), tmp_path / "c", format="c"),
        bundle.GRAPH: lambda: syno.load(place).at(n=9).graph,
    }
    with pytest.raises(FormatError, match=r"damaged|no JSON|manifest"):
        read.get(name, lambda: syno.load(place))()


def lie(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    made: Any = json.loads(json.dumps(manifest))
    node, parts = made, path.split(".")
    for part in parts[:-1]:
        node = node[int(part) if part.lstrip("-").isdigit() else part]
    last = parts[-1]
    node[int(last) if last.lstrip("-").isdigit() else last] = value
    made["digest"] = ""
    return dict(msgspec.to_builtins(msgspec.convert(made, RangedManifest).sealed()))


LIES = [
    ("version", 2),
    ("format", "syno-compiled-network"),
    ("sizes.0.greatest", 1 << 30),
    ("sizes.0.least", 0),
    ("sizes.0.places", []),
    ("sizes.0.places.0.parameter", "nobody"),
    ("sizes.0.places.0.dim", -1),
    ("spans", []),
    ("spans.0.least", []),
    ("spans.0.greatest.0", 2),
    ("spans.-1.numbers.0", ["size", 0, 1, 0, 0, 1, 0, 1]),
    ("spans.-1.numbers.0", ["size", 3, 1, 0, 1, 1, 0, 1]),
    ("spans.-1.numbers.0", ["pow", 1, 2, 3]),
    ("spans.-1.network.arena_bytes", 0),
    ("spans.-1.network.tensors.0.shape", [1, {"$": 10**6}]),
    ("spans.-1.network.steps.0.reads", ["nobody"]),
    ("spans.-1.network.steps.-1.kernel", "nobody"),
    ("spans.-1.network.inputs", []),
    ("examples.0.sizes", [99]),
    ("examples.0.inputs", [1 << 40]),
]


@pytest.mark.parametrize(("path", "value"), LIES)
def test_manifests_that_lie_are_refused(
    path: str, value: Any, written: tuple[Any, Path], tmp_path: Path
) -> None:
    place = tmp_path / "net.syno"
    shutil.copytree(written[1], place)
    manifest = json.loads((place / bundle.MANIFEST).read_bytes())
    (place / bundle.MANIFEST).write_text(json.dumps(lie(manifest, path, value)))
    with pytest.raises(FormatError):
        syno.load(place)


def test_random_lies_never_crash(written: tuple[Any, Path], tmp_path: Path) -> None:
    """Numbers of formulas and of places are changed; what is loaded in spite of it is not run."""
    place = tmp_path / "net.syno"
    shutil.copytree(written[1], place)
    plain = json.loads((place / bundle.MANIFEST).read_bytes())
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        manifest = json.loads(json.dumps(plain))
        numbers = manifest["spans"][-1]["numbers"]
        row = numbers[int(rng.integers(len(numbers)))]
        if isinstance(row, list):
            row[int(rng.integers(1, len(row)))] = int(rng.choice([-1, 0, 1, 2, 3, 64, 10**12]))
        manifest["digest"] = ""
        made = msgspec.convert(manifest, RangedManifest).sealed()
        (place / bundle.MANIFEST).write_bytes(msgspec.json.encode(made))
        try:
            loaded = syno.load(place)
            for n in (33, 37, 40):
                loaded.at(n=n)
        except SynoError:
            refused += 1
    assert refused > 20


def test_formulas_are_numbers_or_refused() -> None:
    assert number_at(["size", 1, 3, -2, 2, 5, 7, 2], (9, 4)) == 5 * ((3 * 4 - 2) // 2) ** 2 + 7
    assert number_at(["+", 3, ["size", 0, 1, 0, 1, 1, 0, 1], 1], (9,)) == 11
    assert number_at(["*", 6, 4, 3], ()) == 8
    for row in (
        True, None, "n", [], ["+", 1, 2], ["*", 1, 1, 0], ["*", 3, 3, 2], ["size", 0, 1, 0, 0, 1, 0, 1],
        ["size", 0, 1, 0, 1, 1, 0, 9], ["size", 2, 1, 0, 1, 1, 0, 1], 1 << 60,
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"formula|whole|beyond"):
            number_at(row, (9, 9))
    deep: Any = 1
    for _ in range(100):
        deep = ["+", deep, 1, 1]
    with pytest.raises(ValueError, match="formula"):
        number_at(deep, ())
    with pytest.raises(ValueError, match="no number"):
        filled({"$": 1}, [1])


def test_documents_are_fitted_where_numbers_alone_differ() -> None:
    samples = [(8,), (2,), (3,), (5,), (7,)]
    documents = [{"a": [n, 4], "b": f"i: {n * n}, j: 3", "c": "x"} for (n,) in samples]
    fit = Fit(["n"], samples)
    made = fit.of(documents)
    assert made["c"] == "x" and made["a"][1] == 4
    for (n,) in ((4,), (6,), (100,)):
        numbers = [number_at(row, (n,)) for row in fit.numbers]
        assert filled(made, numbers) == {"a": [n, 4], "b": f"i: {n * n}, j: 3", "c": "x"}
    for one, other in ((True, False), (1.5, 2.5), ("a", "b"), ([1], [1, 2]), ({"a": 1}, {"b": 1})):
        with pytest.raises(FormatError):
            Fit(["n"], [(2,), (3,)]).of([one, other])
