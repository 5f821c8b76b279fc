"""A setting holds for its block, and is heard whatever ran before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import syno
from syno import _core
from syno import config as module


def test_a_setting_holds_for_its_block(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SYNO_CPU", raising=False)
    monkeypatch.delenv("SYNO_CACHE", raising=False)
    before = _core.host_cpu().name
    with syno.config(cpu="x86-64-v3", cache=tmp_path):
        assert _core.host_cpu().name == "x86-64-v3"
        assert module.cache_directory() == tmp_path
    assert _core.host_cpu().name == before
    assert "SYNO_CPU" not in os.environ
    with pytest.raises(ZeroDivisionError), syno.config(cpu="generic"):
        raise ZeroDivisionError
    assert "SYNO_CPU" not in os.environ
