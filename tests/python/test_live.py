"""Progress changes in place where somebody watches: one output in a notebook, one table on a terminal."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

import syno
from syno.errors import UnknownName
from syno.support import live as live_module
from syno.support.live import in_notebook, live, resolved
from syno.tuning import progress as progress_module
from syno.tuning.progress import shown


class Display:
    """What a notebook's front end would hold: outputs, each replaced by its latest content."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, kernel: bool = True) -> None:
        self.outputs: list[list[Any]] = []
        shell = types.SimpleNamespace(**({"kernel": object()} if kernel else {}))
        module: Any = types.ModuleType("IPython")
        module.get_ipython = lambda: shell
        display: Any = types.ModuleType("IPython.display")
        display.display = self.display
        monkeypatch.setitem(sys.modules, "IPython", module)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, shown: Any, display_id: bool) -> Any:
        assert display_id
        output = [shown]
        self.outputs.append(output)
        return types.SimpleNamespace(update=output.append)


def test_a_notebook_is_told_from_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SYNO_PROGRESS", raising=False)
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert not in_notebook()
    Display(monkeypatch, kernel=False)
    assert not in_notebook() and resolved("auto") == "log"
    Display(monkeypatch)
    assert in_notebook() and resolved("auto") == "bar"
    monkeypatch.setenv("SYNO_PROGRESS", "off")
    assert resolved("auto") == "off" and resolved("log") == "log"
    with pytest.raises(UnknownName, match="loud"):
        resolved("loud")


def test_one_output_is_replaced_a_few_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display(monkeypatch)
    clock = [100.0]
    monkeypatch.setattr(live_module.time, "monotonic", lambda: clock[0])
    with live() as shows:
        for i in range(100):
            shows.update(i)
            clock[0] += 0.1
        assert display.outputs[0][0] == 0
    assert len(display.outputs) == 1
    seen = display.outputs[0]
    assert seen == sorted(set(seen)) and 30 <= len(seen) <= 36
    assert seen[-1] == 99  # the last one is seen, however soon it came


def test_the_last_state_is_seen_after_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    display = Display(monkeypatch)

    def fail() -> None:
        with live() as shows:
            shows.update("first")
            shows.update("second")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert display.outputs == [["first", "second"]]


def test_tuning_shows_itself_in_the_cell(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SYNO_PROGRESS", raising=False)
    display = Display(monkeypatch)
    with shown("auto") as show:
        for done in range(8, 33, 8):
            show(done, 32, 100.0 / done)
    (output,) = display.outputs
    bundle = output[-1]._repr_mimebundle_([], [])
    assert "32/32 trials, best 3.12 us" in bundle["text/plain"] and "text/html" in bundle
    assert capfd.readouterr() == ("", "")


def test_tuning_shows_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_module, "_LINE_EVERY_S", 0.0)
    with shown("log") as show:
        show(8, 16, 2.5)
    assert capfd.readouterr() == ("", "syno: 8/16 trials, best 2.50 us\n")
    with shown("bar") as show:
        show(8, 16, 2.5)
    assert "8/16 trials, best 2.50 us" in capfd.readouterr().err
    with shown("off") as show:
        show(8, 16, 2.5)
    called: list[Any] = []
    with shown(lambda *now: called.append(now)) as show:
        show(8, 16, 2.5)
    assert called == [(8, 16, 2.5)] and capfd.readouterr() == ("", "")
    operator = syno.Operator.parse("y[m] = sum[k] a[m,k]", m=3, k=4)
    with pytest.raises(UnknownName, match="loud"):
        syno.tune(operator, trials=2, progress="loud")


@pytest.mark.filterwarnings("ignore")
def test_a_real_notebook_keeps_one_output(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    source = (
        "import os, warnings; os.environ.pop('SYNO_PROGRESS', None)\n"
        "warnings.simplefilter('ignore')\n"  # such as that of an engine that is out of date
        "from syno.tuning.progress import shown\n"
        "with shown('auto') as show:\n"
        "    for done in range(1, 6):\n"
        "        show(done, 5, 7.0)\n"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbclient.NotebookClient(
        notebook,
        timeout=PATIENCE_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    (output,) = notebook.cells[0].outputs
    assert output.output_type == "display_data"
    assert "5/5 trials, best 7.00 us" in output.data["text/plain"]
    assert "1/5" not in json.dumps(output.data)
