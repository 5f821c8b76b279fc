"""Pieces of work side by side: in order, and none begun after one that fails."""

from __future__ import annotations

import threading
import time

import pytest

from syno.support import together as module
from syno.support.together import together


@pytest.mark.parametrize("cores", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: cores)
    assert together(lambda n: n * n, range(20)) == [n * n for n in range(20)]
    assert together(lambda n: n, []) == []
    assert together(str, [7]) == ["7"]


def test_as_many_at_once_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 3)
    meeting = threading.Barrier(3, timeout=60)
    assert len(together(lambda n: meeting.wait(), range(3))) == 3


@pytest.mark.parametrize("cores", [1, 2])
def test_what_one_raises_leaves_those_that_nobody_began(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: cores)
    begun: list[int] = []

    def work(n: int) -> None:
        begun.append(n)
        if n == 0:
            raise KeyboardInterrupt
        time.sleep(0.01)

    with pytest.raises(KeyboardInterrupt):
        together(work, range(500))
    assert len(begun) < 500
