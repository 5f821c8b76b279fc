"""Every integer that the engine takes, one after the other replaced by an odd one; run as a program, in a child.

Prints `call <row> <argument> <value>` before each call, so that whoever started it knows which one ended it, and
`wrong …` where something other than a result or a sentence came back. Arguments: how many calls to skip.
"""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from syno import _core
from syno.errors import SynoError
from syno.gpu import gpu_named

ODD = (0, -1, 1, 2**31 - 1, 2**31, -(2**31), 2**32, 2**48, 2**62, 2**63 - 1, -(2**63), 2**64)
SENTENCES = (SynoError, TypeError, OverflowError, IndexError)
ADDRESS_SPACE = 8 << 30
PATIENCE_S = 2.0  # then a call gets a signal, as by Ctrl-C, and has to end


class Enough(BaseException):
    """Raised by the signal."""


def enough(number: int, frame: object) -> None:
    raise Enough


MATMUL = "y[i,j] = sum[k] a[i,k] * b[k,j]"
SIZES = {"i": 4, "j": 8, "k": 3}


def plane() -> _core.Program:
    return _core.Program.parse("y[i,j] = x[i,j]", shapes={"x": [3, 4]})


def program() -> _core.Program:
    return _core.Program.parse(MATMUL, sizes=SIZES)


def machine() -> _core.MachineModel:
    return _core.describe_machine()


def nest() -> _core.LoopNest:
    return _core.apply_schedule(program(), _core.default_schedule(program()))


def spec() -> _core.Spec:
    return _core.spec_named("test")


def space() -> _core.ScheduleSpace:
    return _core.ScheduleSpace(program(), machine())


def kernel_call(num_threads: int) -> object:
    a, b = np.ones((4, 3), np.float32), np.ones((3, 8), np.float32)
    return _core.compile_nest(nest())(a, b, num_threads=num_threads)


def call_pointers(threads: int) -> object:
    arrays = [np.ones(s, np.float32) for s in ((4, 3), (3, 8), (4, 8))]
    _core.compile_nest(nest()).call_pointers([a.ctypes.data for a in arrays], threads)
    return None


def merging(ask: str) -> Callable[..., object]:
    def asked(**numbers: int) -> object:
        graph = _core.Graph()
        graph.add_input("x", [3, 4], "float32")
        for n, name in enumerate(("a", "b")):
            graph.add_program(name, plane(), ["x" if n == 0 else "a.y"], [f"{name}.y"], "float32")
        graph.set_outputs(["b.y"])
        made = _core.Merging(graph)
        return getattr(made, ask)(**numbers), made.next(), made.graph().text()

    return asked


def executable(arena_bytes: int = 64, externals: int = 3, at: int = 0) -> _core.Executable:
    """A product of matrices into the caller's third buffer."""
    arguments = [("external", at), ("external", 1), ("external", 2)]
    step = ("kernel", _core.compile_nest(nest()), 1, arguments)
    return _core.Executable([step], arena_bytes, externals)


def run_executable(threads: int = 1, turns: int = 0, **given: int) -> object:
    arrays = [np.ones(s, np.float32) for s in ((4, 3), (3, 8), (4, 8))]
    addresses = [a.ctypes.data for a in arrays]
    made = executable(**given)
    return made.profile(addresses, threads, turns) if turns else made.run(addresses, threads)


def stored_at(dim: int) -> _core.Graph:
    graph = _core.Graph()
    graph.add_weight("w", [2, 3])
    graph.add_weight("b", [2])
    return graph.store_at("b", "w", dim)


def drawn_graph(shape: list[int], add: str) -> object:
    graph = _core.Graph()
    if add == "add_call":
        graph.add_call("c", "host", "{}", [], [("t", shape, "float32")])
    else:
        getattr(graph, add)("t", shape, "float32")
    graph.set_outputs(["t"])
    return graph.key(), _core.Graph.parse(graph.text()).dot()


def measured(**options: Any) -> object:
    made = _core.MeasureOptions()
    made.sample_s, made.samples, made.limit_s = 1e-4, 3, 20
    for name, value in options.items():
        setattr(made, name, value)
    return _core.measure_schedules(program(), [_core.default_schedule(program())], made)


