"""Tables that live as long as the process forget what was not used for longest, and nothing is wrong for it."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import syno
from syno.kernels import construct as construct_module
from syno.kernels import kernel as kernel_module
from syno.operators.operator import Operator
from syno.support.bounded import Bounded


def test_the_least_recently_used_entry_makes_room() -> None:
    table: Bounded[str, int] = Bounded(2)
    table.setdefault("a", 1)
    table.setdefault("b", 2)
    assert table.get("a") == 1  # now "b" is older
    assert table.setdefault("a", 7) == 1  # the first one stays
    table.setdefault("c", 3)
    assert len(table) == 2
    assert (table.get("a"), table.get("b"), table.get("c")) == (1, None, 3)
    table.clear()
    assert len(table) == 0
    with pytest.raises(ValueError, match="limit=0"):
        Bounded(0)


def test_many_threads_keep_the_limit() -> None:
    table: Bounded[int, int] = Bounded(5)

    def work(seed: int) -> None:
        for i in range(300):
            key = (seed * 7 + i) % 13
            assert table.setdefault(key, key) == key
            assert table.get((key + 1) % 13) in (None, (key + 1) % 13)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(table) == 5


def test_a_destructor_may_use_the_table() -> None:
    table: Bounded[int, Any] = Bounded(1)

    class Entry:
        def __del__(self) -> None:
            table.get(0)

    table.setdefault(0, Entry())
    table.setdefault(1, Entry())
    table.clear()
    assert len(table) == 0


def product(n: int) -> Operator:
    return Operator.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", m=2, n=n, k=3)


def test_kernels_and_schedules_that_nobody_holds_are_freed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernel_module, "_kernels", Bounded(2))
    monkeypatch.setattr(construct_module, "_constructed", Bounded(2))
    with syno.config.config(cache=str(tmp_path)):
        held = product(4).compile()
        first = weakref.ref(product(5).compile())
        assert product(5).compile() is first()
        for n in (6, 7):
            product(n).compile()
        gc.collect()
        assert first() is None
        assert len(kernel_module._kernels) == len(construct_module._constructed) == 2
        a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
        assert (held(a, b) == 3).all()  # forgotten, not taken away
        again = product(4).compile()
        assert again is not held and again.report.from_cache
        assert (again(a, b) == 3).all()


def test_functions_keep_few_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from syno.torch import native, ops

    monkeypatch.setattr(ops, "_with_kernels", {})
    monkeypatch.setattr(ops, "KEPT_FUNCTIONS", 3)
    monkeypatch.setattr(ops, "KEPT_SHAPES", 2)
    monkeypatch.setattr(native, "KEPT_SHAPES", 2)
    functions = []
    for i in range(3):
        text = f"y[m,n] = sum[k] a[m,k] * b[k,n] * {i + 2}"
        functions.append(ops.as_function(Operator.parse(text, m=2, n=3, k=4)))
    for _ in range(2):
        for i, function in enumerate(functions):
            for m in (2, 3, 5):
                a, b = torch.randn(m, 4), torch.randn(4, 3, requires_grad=True)
                y = function(a, b)
                torch.testing.assert_close(y, (i + 2) * a @ b)
                y.sum().backward()
                torch.testing.assert_close(
                    b.grad, ((i + 2) * a.T).sum(1, keepdim=True).expand(4, 3)
                )
                assert len(function._calls) == len(function._plans) == min(m - 1, 2)
                assert len(function._operators) <= 2
            assert len(ops._with_kernels) == min(2 * i + 2, 3) or len(ops._with_kernels) == 3
    assert not functions[0]._calls and functions[2]._calls  # three functions are more than fit


def test_the_function_that_was_called_longest_ago_gives_up_its_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    from syno.torch import ops

    monkeypatch.setattr(ops, "_with_kernels", {})
    monkeypatch.setattr(ops, "KEPT_FUNCTIONS", 2)
    busy, idle, third = (
        ops.as_function(Operator.parse(f"y[i] = x[i] * {i + 11}", i=5)) for i in range(3)
    )
    x = torch.randn(5)
    for function in (busy, idle, busy, third):  # a call that was served before counts as well
        function(x)
    assert busy._calls and third._calls and not idle._calls
    torch.testing.assert_close(idle(x), 12 * x)
