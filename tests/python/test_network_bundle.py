"""Compiled networks in files: what they compute when they are read again, what reading needs, and what it refuses."""

from __future__ import annotations

import collections
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from test_compile_model import _random_model
from torch import Tensor, nn

import syno
from syno.errors import FormatError, KernelError, ShapeError, SynoError, UnsupportedOp
from syno.export import network_bundle
from syno.graph import bundle, structure
from syno.graph.loaded import LoadedNetwork

ROOT = Path(syno.__file__).resolve().parent.parent
Pair = collections.namedtuple("Pair", ["first", "second"])


class Branches(nn.Module):
    """Tensors of several types in, and a structure of several out."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.last = nn.Linear(8, 5)
        self.table = nn.Embedding(7, 5)

    def forward(self, x: Tensor, tokens: Tensor, *, keep: Tensor, scale: float = 2.0) -> Any:
        y = torch.relu(self.first(x))
        z = self.last(y.mean((2, 3))) * scale + self.table(tokens)
        return {
            "z": torch.where(keep, z, -z),
            "pair": Pair(y.flatten(1), x),
            "rest": [tokens, 3, None],
            "best": z.argmax(1),
        }


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        made: Tensor = self.layer(self.embedding(tokens))
        return made


class Viewing(nn.Module):
    """Functions of the engine see tensors in other shapes than those that were computed."""

    def forward(self, x: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
        y = torch.relu(x)
        table = torch.nn.functional.embedding(tokens, y.view(4, 3))
        return table, y.view(2, 6).argmax(1), y.view(12).to(torch.float64), y


def _of_halves() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)).to(torch.bfloat16)


BRANCHES = {
    "x": torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)),
    "tokens": torch.tensor([1, 6]),
    "keep": torch.tensor([[True], [False]]),
}
MODELS: dict[str, tuple[Any, Any]] = {
    "branches": (Branches, BRANCHES),
    "attending": (Attending, torch.tensor([[1, 2, 10, 0]])),
    "viewing": (Viewing, (torch.arange(-6.0, 6.0).view(3, 4), torch.tensor([[3, 0], [1, 1]]))),
    "bfloat16": (_of_halves, torch.ones(2, 6, dtype=torch.bfloat16)),
    "doubles": (lambda: nn.Linear(3, 4).double(), torch.ones(2, 3, dtype=torch.float64)),
    "nothing": (lambda: nn.Identity(), torch.ones(2, 3)),
    "one number": (lambda: nn.Flatten(0), torch.tensor([[3]], dtype=torch.int32)),
}


def compiled(name: str) -> tuple[Any, Any]:
    make, example = MODELS[name]
    torch.manual_seed(0)
    return syno.compile(make().eval(), example), example


def called(network: Any, example: Any) -> Any:
    if isinstance(example, dict):
        return network(**example)
    return network(*example) if isinstance(example, tuple) else network(example)


def leaves(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for part in value for leaf in leaves(part)]
    if isinstance(value, dict):
        return [leaf for part in value.values() for leaf in leaves(part)]
    return [value]


def as_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: as_arrays(each) for key, each in value.items()}
    return tuple(map(as_arrays, value)) if isinstance(value, tuple) else value.numpy()


@pytest.fixture(scope="module")
def branches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bundles") / "branches.syno"
    syno.export(compiled("branches")[0], place)
    return place


@pytest.mark.parametrize("name", MODELS)
def test_a_network_is_read_again_as_it_was_written(name: str, tmp_path: Path) -> None:
    fast, example = compiled(name)
    written = syno.export(fast, tmp_path / "net.syno", example=example)
    assert written.format == "bundle" and "float64" in written.checked
    loaded = syno.load(tmp_path / "net.syno")
    assert isinstance(loaded, LoadedNetwork)
    assert loaded.inputs == fast.network.inputs
    assert [shape for shape, _ in loaded.outputs.values()] == [
        shape for shape, _ in fast.network.outputs.values()
    ]
    wanted, made = leaves(called(fast, example)), leaves(called(loaded, example))
    assert len(wanted) == len(made)
    for ours, theirs in zip(made, wanted, strict=True):
        assert type(ours) is type(theirs)
        if isinstance(ours, Tensor):
            assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype
        else:
            assert ours == theirs
    assert loaded.verify()
    if name != "bfloat16":
        for ours, theirs in zip(leaves(called(loaded, as_arrays(example))), wanted, strict=True):
            if isinstance(theirs, Tensor):
                assert isinstance(ours, np.ndarray) and np.array_equal(ours, theirs.numpy())


@pytest.mark.parametrize("seed", range(4))
def test_random_networks_are_read_again_as_they_were_written(seed: int, tmp_path: Path) -> None:
    model, example = _random_model(seed)
    fast = syno.compile(model, example)
    syno.export(fast, tmp_path / "net.syno")
    loaded = syno.load(tmp_path / "net.syno")
    for number in range(2):
        (x,) = fast.network.example(number)
        assert np.array_equal(loaded(x), fast.network(x))
    assert str(loaded).splitlines()[1:-1] == str(fast).splitlines()[1:]


def test_a_structure_of_results_is_kept(branches: Path) -> None:
    made = syno.load(branches)(BRANCHES["x"], BRANCHES["tokens"], keep=BRANCHES["keep"])
    assert list(made) == ["z", "pair", "rest", "best"]
    assert made["pair"].first is made["pair"][0] and len(made["pair"]) == 2
    assert isinstance(made["rest"], list) and made["rest"][1:] == [3, None]
    with pytest.raises(AttributeError, match="first, second"):
        _ = made["pair"].third


def test_arguments_that_do_not_fit_are_refused(branches: Path) -> None:
    loaded = syno.load(branches)
    x, tokens, keep = BRANCHES["x"], BRANCHES["tokens"], BRANCHES["keep"]
    for args, named, words in [
        ((x,), {"keep": keep}, "tokens is missing"),
        ((x, tokens, keep), {}, "3 arguments by position"),
        ((x, tokens), {"keep": keep, "mask": x}, "mask is none of them"),
        ((x, tokens), {"keep": keep, "x": x}, "x is given twice"),
        ((x[:1], tokens), {"keep": keep}, "x has shape"),
    ]:
        with pytest.raises(ShapeError, match=words):
            loaded(*args, **named)
    with pytest.raises(KernelError, match="tokens is float32"):
        loaded(x, tokens.float(), keep=keep)
    with pytest.raises(ShapeError, match="index 7"):
        loaded(x, torch.tensor([1, 7]), keep=keep)


def test_what_it_says_of_itself(branches: Path) -> None:
    loaded = syno.load(branches)
    text = str(loaded)
    assert "machine code for" in text and "verified" in text and "kernel" in text
    assert "<table>" in loaded._repr_html_() and str(branches) in repr(loaded)
    json.dumps(loaded.to_dict())
    profile = loaded.profile(turns=2)
    assert profile.total_us > 0 and set(profile.times_us) <= {s.name for s in loaded.stages}
    assert loaded.dot().startswith("digraph") and loaded.graph.key() == loaded.to_dict()["key"]
    assert loaded.fallbacks == {} and loaded.verification.passed
    again = pickle.loads(pickle.dumps(loaded))
    assert again.path == loaded.path and again.verify()


def test_names_of_an_onnx_model_are_kept(tmp_path: Path) -> None:
    parser = pytest.importorskip("onnx.parser")
    text = """<ir_version: 9, opset_import: ["" : 18]>
        g (float[2, 3] left, int64[2] rows, float[2, 3] right) => (float[2, 3] total, float[2, 3] picked, float[2, 3] left2) {
            total = Add(left, right)
            picked = Gather(total, rows)
            left2 = Identity(left)
        }"""
    net = syno.load_onnx(parser.parse_model(text)).compile()
    syno.export(net, tmp_path / "net.syno")
    loaded = syno.load(tmp_path / "net.syno")
    assert list(loaded.inputs) == ["left", "rows", "right"]
    assert list(loaded.outputs) == ["total", "picked", "left2"]
    left, rows, right = net.example(3)
    for wrong, kind in (
        ([left, rows], ShapeError),
        ([left[:1], rows, right], ShapeError),
        ([left, left, right], (ShapeError, KernelError)),
        ({"left": left}, ShapeError),
        (left, ShapeError),
    ):
        with pytest.raises(kind):
            syno.export(net, tmp_path / "wrong.syno", example=wrong)
    assert not (tmp_path / "wrong.syno").exists()
    for made in (loaded(left, rows, right), loaded(left, right=right, rows=rows)):
        assert isinstance(made, tuple)
        for ours, theirs in zip(made, net(left, rows, right), strict=True):
            assert np.array_equal(ours, theirs)


def test_it_is_read_and_run_without_torch(branches: Path) -> None:
    script = f"""