def applied(name: str, **decision: Any) -> object:
    """A decision about the sum, as the first or after a usual schedule."""
    for before in (_core.Schedule(), _core.default_schedule(program())):
        try:
            made = _core.apply_schedule(program(), before.add(name, "y", **decision))
            made.verify()
        except SynoError:
            if before.text().count("\n") > 1:
                raise
    return None


def used(program: _core.Program) -> object:
    """What a user does with a program next."""
    program.verify()
    return program.cost(), program.operator_key(), program.structural_key(), str(program)


def parsed(text: str = MATMUL, **given: Any) -> object:
    return used(_core.Program.parse(text, **given))


def tree(**given: Any) -> object:
    return _core.Tree(spec(), **given).ask(1)


def told(ticket: int) -> object:
    made = _core.Tree(spec(), seed=0)
    made.ask(2)
    made.tell(ticket, 0.5)
    return None


def tensor_calls(kept: int) -> object:
    return _core.TensorCalls(torch.empty, torch.get_num_threads, kept=kept)


def dispatched(**given: Any) -> object:
    made = _core.TensorCalls(torch.empty, torch.get_num_threads)
    made.add(
        [_core.compile_nest(nest())],
        shapes=[(4, 3), (3, 8)],
        dtypes=[torch.float32] * 2,
        result_dtype=torch.float32,
        result_shapes=[(4, 8)],
        **{"orders": [[0, 1]], "threads": 1, **given},
    )
    return made((torch.ones(4, 3), torch.ones(3, 8)))


WINDOW = "y[o,h] = sum[c,r] x[c,h+r-1] * k[o,c,r]"


def rewritten(numbers: list[int]) -> object:
    """Every rewrite wherever it applies, with other numbers than its own."""
    window = _core.Program.parse(WINDOW, sizes={"o": 8, "h": 12, "c": 8, "r": 3})
    for rule, *_ in _core.rewrite_rows():
        for site in _core.rewrite_sites(window, rule)[:4]:
            other = _core.RewriteSite(site.scope, site.iterator, site.other, "", numbers)
            try:
                used(_core.rewrite(window, rule, other))
            except SynoError:
                continue
    return None


def spatial(**changed: Any) -> dict[str, Any]:
    usual = {"batch": 1, "in_size": [6], "kernel": [3], "stride": [1], "dilation": [1]}
    return {**usual, "pad_begin": [1], "pad_end": [1], **changed}


CONV = spatial(in_channels=2, out_channels=2, groups=1)
HELD: dict[str, Any] = {}


def held(name: str, make: Callable[[], Any]) -> Any:
    return HELD.setdefault(name, None) or HELD.update({name: make()}) or HELD[name]


def live_nest() -> _core.LoopNest:
    return _core.LoopNest.parse(
        "nest n\nparameter n in 1..9\ninput x: f32[n]\noutput y: f32[n]\nfor i in 0..n\n  y[i] = x[i]\n"
    )


def product(extent: int) -> _core.Program:
    return _core.Program.parse("y[i] = x[i] * 2", sizes={"i": extent})


def live_program() -> _core.Program:
    return _core.with_live_ends([([n], product(n)) for n in (8, 2, 5)], ["n"])


