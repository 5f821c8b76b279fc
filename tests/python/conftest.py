"""What holds for all tests."""

from __future__ import annotations

import gc
import signal

import pytest

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would the programs that tests
# interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def older_objects_are_not_looked_through() -> None:
    """What libraries and earlier files hold stays: collections would look at millions of objects each time."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # libraries look for what is left when the process ends