import sys
sys.modules["torch"] = None
import syno._core
for name in ("compile_nest", "apply_schedule", "construct_schedule"):
    setattr(syno._core, name, None)
loaded = syno.load({str(branches)!r})
assert "numpy" not in sys.modules, "reading needs no NumPy"
import numpy as np
made = loaded(np.zeros((2, 3, 6, 6), np.float32), np.array([1, 2]), keep=np.ones((2, 1), bool))
assert made["z"].shape == (2, 5)
assert loaded.verify() and loaded.profile(turns=1) and str(loaded) and loaded._repr_html_()
print("done")
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout.strip() == "done", done.stderr


def test_steps_that_run_in_torch_are_listed_and_nothing_is_written(tmp_path: Path) -> None:
    class Sorting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x).sort(-1).values

    fast = syno.compile(Sorting(), torch.randn(2, 5))
    assert fast.fallbacks
    with pytest.raises(UnsupportedOp, match="PyTorch") as failure:
        syno.export(fast, tmp_path / "net.syno")
    assert len(failure.value.operators) == len(fast.fallbacks)
    assert not list(tmp_path.iterdir())


def test_weights_are_as_they_are_when_it_is_written(tmp_path: Path) -> None:
    model = nn.Linear(3, 4).eval()
    x = torch.ones(2, 3)
    fast = syno.compile(model, x)
    sample = fast.network.sample
    syno.export(fast, tmp_path / "before.syno", example=x)
    assert fast.network.sample is sample is not None, "its weights are the same"
    with torch.no_grad():
        model.weight.data.mul_(2)  # which autograd does not see
    syno.export(fast, tmp_path / "net.syno", example=x)
    assert fast.network.sample is None
    loaded = syno.load(tmp_path / "net.syno")
    with torch.no_grad():
        torch.testing.assert_close(loaded(x), model(x))
        model.weight.mul_(2)
        assert not torch.allclose(loaded(x), model(x))


