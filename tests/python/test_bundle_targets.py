"""Targets that have neither torch nor a compiler: networks travel to them as exported files."""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import session_fakes as fakes
from test_session import run, start

from syno import _core, executors
from syno.errors import FormatError, SessionError, UnknownName
from syno.session import Component, bundled, targets
from syno.session.bundled import BundleTimer, ExportRequest, Parcel, exported, packed, unpacked
from syno.session.protocols import ORIGINAL, MeasureRequest, TimeRequest
from syno.session.targets import Lent

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no linker for exports")

EXPORTING = Component(reference="test_bundle_targets:Exporting")


def small(width: int) -> tuple[Any, Any]:
    """A network and its example."""
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, width), torch.nn.ReLU(), torch.nn.Linear(width, 4)]
    return torch.nn.Sequential(*layers).eval(), torch.randn(2, 16)


class Exporting(fakes.Clock):
    """Here it needs no torch to measure; there it would."""

    def measure(self, request: MeasureRequest) -> Any:
        if os.environ.get("SYNO_TEST_BARE"):
            import torch

            assert torch
        return super().measure(request)

    def export(self, request: ExportRequest) -> None:
        chosen = fakes.numbers(request.assignment)
        if 31 in chosen:
            raise ValueError("PyTorch would compute it")
        exported(request, lambda: small(16 + 16 * sum(chosen)))


