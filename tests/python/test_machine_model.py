"""The machine model: a file that round-trips, is read strictly, and is measured once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import syno
from syno import _core
from syno.errors import FormatError
from syno.machines.model import (
    describe,
    load_machine,
    machine_file,
    machine_model,
    plot_roofline,
    save_machine,
)


def test_file_round_trips(tmp_path: Path) -> None:
    machine = _core.describe_machine()
    save_machine(machine, tmp_path / "deep" / "m.json")
    assert load_machine(tmp_path / "deep" / "m.json") == machine
    assert describe(machine)["peak_gflops"] == machine.peak_gflops()
    assert machine.peak_gflops(8) == machine.peak_gflops(4) / 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a JSON document"),
        ("[]", "not an object"),
        ('{"format": "other"}', "/format"),
        ("\x00", "not a JSON document"),
    ],
)
def test_damaged_file_is_refused_with_its_path(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(text)
    with pytest.raises(FormatError, match=said):
        load_machine(path)
    with syno.config.config(machine=str(path)), pytest.raises(FormatError, match=said):
        machine_model()


def test_missing_file_is_refused() -> None:
    with pytest.raises(FormatError, match="cannot be read"):
        load_machine("/nowhere/m.json")


def test_a_file_that_says_nothing_of_accesses_is_measured_again(tmp_path: Path) -> None:
    with syno.config.config(cache=str(tmp_path)):
        measured = machine_model(measure=True)
        facts = json.loads(measured.to_json())
        del facts["access_cycles"]
        machine_file().write_text(json.dumps(facts))
        typical = _core.describe_machine().access_cycles
        assert machine_model().access_cycles == typical and machine_model().measured
        again = machine_model(measure=True)
        assert set(again.access_cycles) == set(typical) and again.access_cycles != typical
        assert machine_model() == again
        with syno.config.config(machine=str(machine_file())):
            machine_file().write_text(json.dumps(facts))  # given: as it is
            assert machine_model(measure=True).access_cycles == typical


def test_measured_once_then_read(tmp_path: Path) -> None:
    with syno.config.config(cache=str(tmp_path)):
        typical = machine_model()
        assert not typical.measured
        measured = machine_model(measure=True)
        assert measured.measured and machine_file().is_file()
        assert machine_model() == measured
        machine_file().write_text("broken")
        assert machine_model() == typical  # a damaged file of the cache is no file


def test_a_model_measured_beside_something_else_says_so() -> None:
    facts = json.loads(_core.describe_machine().to_json()) | {"measured": True}
    said = {}
    for reached in (2.0, 1.9, 1.47, 0.98):
        rates = {"fma_per_cycle": reached, "fma_ports": 2}
        model = _core.MachineModel.from_json(json.dumps(facts | rates))
        assert model.fma_pipes == 2
        said[reached] = describe(model)["disturbed"]
    assert said[2.0] == said[1.9] == ""
    assert said[0.98].startswith("0.98 of 2 multiply-adds a cycle were reached")
    assert said[1.47].startswith("1.47 of 2 multiply-adds a cycle were reached")
    assert describe(_core.describe_machine())["disturbed"] == ""  # typical rates were not measured


def test_a_file_that_does_not_know_the_ports_is_measured_again(tmp_path: Path) -> None:
    with syno.config.config(cache=str(tmp_path)):
        measured = machine_model(measure=True)
        if not measured.fma_ports:
            pytest.skip("of this CPU they are not known")
        facts = json.loads(measured.to_json())
        del facts["fma_ports"]
        machine_file().write_text(json.dumps(facts | {"ghz": 1.25}))
        assert machine_model() == _core.describe_machine()
        assert machine_model(measure=True).ghz != 1.25
        given = tmp_path / "given.json"  # another's file is what it says
        given.write_text(json.dumps(facts | {"ghz": 1.25}))
        with syno.config.config(machine=str(given)):
            assert machine_model().ghz == 1.25


def test_schedules_are_those_of_the_core_however_disturbed_it_was() -> None:
    facts = json.loads(_core.describe_machine().to_json())
    program = _core.Program.parse(
        "y[o,h] = sum[c] x[c,h] * k[o,c]", shapes={"x": [512, 784], "k": [128, 512]}
    )
    made = {
        str(
            _core.construct_schedule(
                program, _core.MachineModel.from_json(json.dumps(facts | rate))
            ).schedule
        )
        for rate in ({"fma_per_cycle": 2.0}, {"fma_per_cycle": 1.47}, {"fma_per_cycle": 1.6})
    }
    assert len(made) == 1


def test_environment_names_another_machine(tmp_path: Path) -> None:
    facts = json.loads(_core.describe_machine().to_json())
    facts["name"] = "another machine"
    path = tmp_path / "other.json"
    path.write_text(json.dumps(facts))
    with syno.config.config(machine=str(path)):
        assert machine_model().name == "another machine"


def test_roofline_has_a_roof_for_each_level() -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    machine = _core.describe_machine()
    axes = plot_roofline(machine, {"matmul": (16.0, 50.0)})
    assert len(
        [
            line
            for line in axes.lines
            if line.get_label().split(",")[0] in {level.name for level in machine.levels}
        ]
    ) == len(machine.levels)
