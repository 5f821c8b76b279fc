"""`benchmarks/gpu.py` without a GPU: it says so, and checks small shapes in Triton's interpreter."""

from __future__ import annotations

import json
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
gpu: Any = pytest.importorskip("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--json"]) == 2
    said = capsys.readouterr()
    assert not said.out and "no CUDA device: torch" in said.err and "--interpret" in said.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--turns", "2"], "at least 3"),
        (["--cases", "51"], "between 0 and 50"),
        (["--workers", "0"], "at least 1"),
        (["--tune", "-1"], "at least 0"),
        (["--gpu", "h2000"], "did you mean 'h200'"),
    ],
)
def test_wrong_options_are_said(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu.main([*options, "--interpret"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.nightly
def test_small_shapes_are_checked_in_the_interpreter(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--interpret", "--cases", "2", "--json", "--gpu", "a100"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["passed"] and len(document["cases"]) == 3
    assert all(set(c["max_rel_err"]) == {"forward", "gradients"} for c in document["cases"])


def test_cases_are_fifty_operators_and_operator_1_at_batch_128() -> None:
    found = gpu.cases(50, small=False)
    assert len(found) == 54 and len({case.name for case in found}) == 54
    assert all(case.operator.shapes[case.operator.data[0]][0] == 128 for case in found)


def test_times_are_compared_turn_by_turn() -> None:
    times = {"syno": [1.0, 2.0, 3.0], "a": [2.0, 4.0, 6.0], "b": [9.0, 9.0, 9.0]}
    row = gpu.compared(times)
    assert row["best_form"] == "a" and row["ratio"] == 2.0 and row["us"] == 2.0
    made = gpu.summary([{"forward": row, "step": {**row, "ratio": 0.5}}])
    assert made == {
        "forward": {"geomean": pytest.approx(2.0), "lowest": 2.0},
        "step": {"geomean": pytest.approx(0.5), "lowest": 0.5},
    }


def test_forms_agree_with_the_reference_forward_and_step() -> None:
    """What is compared on a device, on the CPU: forms, their steps, and how far they are apart."""
    (case,) = gpu.cases(0, small=True)
    tensors = [torch.randn(case.operator.shapes[n]) for n in case.operator.inputs]
    cotangent = torch.randn(case.operator.shapes[case.operator.outputs[0]])
    results = {}
    for name, form in gpu.forms_of(case.operator, torch.device("cpu")).items():
        for last in (False, True):
            leaves = gpu.laid(tensors, last)
            forward, step = gpu.forward_of(form, leaves)(), gpu.step_of(form, leaves, cotangent)()
            assert gpu.difference(forward, step[:1]) < 1e-5
            results[name, last] = step
    assert len(results) >= 4
    first, *others = results.values()
    assert all(gpu.difference(other, first) < gpu.APART for other in others)
    assert gpu.difference([first[0] * 1.1], [first[0]]) == pytest.approx(0.1, rel=1e-3)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_case_on_the_device() -> None:
    options = gpu.arguments().parse_args(["--turns", "3", "--tune", "2"])
    row = gpu.measured(gpu.cases(0, small=True)[0], options)
    assert row["forward"]["ratio"] > 0 and row["step"]["ratio"] > 0