def _bare() -> None:
    folder = tempfile.mkdtemp(prefix="syno-bare-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (Path(folder) / "torch.py").write_text("raise ImportError('no torch on this machine')\n")
    sys.path.insert(0, folder)
    os.environ |= {"SYNO_TEST_BARE": "1", "PATH": folder}


def bare() -> ProcessPoolExecutor:
    """A process of a machine without torch and without any program."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_bare)


def lent(**more: Any) -> Lent:
    return Lent(executors.futures("test_bundle_targets:bare"), **more)


@pytest.fixture(scope="module")
def parcels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of two networks."""
    folder = tmp_path_factory.mktemp("parcels")
    made = []
    for width in (16, 48):
        made.append(folder / f"{width}")
        asked = ExportRequest(
            candidate=0, assignment={}, threads=1, time_limit_s=60.0, parcel=str(made[-1])
        )
        exported(asked, lambda width=width: small(width))  # type: ignore[misc]
    return made


def test_networks_are_timed_where_there_is_no_torch(tmp_path: Path) -> None:
    one = lent(send="bundle")
    with start(tmp_path, measurer=EXPORTING, targets={"pi": ""}) as session:
        run(session, budget=4, targets={"pi": one})
        candidates = session.candidates()
        chosen = {c.expr: c for c in candidates}
        assert "y = 31" in chosen and session.baseline is not None
        timed = [c for c in candidates if c.targets_us]
        assert len(timed) == len(candidates) - 1 and "pi" in session.baseline.targets_us
        assert all(c.targets_us["pi"] > 0 for c in timed)
        status = session.status()["targets"]["pi"]
        assert "cannot be exported" in status["cannot"][chosen["y = 31"].id]
        record = timed[0].timing_on("pi")
        assert record is not None and record.verified and record.samples >= 3
        said = [event["what"] for event in session.events(500)]
        assert any("pi are of networks compiled and exported here for" in what for what in said)
    one.executor.close()
    # The same machine cannot build a network from the task.
    other = lent()
    with (
        start(tmp_path / "task", measurer=EXPORTING, targets={"pi": ""}) as session,
        pytest.raises(SessionError, match="no torch on this machine"),
    ):
        run(session, budget=1, targets={"pi": other})
    other.executor.close()


def test_a_cpu_that_lacks_instructions_is_refused_before_work_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bundled.timer

    def timer(cpu: str) -> Component:
        row = real(cpu).options["made_for"]
        needs = {**row, "needs": [*row["needs"], "avx9"]}
        return Component(reference=real(cpu).reference, options={"made_for": needs})

    monkeypatch.setattr(targets, "timer", timer)
    one = lent(send="bundle")
    with start(tmp_path, measurer=EXPORTING, targets={"pi": ""}) as session:
        with pytest.raises(
            SessionError, match=r"(?s)pi cannot measure: .* has no avx9.*networks are compiled for"
        ):
            run(session, budget=1, targets={"pi": one})
        assert not session.trained
    one.executor.close()


def test_what_is_sent_and_for_which_cpu_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = executors.targets(["pi=test_bundle_targets:bare,send=bundle,cpu=generic"])
    assert (found["pi"].send, found["pi"].cpu) == ("bundle", "generic")
    found["pi"].executor.close()
    for text, error, words in (
        ("pi=test_bundle_targets:bare,send=bundel", UnknownName, "did you mean 'bundle'"),
        ("pi=test_bundle_targets:bare,send=bundle,cpu=znver9", UnknownName, "znver"),
        ("pi=test_bundle_targets:bare,cpu=generic", SessionError, "send='bundle'"),
    ):
        with pytest.raises(error, match=words):
            executors.targets([text])
    monkeypatch.setattr(_core, "cpu_named", lambda name: _core_cpu("cortex-a76"))
    with pytest.raises(SessionError, match="this CPU cannot run them"):
        bundled.timer("cortex-a76")


_named = _core.cpu_named


def _core_cpu(name: str) -> Any:
    return _named(name, "aarch64-linux-gnu")


def test_networks_are_compiled_for_the_cpu_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNO_CPU", "")
    asked = ExportRequest(
        candidate=0,
        assignment={},
        threads=1,
        time_limit_s=60.0,
        parcel=str(tmp_path / "p"),
        cpu="generic",
    )
    exported(asked, lambda: small(16))
    monkeypatch.delenv("SYNO_CPU")
    unpacked(tmp_path / "p", tmp_path)
    assert (
        json.loads((tmp_path / "manifest.json").read_bytes())["made_for"]
        == (bundled.timer("generic").options["made_for"])
    )


def test_two_networks_take_turns(parcels: list[Path]) -> None:
    timer = bundled.timer("").make()
    assert isinstance(timer, BundleTimer)
    timer.check()
    small, large = map(str, parcels)
    asked = TimeRequest(candidate=1, threads=1, time_limit_s=60.0, network=large, original=small)
    found = timer.time(asked)
    assert found.latency_us > 0 and found.peers_us[ORIGINAL] > 0 and found.batch == 2
    assert found.runner == "compiled" and found.max_rel_err is not None and found.max_rel_err < 1e-4


def test_what_is_no_network_is_not_run(tmp_path: Path, parcels: list[Path]) -> None:
    whole = msgspec.msgpack.decode(parcels[0].read_bytes(), type=Parcel).files
    wrong = {
        "elsewhere": ({**whole, "../evil": b""}, r"files differ in.*evil"),
        "less": ({n: c for n, c in whole.items() if n != "kernels.so"}, r"differ in.*kernels\.so"),
        "library": ({**whole, "kernels.so": whole["kernels.so"][:-1] + b"x"}, "changed or damaged"),
        "manifest": ({**whole, "manifest.json": b"{}"}, "no compiled network"),
    }
    timer = bundled.timer("").make()
    for name, (files, words) in wrong.items():
        path = tmp_path / name
        path.write_bytes(msgspec.msgpack.encode({"files": files}))
        asked = TimeRequest(candidate=1, threads=1, time_limit_s=60.0, network=str(path))
        with pytest.raises(FormatError, match=words):
            timer.time(asked)
    for content in (b"", b"\x81\xa5files\x93", msgspec.msgpack.encode({"files": {}, "more": 1})):
        (tmp_path / "p").write_bytes(content)
        with pytest.raises(FormatError, match="no network came"):
            unpacked(tmp_path / "p", tmp_path)
    assert not (tmp_path.parent / "evil").exists()


def test_a_network_that_is_too_large_does_not_travel(
    tmp_path: Path, parcels: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked(parcels[0], tmp_path)
    monkeypatch.setattr(bundled, "MOST_FILE_BYTES", 1000)
    with pytest.raises(FormatError, match=r"has .*KiB, and 1000 bytes travel|has .* travel"):
        packed(tmp_path)
    with pytest.raises(FormatError, match="is no network's"):
        unpacked(parcels[0], tmp_path)
