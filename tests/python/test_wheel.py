"""Wheels: the engine runs on what the wheel's tag names, and where it cannot, one sentence says why.

`scripts/wheel` itself builds, and tests the wheel in a new environment; here is what it decides with.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
from patience import PATIENCE_S

import syno
from syno import _core
from syno._engine import why_not

ROOT = Path(__file__).resolve().parents[2]
ENGINE = Path(str(_core.__file__))


@pytest.fixture(scope="module")
def wheel() -> ModuleType:
    loader = SourceFileLoader("wheel_script", str(ROOT / "scripts" / "wheel"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


# --- the engine


def test_the_engine_asks_for_no_newer_glibc_than_the_tag(wheel: ModuleType) -> None:
    shown, loads, newest = wheel.library_facts(ENGINE)
    assert newest <= wheel.GLIBC, f"an engine that needs glibc {newest} is no {wheel.PLATFORM}"
    assert shown == wheel.EXPORTED
    assert not any("stdc++" in name for name in loads), "an older libstdc++ must do"


def loaded_by(folder: Path) -> str:
    """What `import` of the engine in a copy of the package says, on stderr's last line."""
    done = subprocess.run(
        [sys.executable, "-c", "import syno; syno.Operator.parse('y[i] = x[i]', i=2)"],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr.strip().splitlines()[-1]


def copied(folder: Path, engine: bytes) -> Path:
    package = Path(syno.__file__).parent
    shutil.copytree(
        package, folder / "syno", ignore=shutil.ignore_patterns("_core*.so", "__pycache__")
    )
    (folder / "syno" / ENGINE.name).write_bytes(engine)
    return folder


def test_an_older_glibc_is_named_in_one_sentence(tmp_path: Path) -> None:
    newer = ENGINE.read_bytes().replace(b"\0GLIBC_2.34\0", b"\0GLIBC_9.34\0")
    said = loaded_by(copied(tmp_path, newer))
    assert "syno's engine needs glibc 9.34 or newer, and this system has glibc 2." in said
    assert "Debian 11 and RHEL 8 will not" in said


def test_a_damaged_engine_is_named_in_one_sentence(tmp_path: Path) -> None:
    said = loaded_by(copied(tmp_path, b"not a library" * 100))
    assert "syno's engine cannot be loaded" in said and "install syno again" in said


@pytest.mark.parametrize(
    ("linker", "machine", "libc", "words"),
    [
        ("invalid ELF header", "aarch64", "glibc 2.36", "runs on x86-64 CPUs, and this is aarch64"),
        ("libz.so.1: cannot open", "x86_64", "", "needs glibc, and this system has another"),
        (
            "libz.so.1: cannot open shared object file: No such file",
            "x86_64",
            "glibc 2.36",
            "needs the library libz.so.1, which is not installed",
        ),
    ],
)
def test_other_systems_are_named(linker: str, machine: str, libc: str, words: str) -> None:
    said = why_not(linker, machine, libc)
    assert words in said and "\n" not in said


def test_the_command_line_says_the_sentence_alone(tmp_path: Path) -> None:
    folder = copied(tmp_path, b"not a library" * 100)
    done = subprocess.run(
        [sys.executable, "-m", "syno", "doctor"],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "syno's engine cannot be loaded" in done.stderr
    assert "another version" not in done.stderr


# --- which wheel is used

VERSION = syno.__version__
NAME = f"syno-{VERSION}-cp311-cp311-manylinux_2_34_x86_64.whl"


@pytest.mark.parametrize(
    ("name", "system", "words"),
    [
        (NAME, ("cp311", "x86_64", (2, 34)), None),
        (NAME, ("cp311", "x86_64", (2, 41)), None),
        (NAME, ("cp312", "x86_64", (2, 36)), "is for Python cp311, and this is cp312"),
        (NAME, ("cp311", "aarch64", (2, 36)), "is for x86_64 CPUs, and this is aarch64"),
        (NAME, ("cp311", "x86_64", (2, 31)), "needs glibc 2.34 or newer, and this system has 2.31"),
        (NAME, ("cp311", "x86_64", (2, 28)), "Debian 11 and RHEL 8 will not"),
        (NAME, ("cp311", "x86_64", None), "needs glibc, and this system has another"),
        (NAME.replace(VERSION, "9.9"), ("cp311", "x86_64", (2, 36)), "is of version 9.9"),
        ("syno.whl", ("cp311", "x86_64", (2, 36)), "is not named"),
    ],
)
def test_a_wheel_that_does_not_fit_is_named(
    wheel: ModuleType, name: str, system: tuple[str, str, tuple[int, int] | None], words: str | None
) -> None:
    why = wheel.misfit(name, VERSION, *system)
    assert why is None if words is None else words in str(why)


def test_the_script_knows_the_version_and_this_system(wheel: ModuleType) -> None:
    assert wheel.version() == VERSION
    assert wheel.glibc() is None or wheel.glibc() >= (2, 17)


def test_the_demo_takes_the_wheel_that_fits(
    wheel: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(wheel, "DIST", tmp_path)
    assert wheel.fitting() == 1
    here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    monkeypatch.setattr(wheel.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(wheel, "glibc", lambda: (2, 36))
    good = tmp_path / f"syno-{VERSION}-{here}-{here}-manylinux_2_34_x86_64.whl"
    for name in (good.name, good.name.replace(VERSION, "0.0.9")):
        (tmp_path / name).touch()
    capsys.readouterr()
    assert wheel.fitting() == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(good) and "0.0.9" in said.err


@pytest.mark.parametrize("fault", ["", "check", "prove"])
def test_only_a_wheel_that_passed_lies_in_dist(
    wheel: ModuleType, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dist = tmp_path / "dist"
    before: list[list[Path]] = []

    def build(folder: Path) -> Path:
        (folder / NAME).write_bytes(b"new")
        return folder / NAME

    def step(name: str) -> None:
        before.append(list(dist.glob("syno-*.whl")))
        if name == fault:
            raise wheel.Wrong("it is not in order")

    monkeypatch.setattr(wheel, "DIST", dist)
    monkeypatch.setattr(wheel, "build", build)
    monkeypatch.setattr(wheel, "check", lambda made: step("check"))
    monkeypatch.setattr(wheel, "prove", lambda made, quick: step("prove"))
    monkeypatch.setattr(sys, "argv", ["scripts/wheel"])
    assert wheel.main() == (1 if fault else 0)
    assert before and not any(before), "it lay there before it was tested"
    assert [path.name for path in dist.iterdir()] == ([] if fault else [NAME])


@pytest.mark.parametrize("fits", [True, False])
def test_the_demo_says_whether_it_installs_a_wheel_or_builds(fits: bool, tmp_path: Path) -> None:
    clone = tmp_path / "a clone"
    commands = {
        "scripts/demo": (ROOT / "scripts" / "demo").read_text(encoding="utf-8"),
        "python": f'#!/bin/sh\n[ "$2" != --fitting ] || {{ {f"echo {NAME}" if fits else "exit 1"}; }}\n',
        "scripts/setup": '#!/bin/sh\necho "setup $*"\n',
        ".venv/bin/python": '#!/bin/sh\necho "venv $*"\n',
        ".venv/bin/syno": '#!/bin/sh\necho "syno $*"\n',
    }
    for name, text in commands.items():
        path = clone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    done = subprocess.run(
        [clone / "scripts" / "demo", "--seed", "3"],
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(clone / "python")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    if fits:
        assert first == f"installing dist/{NAME}; remove it to have these sources built"
        assert "setup --data" in rest and "setup " not in rest
        assert f"venv -m pip install -q --no-deps --force-reinstall {NAME}" in rest
    else:
        assert first == "building syno: no wheel in dist/ fits" and rest[0] == "setup "
    assert rest[-1] == "syno demo --seed 3"


# --- what is refused


def made(folder: Path, names: dict[str, bytes]) -> Path:
    path = folder / NAME
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in names.items():
            archive.writestr(name, data)
    return path


@pytest.fixture(scope="module")
def whole(wheel: ModuleType) -> dict[str, bytes]:
    """The files of a wheel in which nothing is wrong but what auditwheel would bring."""
    info = f"syno-{VERSION}.dist-info"
    tag = f"Tag: cp311-cp311-{wheel.PLATFORM}\n".encode()
    names = {"syno/py.typed": b"", "syno/_core.pyi": b"", f"{info}/WHEEL": tag}
    return names | {f"{info}/licenses/{name}": b"" for name in ("LICENSE", "THIRD_PARTY")}


def test_a_wheel_in_order_passes(
    wheel: ModuleType, whole: dict[str, bytes], tmp_path: Path
) -> None:
    wheel.check(made(tmp_path, whole))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({f"syno-{VERSION}.dist-info/licenses/THIRD_PARTY": None}, "lacks"),
        ({"syno/_core.pyi": None}, "lacks"),
        ({"tests/test_a.py": b""}, "installs outside its own folders"),
        (
            {f"syno-{VERSION}.dist-info/WHEEL": b"Tag: cp311-cp311-manylinux_2_17_x86_64\n"},
            "has the tags",
        ),
        ({"syno/_core.cpython-311-x86_64-linux-gnu.so": ENGINE}, "not every system has"),
        ({"syno/_core.fake.so": Path("/lib/x86_64-linux-gnu/libz.so.1")}, "shows"),
    ],
)
def test_a_wheel_that_is_not_in_order_is_refused(
    wheel: ModuleType,
    whole: dict[str, bytes],
    changes: dict[str, bytes | Path | None],
    words: str,
    tmp_path: Path,
) -> None:
    names = {name: data for name, data in whole.items() if name not in changes}
    for name, data in changes.items():
        if isinstance(data, Path):
            if not data.exists():
                pytest.skip(f"{data} is not there")
            names[name] = data.read_bytes()
        elif data is not None:
            names[name] = data
    with pytest.raises(wheel.Wrong, match=words):
        wheel.check(made(tmp_path, names))


def test_a_wheel_that_is_too_large_is_refused(
    wheel: ModuleType, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel, "LARGEST_BYTES", 100)
    with pytest.raises(wheel.Wrong, match="at most 100 are allowed"):
        wheel.check(made(tmp_path, whole))


def test_a_library_that_needs_a_newer_glibc_is_refused(
    wheel: ModuleType, whole: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheel, "GLIBC", (2, 2))
    path = made(tmp_path, whole | {"syno/_core.x.so": ENGINE.read_bytes()})
    with pytest.raises(wheel.Wrong, match=r"asks for glibc 2\.\d+; the tag says"):
        wheel.check(path)


# --- older CPUs

COMPILE = (
    "import syno; op = syno.Operator.parse('y[i,j] = sum[k] a[i,k] * b[k,j]', i=5, j=7, k=9);"
    "assert op.compile().verify().passed; print('verified')"
)


@pytest.mark.parametrize("cpu", ["Nehalem", "Haswell"])  # without AVX, without AVX-512
def test_kernels_are_compiled_for_older_cpus(cpu: str, tmp_path: Path) -> None:
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("qemu-user is not installed")
    done = subprocess.run(
        [emulator, "-cpu", cpu, sys.executable, "-c", COMPILE],
        cwd=tmp_path,
        env={
            "PYTHONPATH": str(Path(syno.__file__).parents[1]),
            "SYNO_CACHE": "",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout.strip() == "verified", done.stderr[-2000:]
