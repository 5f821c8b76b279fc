"""Work in a thread beside the caller's, and the check of a network as such work."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
import torch

import syno
from syno.errors import KernelError
from syno.graph import compile as compiling
from syno.graph.beside import Beside, Stopped


def test_it_is_done_by_one_thread_in_order_as_the_caller_would() -> None:
    with Beside("work") as beside:
        names = [
            beside.do(lambda n: (n, threading.current_thread().name), n).result() for n in (1, 2)
        ]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            kind = beside.do(lambda: (torch.ones(2, 2) @ torch.ones(2, 2)).dtype).result()
        plain = beside.do(lambda: (torch.ones(2, 2) @ torch.ones(2, 2)).dtype).result()
        gradients = beside.do(torch.is_grad_enabled).result()
    assert [n for n, _ in names] == [1, 2]
    assert names[0][1] == names[1][1] != threading.current_thread().name
    assert (kind, plain, gradients) == (torch.bfloat16, torch.float32, False)


def test_leaving_ends_work_that_asks_whether_to_go_on() -> None:
    began = threading.Event()

    def endless() -> None:
        while True:
            began.set()
            beside.going()

    with Beside("work") as beside:
        first, second = beside.do(endless), beside.do(endless)
        began.wait()
    assert isinstance(first.exception(), Stopped)
    assert second.cancelled()


def test_what_it_raises_reaches_who_asks() -> None:
    with Beside("work") as beside:
        failed = beside.do(int, "no number")
        with pytest.raises(ValueError, match="no number"):
            failed.result()


class Three(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 5, 3), torch.nn.ReLU(), torch.nn.Conv2d(5, 4, 3), torch.nn.Softmax(1)
        )

    def forward(self, x: Any) -> Any:
        return self.layers(x)


@pytest.fixture
def samplers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the threads in which float64 was asked."""
    names: list[str] = []
    real = compiling.sample_of

    def noted(*args: Any, **named: Any) -> Any:
        names.append(threading.current_thread().name)
        return real(*args, **named)

    monkeypatch.setattr(compiling, "sample_of", noted)
    return names


def test_a_network_is_checked_beside_making_its_kernels(
    samplers: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path))
    torch.manual_seed(0)
    model, x = Three().eval(), torch.randn(2, 3, 9, 8)
    first = syno.compile(model, (x,))
    assert first.network.verification and len(samplers) == 1
    assert samplers[0].startswith("syno-reference")
    # What is decided already says that kernels are kept, and the check may be.
    again = syno.compile(model, (x,))
    assert again.network.verification and samplers[1:] == [threading.current_thread().name]
    assert first.network.verification == again.network.verification
    syno.compile(model, (x,), verify=False, cache=False)
    assert len(samplers) == 2


def test_nothing_is_timed_while_float64_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path))
    done: list[bool] = []
    real, derivations = compiling.sample_of, compiling._Maker._derivations

    def slow(*args: Any, **named: Any) -> Any:
        time.sleep(0.5)
        made = real(*args, **named)
        done.append(True)
        return made

    def timed(self: Any) -> Any:
        assert done == [True]
        return derivations(self)

    monkeypatch.setattr(compiling, "sample_of", slow)
    monkeypatch.setattr(compiling._Maker, "_derivations", timed)
    model, x = Three().eval(), torch.randn(1, 3, 9, 8)
    assert syno.compile(model, (x,), derive=True, seconds=0.1).network.verification
    assert done == [True]


def test_a_failure_does_not_wait_for_the_check(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path))
    looked: list[str] = []
    began = threading.Event()

    def endless(network: Any, arrays: Any, going: Any) -> Any:
        began.set()
        while True:
            looked.append("node")
            going()

    def fails(*args: Any, **named: Any) -> None:
        began.wait()
        raise KernelError("[test] no kernel")

    monkeypatch.setattr(compiling, "sample_of", endless)
    monkeypatch.setattr(compiling, "make_together", fails)
    with pytest.raises(KernelError, match="no kernel"):
        syno.compile(Three().eval(), (torch.randn(1, 3, 9, 8),))
    assert looked
    assert not any(each.name.startswith("syno-reference") for each in threading.enumerate())