def test_a_model_is_compiled_for_a_bundle(tmp_path: Path) -> None:
    model, x = nn.Linear(3, 4).eval(), torch.ones(2, 3)
    written = syno.export(model, tmp_path / "net.syno", format="bundle", example=x)
    assert "Linear" in written.what and "[2, 3]" in written.inputs
    with torch.no_grad():
        torch.testing.assert_close(syno.load(tmp_path / "net.syno")(x), model(x))


def test_threads_share_one(branches: Path) -> None:
    loaded = syno.load(branches)
    calls = [
        {**BRANCHES, "x": torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(n))}
        for n in range(4)
    ]
    wanted = [loaded(**call)["z"] for call in calls]
    failed: list[str] = []

    def work(number: int) -> None:
        for _ in range(50):
            if not torch.equal(loaded(**calls[number])["z"], wanted[number]):
                failed.append(f"call {number}")

    workers = [threading.Thread(target=work, args=(n,)) for n in range(len(calls))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed


def test_values_that_stay_and_tensors_that_nobody_reads(tmp_path: Path) -> None:
    class Choosing(nn.Module):
        def forward(self, x: Tensor, unused: Tensor, twice: bool = True) -> Any:
            return (x * 2 if twice else x), "done"

    x, unused = torch.ones(2, 3), torch.ones(4)
    fast = syno.compile(Choosing(), {"x": x, "unused": unused, "twice": True})
    syno.export(fast, tmp_path / "net.syno", example={"x": x, "unused": unused, "twice": True})
    loaded = syno.load(tmp_path / "net.syno")
    for made in (
        loaded(x, unused), loaded(x, unused, True), loaded(x, twice=True, unused=unused)
    ):  # fmt: skip
        assert torch.equal(made[0], 2 * x) and made[1] == "done"
    with pytest.raises(ShapeError, match="twice is True in this network, not False"):
        loaded(x, unused, False)


def test_structures_are_plain_data() -> None:
    class Output(dict):  # type: ignore[type-arg]
        """As libraries return them."""

    value = {1: [np.zeros(1)], "k": Output(a=np.ones(1), b=(None, 2.5)), "p": Pair(True, "x")}
    arrays = [value[1][0], value["k"]["a"]]  # type: ignore[index]
    node = structure.described(
        value, lambda v: [id(a) for a in arrays].index(id(v)) if isinstance(v, np.ndarray) else None
    )
    node = json.loads(json.dumps(node))
    structure.checked(node, 2)
    made = structure.built(node, arrays)
    assert made["k"].a is arrays[1] and made["k"]["b"] == (None, 2.5) and made["p"].second == "x"
    assert made[1][0] is arrays[0] and structure.numbers_in(node) == [0, 1]
    given: dict[int, Any] = {}
    structure.taken(node, value, "argument", given)
    assert given[0] is arrays[0] and given[1] is arrays[1]
    for wrong in (float("nan"), object(), {(1, 2): 1}, torch):
        with pytest.raises(TypeError):
            structure.described({"a": [wrong]}, lambda _: None)
    for bad in (
        1,
        {},
        {"value": []},
        {"tensor": 2},
        {"tensor": True},
        {"dict": [["a"]]},
        {"no": 1},
    ):
        with pytest.raises(ValueError, match=r"no "):
            structure.checked({"list": [bad]}, 2)


def test_another_network_in_the_same_place_is_another(tmp_path: Path) -> None:
    x, place = torch.ones(2, 3), tmp_path / "net.syno"
    loaded, wanted = [], []
    for scale in (1, 2):
        model = nn.Linear(3, 4).eval()
        syno.export(syno.compile(model, x), place, example=scale * x)
        loaded.append(syno.load(place))
        with torch.no_grad():
            wanted.append(model(x))
        shutil.rmtree(place)
    for network, result in zip(loaded, wanted, strict=True):
        torch.testing.assert_close(network(x), result)


def test_folders_for_torch_are_loaded_too(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval()
    x = torch.ones(2, 3)
    syno.export(model, tmp_path / "model.syno", example=x)
    with torch.no_grad():
        torch.testing.assert_close(syno.load(tmp_path / "model.syno")(x), model(x))
    (tmp_path / "model.syno" / "model.pt2").write_bytes(b"nothing")
    with pytest.raises(FormatError, match="cannot be loaded"):
        syno.load(tmp_path / "model.syno")


def test_without_a_c_compiler_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast, _ = compiled("doubles")
    monkeypatch.setattr(network_bundle, "c_compiler", lambda: None)
    monkeypatch.setattr(network_bundle, "sampled", None)
    with pytest.raises(FormatError, match="apt-get install gcc"):
        syno.export(fast, tmp_path / "net.syno")
    assert not list(tmp_path.iterdir())


def test_forked_children_run_it_on_threads_of_their_own(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(8, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3)).eval()
    syno.export(syno.compile(model, torch.randn(1, 8, 32, 32), threads=2), tmp_path / "net.syno")
    script = f"""
import os
import numpy as np
import syno
loaded = syno.load({str(tmp_path / "net.syno")!r})
assert loaded.threads == 2
inputs = loaded.example(1)
wanted = loaded.run(inputs)[0]
for threads in (1, 2, 3):
    assert np.array_equal(loaded.run(inputs, num_threads=threads)[0], wanted)
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(loaded.run(inputs)[0], wanted) and loaded.verify() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("done")
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "done", done.stderr


# What is refused


def sealed(folder: Path, change: Any) -> None:
    """Changes the manifest, and makes its digest fit."""
    path = folder / bundle.MANIFEST
    content = json.loads(path.read_text())
    change(content)
    manifest = msgspec.convert(content, bundle.Manifest)
    path.write_bytes(msgspec.json.encode(manifest.sealed()))


def copied(branches: Path, tmp_path: Path, name: str = "copy") -> Path:
    place = tmp_path / name
    shutil.copytree(branches, place)
    return place


def test_another_cpu_is_refused_before_its_code_is_read(branches: Path, tmp_path: Path) -> None:
    place = copied(branches, tmp_path)
    (place / bundle.LIBRARY).unlink()
    for change, words in [
        ({"needs": ["avx2", "avx512fp16", "sve2"]}, "has no .*sve2"),
        ({"triple": "riscv64-unknown-linux-gnu"}, "this CPU .* is one of"),
        ({"vector_bits": 4096}, "vectors of"),
        ({"scalable_bits": 256}, "SVE registers"),
    ]:
        here = copied(place, tmp_path, next(iter(change)))
        sealed(here, lambda m, change=change: m["made_for"].update(change))
        with pytest.raises(KernelError, match=words):
            syno.load(here)


def test_a_named_cpu_counts(branches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not syno.load(branches).manifest.made_for.needs:
        pytest.skip("made for a CPU without vector instructions")
    monkeypatch.setenv("SYNO_CPU", "generic")
    with pytest.raises(KernelError, match="has no"):
        syno.load(branches)


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"manifest\.json cannot be read"):
        syno.load(tmp_path)
    for content, words in [
        ("[]", "JSON object"),
        ("{", "JSON object"),
        ("[" * 100_000, "JSON object"),
        ("{}", "format None"),
        ('{"format": "syno-compiled-network", "version": 2}', "version 2"),
        ('{"format": "syno-compiled-network", "version": true}', "version True"),
        ('{"format": "syno-compiled-network", "version": 1}', "missing required field"),
        ('{"format": "syno-bundle", "version": 99}', "which CPU"),
        (
            '{"format": "syno-bundle", "version": 99, "cpu": {"name": "x", "needs": []}}',
            "no bundle of version 3",
        ),
    ]:
        (tmp_path / bundle.MANIFEST).write_text(content)
        with pytest.raises(FormatError, match=words):
            syno.load(tmp_path)
    (tmp_path / bundle.MANIFEST).unlink()
    os.mkfifo(tmp_path / bundle.MANIFEST)
    with pytest.raises(FormatError, match="no file"):
        syno.load(tmp_path)


FLIPS = 12


@pytest.mark.parametrize("name", [bundle.MANIFEST, *bundle.FILES])
def test_damaged_files_are_refused(name: str, branches: Path, tmp_path: Path) -> None:
    place = copied(branches, tmp_path)
    path = place / name
    content = path.read_bytes()
    rng = np.random.default_rng(len(content))

    def used() -> None:
        loaded = syno.load(place)
        if name == bundle.SAMPLE:
            loaded.verify()
        elif name == bundle.GRAPH:
            _ = loaded.graph
        elif name == bundle.ARCHIVE:
            bundle.read_file(place, loaded.manifest, name)

    used()
    wrong = [content[: int(rng.integers(0, len(content)))] for _ in range(3)]
    wrong += [b"", content + b"\0", content[::-1]]
    for _ in range(FLIPS):
        flipped = bytearray(content)
        flipped[int(rng.integers(0, len(content)))] ^= 1 << int(rng.integers(0, 8))
        wrong.append(bytes(flipped))
    for each in wrong:
        path.write_bytes(each)
        if name == bundle.MANIFEST and _same_json(each, content):
            continue
        with pytest.raises(FormatError):
            used()
    path.unlink()
    with pytest.raises(FormatError, match=name):
        used()
    path.mkdir()
    with pytest.raises(FormatError, match="no file"):
        used()


def _same_json(a: bytes, b: bytes) -> bool:
    try:
        return bool(json.loads(a) == json.loads(b))
    except ValueError:
        return False


def test_files_of_two_bundles_do_not_mix(branches: Path, tmp_path: Path) -> None:
    syno.export(compiled("attending")[0], tmp_path / "other.syno")
    for name in (bundle.LIBRARY, bundle.WEIGHTS):
        place = copied(branches, tmp_path, f"with {name}")
        shutil.copy(tmp_path / "other.syno" / name, place / name)
        with pytest.raises(FormatError, match=name):
            syno.load(place)


def _tensor(manifest: Any, place: str) -> Any:
    return next(t for t in manifest["tensors"] if t["place"] == place)


LIES: dict[str, Any] = {
    "arena": lambda m: m.update(arena_bytes=0),
    "weight beyond": lambda m: _tensor(m, "weight").update(at=m["files"][bundle.WEIGHTS]["bytes"]),
    "negative": lambda m: _tensor(m, "weight").update(at=-64),
    "overlapping weights": lambda m: _tensor(m, "weight").update(
        at=[t for t in m["tensors"] if t["place"] == "weight"][1]["at"] + 8
    ),
    "unaligned": lambda m: _tensor(m, "weight").update(at=65),
    "input's shape": lambda m: (
        m["inputs"][0].update(shape=[2, 3, 60, 60]),
        m["tensors"][0].update(shape=[2, 3, 60, 60]),
    ),
    "input's shape alone": lambda m: m["inputs"][0].update(shape=[1]),
    "two negative extents": lambda m: m["inputs"][0].update(shape=[-2, -3, 6, 6]),
    "output's shape": lambda m: m["outputs"][0].update(shape=[2, 50]),
    "type": lambda m: m["tensors"][0].update(dtype="float64"),
    "no type": lambda m: m["tensors"][0].update(dtype="complex64"),
    "huge": lambda m: m["tensors"][0].update(shape=[1 << 40, 1 << 40]),
    "place": lambda m: _tensor(m, "output").update(place="weight"),
    "names": lambda m: m["tensors"][0].update(name=m["tensors"][1]["name"]),
    "no tensor": lambda m: m["steps"][0].update(reads=["nothing"]),
    "no kernel": lambda m: next(s for s in m["steps"] if s["kernel"]).update(kernel="main"),
    "no function": lambda m: next(s for s in m["steps"] if s["function"]).update(function="exec"),
    "attributes": lambda m: next(s for s in m["steps"] if s["function"]).update(attributes="]"),
    "shapes of a function": lambda m: next(s for s in m["steps"] if s["function"]).update(
        shapes=[[1 << 40], [2], [2, 5]]
    ),
    "no shapes": lambda m: next(s for s in m["steps"] if s["function"]).update(shapes=[]),
    "both": lambda m: m["steps"][0].update(kernel="a", function="b"),
    "order": lambda m: m["steps"].reverse(),
    "fewer steps": lambda m: m["steps"].pop(),
    "fewer arguments": lambda m: m["steps"][0]["reads"].pop(),
    "threads": lambda m: m["steps"][0].update(threads=1 << 20),
    "call": lambda m: m["call"]["parameters"].pop(),
    "structure": lambda m: m["call"].update(returns={"tensor": 99}),
    "deep": lambda m: m["call"].update(returns=_deep(200)),
    "sample": lambda m: m["sample"]["outputs"][0].update(at=1 << 40),
    "file": lambda m: m["files"].update({"../x": {"bytes": 1, "digest": ""}}),
    "no file": lambda m: m["files"].pop(bundle.GRAPH),
    "size": lambda m: m["files"][bundle.WEIGHTS].update(bytes=1 << 30),
}


def _deep(depth: int) -> Any:
    node: Any = {"value": 1}
    for _ in range(depth):
        node = {"list": [node]}
    return node


@pytest.mark.parametrize("lie", LIES)
def test_manifests_that_lie_are_refused(lie: str, branches: Path, tmp_path: Path) -> None:
    place = copied(branches, tmp_path)
    sealed(place, LIES[lie])
    with pytest.raises(FormatError):
        syno.load(place)


def test_random_lies_never_crash(branches: Path, tmp_path: Path) -> None:
    """In a process of its own: whatever a manifest says, it is refused in a sentence or runs within its memory."""
    place = copied(branches, tmp_path)
    done = subprocess.run(
        [sys.executable, __file__, str(place)],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and "refused" in done.stdout, done.stdout + done.stderr


def _parts(value: Any, way: tuple[Any, ...] = ()) -> Any:
    yield way
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _parts(each, (*way, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _parts(each, (*way, number))


def _lie(place: Path, content: Any, rng: np.random.Generator) -> bool:
    """One random change of a manifest; true where it was refused."""
    changed = json.loads(json.dumps(content))
    ways = [w for w in _parts(changed) if w and w[0] != "digest"]
    way = ways[int(rng.integers(0, len(ways)))]
    held = changed
    for key in way[:-1]:
        held = held[key]
    value = held[way[-1]]
    others: list[Any] = [0, 1, -1, 64, 1 << 62, "", "x", [], {}, None, 1.5]
    if isinstance(value, int):
        others += [value + 1, value - 1, value * 2, value + 4, value + 64]
    if isinstance(value, list) and value:
        others += [value[:-1], value + value[:1], value[::-1]]
    same = [w for w in ways if len(w) == len(way) and w[-1] == way[-1]]
    other: Any = changed
    for key in same[int(rng.integers(0, len(same)))]:
        other = other[key]
    others += [other] * 4
    held[way[-1]] = others[int(rng.integers(0, len(others)))]
    path = place / bundle.MANIFEST
    try:
        path.write_bytes(msgspec.json.encode(msgspec.convert(changed, bundle.Manifest).sealed()))
    except msgspec.ValidationError:
        path.write_text(json.dumps(changed))
    try:
        loaded = syno.load(place)
        loaded.run(loaded.example())
        loaded.verify()
        str(loaded)
    except SynoError:
        return True
    return False


def _random_lies(place: Path, count: int) -> None:
    rng = np.random.default_rng(0)
    content = json.loads((place / bundle.MANIFEST).read_text())
    refused = sum(_lie(place, content, rng) for _ in range(count))
    print(f"{refused} of {count} were refused")


if __name__ == "__main__":
    _random_lies(Path(sys.argv[1]), 400)
