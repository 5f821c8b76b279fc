"""Operators exported as Triton kernels run in Triton's interpreter, forward and backward, where there is no syno."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from test_export import OPERATOR, network  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

import syno  # noqa: E402
import syno.export.triton_kernels as triton_kernels  # noqa: E402
from syno.cli.main import app  # noqa: E402
from syno.errors import FormatError, UnknownName  # noqa: E402

TWO = syno.Operator.parse(
    "y[i,j] = sum[k] a[i,k] * b[k,j]; s[i] = sum[j] y[i,j] * y[i,j]; return y, s", i=5, j=6, k=7
)


def alone(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """A program beside the loader, without syno, in Triton's interpreter."""
    before = (
        "import os, sys; os.environ['TRITON_INTERPRET'] = '1'; sys.modules['syno'] = None; sys.dont_write_bytecode = True\n"
        "sys.path.insert(0, sys.argv[1]); import torch, loader; torch.set_num_threads(1)\n"
    )
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", before + script, str(folder)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Any:
    model, _, x = network()
    folder = tmp_path_factory.mktemp("triton") / "out"
    return syno.export(model, folder, format="triton", example=x, gpu="a100"), model, x


def test_the_operators_of_a_model_have_its_weights_and_gradients(written: Any) -> None:
    done, model, x = written
    assert {"loader.py", "manifest.json", "weights.safetensors", "test_vector.safetensors"} <= set(
        done.files
    )
    kernels = [name for name in done.files if name.startswith("kernels/")]
    assert len(kernels) == 2 and "without syno" in done.checked and "interpreter" in done.checked
    assert "only, the batch included" in str(done) and done.cpu == ""
    manifest = json.loads((done.path / "manifest.json").read_text("utf-8"))
    (entry,) = manifest["operators"]
    assert "A100" in manifest["gpu"] and entry["site"] == "2" and entry["weights"] == ["k", "p"]
    assert entry["around"] == ["after: the layer adds its bias, one value an output channel"]
    (done.path / "x.pt").unlink(missing_ok=True)
    inner = model[1](model[0](x)).detach()
    torch.save(inner, done.path / "x.pt")
    run = alone(
        done.path,
        "op = loader.load()\n"
        "x = torch.load(sys.argv[1] + '/x.pt').requires_grad_()\n"
        "y = op(x); y.sum().backward()\n"
        "torch.save([y.detach(), x.grad, op.k.grad, op.p.grad], sys.argv[1] + '/got.pt')\n"
        "for wrong in (x[:1], x.double()):\n"
        "    try: op(wrong)\n"
        "    except ValueError as error: print(error)\n"
        "try: loader.load('conv')\n"
        "except KeyError as error: print(error)\n",
    )
    assert run.returncode == 0, run.stderr
    first, second, third = run.stdout.splitlines()
    assert "the batch included" in first and "[1, 4, 6, 6]" in first and "float64" in second
    assert "'conv' is none of 2" in third
    got = torch.load(done.path / "got.pt")
    inner.requires_grad_()
    module = model[2].to_aten()
    y = module(inner)
    (y - module.bias.view(-1, 1, 1)).sum().backward()
    wanted = [(y - module.bias.view(-1, 1, 1)).detach(), inner.grad]
    wanted += [getattr(module, module._names[name]).grad for name in ("k", "p")]
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_what_was_written_checks_itself_again(written: Any) -> None:
    done, _, _ = written
    # The gradients, too: a damaged kernel of either is found.
    manifest = json.loads((done.path / "manifest.json").read_text("utf-8"))
    (call,) = manifest["operators"][0]["calls"]
    for kind, words in (
        ("forward", "2.0 differs by"),
        ("gradients", "the gradient of 2.0 differs"),
    ):
        path = done.path / call[kind]
        text = path.read_text("utf-8")
        path.write_text(text.replace("tl.full(", "1.0 + tl.full("), "utf-8")
        run = alone(done.path, "loader.check(device='cpu')")
        path.write_text(text, "utf-8")
        assert run.returncode == 1 and words in run.stderr, run.stderr


def test_several_outputs_in_another_dtype(tmp_path: Path) -> None:
    done = syno.export(TWO, tmp_path / "two", format="triton", dtype="float64")
    assert done.max_abs_err < 1e-10
    manifest = json.loads((done.path / "manifest.json").read_text("utf-8"))
    (entry,) = manifest["operators"]
    (call,) = entry["calls"]
    assert [name for name, _ in call["outputs"]] == ["y", "s"] and call["dtype"] == "float64"
    assert "H200" in manifest["gpu"]


def test_kernels_that_fail_their_check_are_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = triton_kernels._file

    def wrong(directory: Path, source: str) -> str:
        return real(directory, source.replace("tl.full(", "1.0 + tl.full("))

    monkeypatch.setattr(triton_kernels, "_file", wrong)
    with pytest.raises(FormatError, match=r"do not pass their check: .*differs by"):
        syno.export(OPERATOR, tmp_path / "out", format="triton")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_gets_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linear = torch.nn.Linear(2, 2)
    with pytest.raises(FormatError, match="reaches no operator"):
        syno.export(linear, tmp_path / "a", format="triton", example=torch.ones(1, 2))
    with pytest.raises(UnknownName, match=r"gpu 'h2000'.*h200"):
        syno.export(OPERATOR, tmp_path / "a", format="triton", gpu="h2000")
    with pytest.raises(FormatError, match="only 'triton' has tiles"):
        syno.export(OPERATOR, tmp_path / "a", format="c", gpu="h200")
    with pytest.raises(FormatError, match="only 'c' has machine code"):
        syno.export(OPERATOR, tmp_path / "a", format="triton", cpu="generic")
    monkeypatch.setattr(triton_kernels, "no_triton", lambda: "Triton is not installed: pip")
    with pytest.raises(FormatError, match="Triton is not installed"):
        syno.export(OPERATOR, tmp_path / "a", format="triton")
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_names_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["export", "run", "c1", "--format", "triton", "-o", "out", "--gpu"]
    done = CliRunner().invoke(app, [*words, "h2000"], env={"COLUMNS": "200"})
    assert done.exit_code == 2 and "h200" in done.output
    asked = {}

    def export_candidate(*arguments: Any, **options: Any) -> Any:
        asked.update(options)
        raise FormatError("[export] asked")

    monkeypatch.setattr("syno.searching.revisit.export_candidate", export_candidate)
    done = CliRunner().invoke(app, [*words, "a100"])
    assert done.exit_code == 1 and asked["gpu"] == "a100" and asked["format"] == "triton"
