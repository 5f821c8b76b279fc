"""Collections while a network is compiled."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from syno.support.garbage import new_garbage_only


class Ring:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    """Tests run with what they imported frozen."""
    gc.unfreeze()
    yield
    assert gc.get_freeze_count() == 0
    gc.freeze()


def test_what_is_made_meanwhile_is_collected_and_what_was_there_afterwards() -> None:
    gc.disable()
    before = Ring()
    old = weakref.ref(before)
    del before
    with new_garbage_only():
        meanwhile = weakref.ref(Ring())
        gc.collect()
        assert meanwhile() is None
        assert old() is not None
    gc.collect()
    assert old() is None
    gc.enable()


def test_only_the_last_one_out_thaws_and_an_error_does_not_leave_it_frozen() -> None:
    reached, leave = threading.Event(), threading.Event()

    def other() -> None:
        with new_garbage_only():
            reached.set()
            leave.wait(10)

    thread = threading.Thread(target=other)

    @new_garbage_only()
    def fails() -> None:
        thread.start()
        assert reached.wait(10)
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fails()
    assert gc.get_freeze_count() > 0
    leave.set()
    thread.join()
    assert gc.get_freeze_count() == 0


def test_what_a_program_froze_stays_so() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        # Frozen objects that nobody holds any more die all the same, here of another thread: no more, and few less.
        with new_garbage_only():
            assert frozen - 1000 < gc.get_freeze_count() <= frozen
        assert frozen - 1000 < gc.get_freeze_count() <= frozen
    finally:
        gc.unfreeze()


def test_as_a_decorator_each_call_is_one() -> None:
    seen = []

    @new_garbage_only()
    def call() -> None:
        seen.append(gc.get_freeze_count() > 0)

    call()
    call()
    assert seen == [True, True]