#: name in the stub -> (what is called, arguments of which each integer is replaced)
ROWS: dict[str, tuple[Callable[..., object], dict[str, Any]]] = {
    "Program.parse": (
        parsed,
        {"sizes": {"i": 4, "j": 8, "k": 3}, "shapes": {"a": [4, 3]}},
    ),
    "Program.at": (lambda i: program().at(i), {"i": 0}),
    "Program.cost": (lambda i: program().cost(i), {"i": 0}),
    "Program.interpret_points": (
        lambda points: program().interpret_points(
            {"a": [[1.0] * 3] * 4, "b": [[1.0] * 8] * 3}, "y", points
        ),
        {"points": [[0, 1], [3, 7]]},
    ),
    "Program.linear_rows": (
        lambda points: program().linear_rows({"b": [[1.0] * 8] * 3}, "y", "a", points),
        {"points": [[0, 1], [3, 7]]},
    ),
    "Program.operator_key": (
        lambda unordered: program().operator_key(unordered),
        {"unordered": [("a", 1)]},
    ),
    "Program.shape": (
        lambda valuation: program().shape("y", valuation),
        {"valuation": 0},
    ),
    "Program.with_permuted": (
        lambda order: used(program().with_permuted("a", order)),
        {"order": [1, 0]},
    ),
    "Program.with_valuations": (
        lambda valuations: used(
            _core.Program.parse("y[i] = x[i] * size(n)", sizes={"i": 3, "n": 2}).with_valuations(
                valuations
            )
        ),
        {"valuations": [{"i": 3, "n": 2}]},
    ),
    "PGraph.staged": (
        lambda max_stages: _core.named_operator("conv1x1", spec()).staged(max_stages=max_stages),
        {"max_stages": 100},
    ),
    "Tree.__init__": (tree, {"seed": 0}),
    "Tree.ask": (lambda k: _core.Tree(spec(), seed=0).ask(k), {"k": 2}),
    "Tree.tell": (told, {"ticket": 0}),
    **{
        f"Merging.{ask}": (merging(ask), {"producer": 0, "reader": 1})
        for ask in ("alone", "merge", "refuse", "wiring")
    },
    "Merging.goes_first": (merging("goes_first"), {"producer": 0}),
    "Merging.is_view": (merging("is_view"), {"number": 0}),
    "Merging.node": (merging("node"), {"number": 0}),
    "Executable.__init__": (run_executable, {"arena_bytes": 64, "externals": 3, "at": 0}),
    "Executable.run": (run_executable, {"threads": 1}),
    "Executable.profile": (run_executable, {"threads": 1, "turns": 3}),
    "Graph.add_call": (lambda shape: drawn_graph(shape, "add_call"), {"shape": [2, 3]}),
    "Graph.add_input": (lambda shape: drawn_graph(shape, "add_input"), {"shape": [2, 3]}),
    "Graph.add_weight": (lambda shape: drawn_graph(shape, "add_weight"), {"shape": [2, 3]}),
    "Graph.store_at": (stored_at, {"dim": 1}),
    "part_digests": (lambda size: _core.part_digests(b"some bytes", size), {"size": 4}),
    "plan_memory": (_core.plan_memory, {"items": [(64, 0, 1), (8, 1, 1)]}),
    "RewriteSite.__init__": (rewritten, {"numbers": [4, 3]}),
    "Schedule.add": (
        applied,
        {"name": "split", "loops": ["i"], "numbers": [2]},
    ),
    "Kernel.__call__": (kernel_call, {"num_threads": 1}),
    "Kernel.call_pointers": (call_pointers, {"threads": 1}),
    "Kernel.verify": (lambda seed: _core.compile_nest(nest()).verify(program(), seed), {"seed": 0}),
    "TensorCalls.__init__": (tensor_calls, {"kept": 4}),
    "TensorCalls.add": (dispatched, {"orders": [[0, 1]], "threads": 1, "runs_on": [1]}),
    "MachineModel.peak_gflops": (
        lambda element_bytes: machine().peak_gflops(element_bytes),
        {"element_bytes": 4},
    ),
    "MeasureOptions.compilers": (measured, {"compilers": 1}),
    "MeasureOptions.memory_bytes": (measured, {"memory_bytes": 1 << 20}),
    "MeasureOptions.pin": (measured, {"pin": -1}),
    "MeasureOptions.samples": (measured, {"samples": 3}),
    "MeasureOptions.threads": (measured, {"threads": 1}),
    "ScheduleSpace.__init__": (
        lambda threads: _core.ScheduleSpace(program(), machine(), threads=threads).sample(0),
        {"threads": 1},
    ),
    "ScheduleSpace.cross": (
        lambda seed: held("space", space).cross(
            held("space", space).starts()[0], held("space", space).starts()[-1], seed
        ),
        {"seed": 0},
    ),
    "ScheduleSpace.mutate": (
        lambda seed: held("space", space).mutate(held("space", space).starts()[0], seed),
        {"seed": 0},
    ),
    "ScheduleSpace.sample": (lambda seed: held("space", space).sample(seed), {"seed": 0}),
    "Kernel.viewed": (
        lambda shapes: str(_core.compile_nest(live_nest()).at([3]).viewed(shapes).arguments),
        {"shapes": [[3, 1], [1, 3]]},
    ),
    "Kernel.at": (lambda sizes: _core.compile_nest(live_nest()).at(sizes), {"sizes": [3]}),
    "LoopNest.specialised": (lambda sizes: live_nest().specialised(sizes), {"sizes": [3]}),
    "LoopNest.interpret": (
        lambda sizes: live_nest().interpret({"x": [1.0] * 3}, sizes),
        {"sizes": [3]},
    ),
    "mergeable": (
        lambda wanted: _core.mergeable(plane(), wanted),
        {"wanted": [("x", 0)]},
    ),
    "merge_dims": (
        lambda pairs, extent: str(_core.merge_dims(plane(), pairs, extent)),
        {"pairs": [("x", 0), ("y", 0)], "extent": 12},
    ),
    "with_live_ends": (
        lambda instances: _core.with_live_ends(
            [(sizes, product(extent)) for sizes, extent in instances], ["i"]
        ),
        {"instances": [([8], 8), ([4], 4), ([5], 5)]},
    ),
    "apply_schedule": (
        lambda sizes: _core.apply_schedule(live_program(), _core.Schedule(), sizes),
        {"sizes": [("n", 2, 8)]},
    ),
    "apply_prepacked": (None, {}),  # type: ignore[dict-item]  # as apply_schedule
    "construct_schedule": (
        lambda **given: _core.construct_schedule(program(), machine(), **given),
        {
            "threads": 1,
            "seed": 0,
            "iterations": 2,
            "walks": 1,
            "finalists": 1,
            "budget": 1,
            "spare_registers": 0,
            "constants_from": 0,
            "strides": {"a": [3, 1]},
        },
    ),
    "conv": (lambda **given: used(_core.conv(**given)), CONV),
    "conv_transposed": (
        lambda **given: used(_core.conv_transposed(**given)),
        {**CONV, "output_padding": [0]},
    ),
    "default_schedule": (
        lambda **given: _core.apply_schedule(
            program(), _core.default_schedule(program(), **given)
        ).verify(),
        {"threads": 1, "strides": {"a": [3, 1]}},
    ),
    "derivation": (
        lambda examples: _core.derivation(
            spec(), _core.named_operator("conv1x1", spec()), examples
        ),
        {"examples": 1},
    ),
    "elementwise": (
        lambda a, b: used(_core.elementwise("add", a=a, b=b)),
        {"a": [2, 3], "b": [2, 3]},
    ),
    "emit_c": (lambda **given: _core.emit_c(program(), **given), {"points": 4, "seed": 0}),
    "emit_triton": (
        lambda **given: str(_core.emit_triton(program(), gpu_named("h200"), **given)),
        {"variant": 1, "ranks": [1]},
    ),
    "verify_elsewhere": (
        lambda seed: (
            _core.verify_elsewhere(
                program(),
                _core.apply_schedule(program(), _core.default_schedule(program())),
                lambda arrays: list(
                    program().interpret(dict(zip("ab", arrays, strict=True))).values()
                ),
                seed,
            ).passed
        ),
        {"seed": 1},
    ),
    "enumerate_operators": (
        lambda **given: _core.enumerate_operators(spec(), **given),
        {"max_steps": 1, "threads": 1, "limit": 3},
    ),
    "explain": (
        lambda examples: _core.explain(spec(), _core.named_operator("conv1x1", spec()), examples),
        {"examples": 1},
    ),
    "g2bmm": (
        lambda **given: used(_core.g2bmm(**given)),
        {"batch": 1, "length": 4, "features": 2, "width": 1, "dilation": 1},
    ),
    "layer_norm": (
        lambda **given: used(_core.layer_norm(**given)),
        {"shape": [2, 3], "normalized_dims": 1},
    ),
    "matmul": (
        lambda **given: used(_core.matmul(**given)),
        {"m": 2, "n": 3, "k": 2, "batch": [2]},
    ),
    "nest_features": (
        lambda threads: _core.nest_features(nest(), machine(), threads=threads),
        {"threads": 1},
    ),
    "guessed_seconds": (
        lambda **given: _core.guessed_seconds(program(), machine(), **given),
        {"element_bytes": 4},
    ),
    "pool": (lambda **given: used(_core.pool("max", **given)), spatial(channels=2)),
    "predict_nest": (
        lambda **given: _core.predict_nest(nest(), machine(), **given, near=[]),
        {"threads": 1, "far": 1},
    ),
    "simulate_caches": (
        lambda **given: _core.simulate_caches(nest(), machine(), **given),
        {"lines_per_miss": 1},
    ),
    "sample_operators": (
        lambda **given: _core.sample_operators(spec(), **given, seconds=0.1),
        {"n": 2, "seed": 0, "threads": 1, "max_steps": 2, "min_steps": 1, "patience": 9},
    ),
    "search_derivations": (
        lambda **given: _core.search_derivations(program(), machine(), **given, seconds=0.02),
        {"depth": 1, "states": 20, "keep": 2, "element_bytes": 4, "workers": 2},
    ),
    "search_einnet": (
        lambda **given: _core.search_einnet(program(), machine(), **given, seconds=0.02),
        {
            "depth": 1,
            "converging": 2,
            "states": 20,
            "bytes": 1 << 24,
            "keep": 2,
            "element_bytes": 4,
        },
    ),
    "softmax": (lambda **given: used(_core.softmax(**given)), {"shape": [2, 3], "dim": 1}),
    "verify_at_sizes": (None, {}),  # type: ignore[dict-item]  # as Kernel.verify
    "verify_prepacked": (None, {}),  # type: ignore[dict-item]  # as Kernel.verify
    "warm_workspace": (_core.warm_workspace, {"bytes": 64}),
    "run_on_openmp": (None, {}),  # type: ignore[dict-item]  # takes addresses
    "why_empty": (lambda max_steps: _core.why_empty(spec(), max_steps=max_steps), {"max_steps": 2}),
}

