"""Kernels for other CPUs: objects that a cross compiler links, run under an emulator where one is installed."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest

from syno import _core
from syno.errors import FormatError, KernelError, UnknownName
from syno.kernels.targets import MACHINES, machine_of
from syno.operators.operator import Operator

AARCH64 = "aarch64-linux-gnu"
CROSS = "aarch64-linux-gnu-gcc"
needs_tools = pytest.mark.skipif(
    shutil.which(CROSS) is None or shutil.which("qemu-aarch64") is None,
    reason="needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user",
)
CONV = Operator.parse(
    "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]", n=1, o=6, c=4, h=7, w=5, r=3, s=3
)
SOFTMAX = Operator.parse("y[i,j] = exp(x[i,j]) / (sum[k] exp(x[i,k]))", i=5, j=21, k=21)
#: The kernel benchmark's forms of loop nests: dense, 1x1, product, depthwise.
BENCHMARK = {
    "dense": Operator.parse(
        "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]",
        n=1, o=64, c=64, h=28, w=28, r=3, s=3,
    ),
    "pointwise": Operator.parse("y[n,o,h,w] = sum[c] x[n,c,h,w] * k[o,c]", n=1, o=64, c=128, h=28, w=28),
    "product": Operator.parse("c[i,j] = sum[k] a[i,k] * b[k,j]", i=128, j=192, k=256),
    "depthwise": Operator.parse(
        "y[n,c,h,w] = sum[r,s] x[n,c,h+r-1,w+s-1] * k[c,r,s]", n=1, c=32, h=28, w=28, r=3, s=3
    ),
}  # fmt: skip


def test_machine_files_name_their_sources_and_fit_their_cpus():
    for name in MACHINES:
        machine, cpu = machine_of(name), _core.cpu_named(name, AARCH64)
        assert machine.source and not machine.measured
        assert (machine.vector_bits, machine.vector_registers) == (
            cpu.vector_bits,
            cpu.vector_registers,
        )
        assert _core.MachineModel.from_json(machine.to_json()) == machine
    assert machine_of("cortex-a76").peak_gflops() == pytest.approx(2 * 4 * 2 * 2.4)
    with pytest.raises(UnknownName, match="neoverse-v1"):
        machine_of("neoverse-v9")


def test_a_machine_that_nobody_described_is_none_of_this_machine():
    machine = _core.describe_machine(_core.cpu_named("neoverse-n1", AARCH64))
    assert machine.name == "neoverse-n1" and machine.vector_bits == 128 and machine.cores == 1


def test_unknown_targets_list_the_valid_ones():
    with pytest.raises(UnknownName, match=r"did you mean 'aarch64-linux-gnu'.*x86_64-linux-gnu"):
        CONV.compile_object(target="aarch64-linux-gnuu")
    with pytest.raises(UnknownName, match=r"cortex-a76.*generic\+sve256.*neoverse-v1"):
        CONV.compile_object(target=AARCH64, cpu="cortex-a67")
    with pytest.raises(UnknownName, match="float64"):
        CONV.compile_object(target=AARCH64, dtype="float23")
    with pytest.raises(KernelError, match="vectors of 256 bits, code for cortex-a76 has 128"):
        CONV.compile_object(target=AARCH64, cpu="cortex-a76", machine=machine_of("neoverse-v1"))


def test_an_object_is_for_its_target_and_computes_here_what_it_is_to():
    made = CONV.compile_object(target=AARCH64, cpu="cortex-a76")
    assert made.object_bytes()[18:20] == b"\xb7\0"  # EM_AARCH64
    assert "fmla" in made.asm() and made.symbol in made.llvm()
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(made.shapes[n]).astype(np.float32) for n in CONV.inputs]
    np.testing.assert_allclose(made(*arrays), CONV.reference(*arrays), atol=1e-4)
    core = made._core
    with pytest.raises(KernelError, match="cannot run"):
        core(*arrays)
    for refused in (
        lambda: core.call_pointers([0] * 3),
        lambda: core.verify(CONV.program),
        lambda: _core.measure_machine(core.cpu),
    ):
        with pytest.raises(KernelError, match="cannot run"):
            refused()
    assert not core.cpu.runs_here


def test_code_for_the_same_cpu_is_the_same_each_time():
    first, second = (SOFTMAX.compile_object(target=AARCH64, cpu="neoverse-v1") for _ in range(2))
    assert first.object_bytes() == second.object_bytes() and first.key == second.key


@pytest.mark.parametrize("cpu", MACHINES)
@pytest.mark.parametrize("case", BENCHMARK)
def test_kernels_keep_sums_in_registers_and_multiply_with_most_instructions(cpu, case):
    """No loop puts a vector on the stack. A register tile of m x n vectors needs m + n operands for m * n products,
    each loaded and with an address or a copy to all lanes; the loop that multiplies most has nothing else but its step,
    test and jump, and its guards."""
    made = BENCHMARK[case].compile_object(target=AARCH64, cpu=cpu)
    # Weights of a window are the same in all its places; those that registers do not hold are loaded again.
    taps = 9 if case == "depthwise" else 0
    assert all(loop.spills == 0 and loop.reloads <= taps for loop in made.innermost_loops)
    assert made.report.spills == 0 or taps
    shapes = re.findall(r"^register \w+_acc\d*: f32\[([\d, ]+)\]$", made.loops(), re.MULTILINE)
    tiles = []  # the first one, and what is left at its ends
    for shape in shapes:
        *extents, _ = map(int, shape.split(", "))
        tiles.append((*(n for n in extents if n > 1), 1, 1)[:2])
    guards = made.loops().count("if ")

    def of_tile(loop, rows, vectors):
        operands = loop.multiply_adds * (rows + vectors) / (rows * vectors) + guards * vectors
        products = loop.multiply_adds >= rows * vectors
        few = loop.instructions <= loop.multiply_adds + 2 * operands + 7 + 4 * guards
        return products and loop.loads <= operands and few

    assert any(of_tile(loop, *tiles[0]) for loop in made.innermost_loops), made.asm()
    loop = max(made.innermost_loops, key=lambda each: each.multiply_adds)
    assert any(of_tile(loop, *tile) for tile in tiles), made.asm()


@needs_tools
@pytest.mark.parametrize(
    ("cpu", "dtype"),
    [("cortex-a76", "float32"), ("neoverse-v1", "float32"), ("generic+sve512", "bfloat16"), (None, "float64")],
)  # fmt: skip
def test_c_for_a_target_is_linked_and_run_by_an_emulator(tmp_path, cpu, dtype):
    import syno

    done = syno.export(CONV, tmp_path / "c", format="c", dtype=dtype, target=AARCH64, cpu=cpu)
    assert {"main.c", "op.h", "op.o", "libop.so", "test_vector.bin", "op.json"} == set(done.files)
    assert done.checked == f"main.c compiled by {CROSS} and run by qemu-aarch64"
    assert (cpu or "generic") in done.cpu and AARCH64 in (done.path / "op.h").read_text("utf-8")
    # The line in main.c is what a user types.
    words = [*f"{CROSS} -static -O1 main.c op.o -lm -o main".split()]
    assert " ".join(words) in (done.path / "main.c").read_text("utf-8")
    subprocess.run(words, cwd=done.path, check=True)
    sve = cpu is not None and ("sve" in cpu or cpu == "neoverse-v1")
    for model, runs in {"cortex-a76": not sve, "max": True}.items():
        ran = subprocess.run(["qemu-aarch64", "-cpu", model, "./main"], cwd=done.path, check=False)
        assert (ran.returncode == 0) == runs, model


@needs_tools
def test_c_for_sve_says_where_registers_are_too_short(tmp_path):
    import syno

    done = syno.export(SOFTMAX, tmp_path / "c", format="c", target=AARCH64, cpu="generic+sve512")
    words = [*f"{CROSS} -static -O1 main.c op.o -lm -o main".split()]
    subprocess.run(words, cwd=done.path, check=True)
    for model, code in {"max,sve256=on": 3, "cortex-a76": 3, "max,sve512=on": 0}.items():
        ran = subprocess.run(
            ["qemu-aarch64", "-cpu", model, "./main"],
            cwd=done.path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert ran.returncode == code, model
        assert ("no SVE registers of 512 bits" in ran.stderr) == (code == 3)


def test_c_for_a_target_without_tools_says_what_was_checked(tmp_path, monkeypatch):
    import syno
    import syno.export.linking as linking

    monkeypatch.setattr(linking.shutil, "which", lambda *_: None)
    done = syno.export(CONV, tmp_path / "c", format="c", target=AARCH64, cpu="cortex-a76")
    assert "the code for cortex-a76 not run" in done.checked
    assert {"main.c", "op.h", "op.o", "test_vector.bin", "op.json"} == set(done.files)


def test_only_c_is_for_a_target(tmp_path):
    import syno

    with pytest.raises(FormatError, match="only 'c'"):
        syno.export(CONV, tmp_path / "out", format="torch", target=AARCH64)
    with pytest.raises(UnknownName, match="aarch64-linux-gnu"):
        syno.export(CONV, tmp_path / "out", format="c", target="sparc-linux-gnu")
    assert list(tmp_path.iterdir()) == []


def test_named_cpus_of_this_architecture_are_targets_too():
    made = CONV.compile_object(target="x86_64-linux-gnu", cpu="x86-64-v3")
    assert "ymm" in made.asm() and made._core.cpu.vector_bits == 256


@needs_tools
def test_a_network_is_exported_for_a_target(tmp_path):
    torch = pytest.importorskip("torch")
    import syno
    from syno.torch import Op

    torch.manual_seed(0)
    model = torch.nn.Sequential(Op(CONV), torch.nn.ReLU())
    done = syno.export(
        model, tmp_path / "c", format="c", example=torch.randn(1, 4, 7, 5), target=AARCH64, cpu="neoverse-v1"
    )  # fmt: skip
    assert done.checked.endswith("run by qemu-aarch64")


def test_what_code_for_a_cpu_may_use() -> None:
    assert {"avx2", "fma"} <= set(_core.cpu_named("x86-64-v3", "x86_64-linux-gnu").enabled)
    assert "avx512f" not in _core.cpu_named("znver3", "x86_64-linux-gnu").enabled
    assert "sve" in _core.cpu_named("neoverse-v1", AARCH64).enabled
    assert _core.cpu_named("generic+sve256", AARCH64).enabled == ["sve"]
    here = _core.cpu_named("host")
    assert here.enabled == sorted(
        word[1:] for word in here.features.split(",") if word.startswith("+")
    )