#: decisions of a schedule by what they take; `Schedule.add` stands for them in the stub
DECISIONS: dict[str, dict[str, Any]] = {
    "split": {"loops": ["i"], "numbers": [2]},
    "layout split": {"name": "layout", "tensor": "y", "numbers": [0, 2, 2], "words": ["split"]},
    "layout pad": {"name": "layout", "tensor": "y", "numbers": [0, 1, 1], "words": ["pad"]},
    "layout unfold": {"name": "layout", "tensor": "y", "numbers": [0, 3, 1], "words": ["unfold"]},
    "layout store_at": {"name": "layout", "tensor": "y", "numbers": [0, 1], "words": ["store_at"]},
    "layout fuse": {"name": "layout", "tensor": "y", "numbers": [0, 2], "words": ["fuse"]},
    "layout reorder": {"name": "layout", "tensor": "y", "numbers": [1, 0], "words": ["reorder"]},
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where integers lie in nested arguments."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return
    if isinstance(value, int):
        yield path
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from places(part, (*path, key))
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            yield from places(part, (*path, index))


def replaced(value: Any, path: tuple[Any, ...], new: int) -> Any:
    if not path:
        return new
    if isinstance(value, dict):
        return {k: replaced(v, path[1:], new) if k == path[0] else v for k, v in value.items()}
    parts = [
        replaced(part, path[1:], new) if index == path[0] else part
        for index, part in enumerate(value)
    ]
    return type(value)(parts)


def calls() -> Iterator[tuple[str, Callable[..., object], dict[str, Any], tuple[Any, ...], int]]:
    rows = {name: row for name, row in ROWS.items() if row[0] is not None}
    for name, given in DECISIONS.items():
        rows[f"Schedule.add {name}"] = (applied, {"name": name.split()[0], **given})
    for name, (function, usual) in rows.items():
        for path in places(usual):
            for odd in ODD:
                yield name, function, usual, path, odd


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    signal.signal(signal.SIGALRM, enough)
    skipped = int(sys.argv[1])
    for number, (name, function, usual, path, odd) in enumerate(calls()):
        if number < skipped:
            continue
        where = f"{name} {'.'.join(map(str, path))} {odd}"
        print("call", number, where, flush=True)
        try:
            signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
            function(**replaced(usual, path, odd))
        except Enough:
            print("stopped", number, where, flush=True)
        except SENTENCES as error:
            if len(str(error)) > 5000:
                print("wrong", number, where, "a sentence of", len(str(error)), flush=True)
        except BaseException as error:
            print("wrong", number, where, type(error).__name__, str(error)[:200], flush=True)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    print("done", flush=True)


if __name__ == "__main__":
    main()
