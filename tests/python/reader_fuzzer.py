"""Feeds damaged and absurd input to every reader and binding: whatever comes, it ends in a typed error or a result.

Run as a program, it is the child that may die: `python reader_fuzzer.py --seed 1 --count 1000 --last FILE`. FILE holds the
case under way, so that the parent can show the one that killed the child.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import random
import re
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from syno import _core
from syno.errors import SynoError
from syno.operators import explain
from syno.operators.operator import Operator

#: A case that runs longer hangs; the child dies with its stack.
LIMIT_S = 300
#: Address space of the child beyond what the imports take: what runs away is refused, not killed for its memory.
MEMORY = 8 << 30

INTEGERS = [
    0,
    1,
    -1,
    2,
    3,
    5,
    7,
    127,
    255,
    256,
    2**31 - 1,
    2**31,
    -(2**31),
    2**36,
    2**40,
    2**40 + 1,
]
INTEGERS += [2**63 - 1, 2**63, -(2**63), 2**64, 10**30]
WORDS = [
    *"()[]{},;:=+-*/%<>^@.#\n\t \\\"'|&!~?$",
    "..",
    "+=",
    "**",
    "//",
    "==",
    "inf",
    "nan",
    "-inf",
    "fill",
    "size(k)",
]
WORDS += [
    "sum[k]",
    "max[r]",
    "prod[i]",
    "index(",
    "inside(",
    "select(",
    "ratio(1,0)",
    "size k;",
    "input x[2];",
    "é",
    "\0",
]
WORDS += [
    "return",
    "relu(",
    "1e999",
    "1e-400",
    "0.1",
    "null",
    "true",
    "[]",
    "{}",
    "[[[[",
    "\ud800",
    "x" * 300,
    "9" * 500,
]

FORMULAS = [
    "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]",
    "y[i,j] = exp(x[i,j]) / sum[k] exp(x[i,k])",
    "y[i] = (max[k] x[i,k] fill -inf) + ratio(1,3) * i ** 2",
    "y[h + r] += x[h] * w[r]",
    "input x[4, 8]; weight w[8]; t[a: 4] = mean[k: 8] x[a,k]*w[k]; y[a: 4] = select(t[a] < 0, 0, relu(t[a])) ; return y, t",
    "size N, C : primary = (4, 8), (2, 6); size k : coefficient = 3, 3\ninput x[N, C]; y[n: N, c: C] = sum[r: k] x[n, inside(c + r - k/2, C)]",
    "constant t[2] = {1, 1/2}; y[i: 2] = t[i] * index(i % 2 + size(k))",
    "y[i,j] = prod[k] a[i,k%3] * b[k/3,j]; z[i] = min[j] y[i,j]",
]
EXTENTS = {"n": 1, "o": 2, "c": 3, "h": 4, "w": 4, "r": 3, "s": 3, "i": 4, "j": 3, "k": 6}


class Mutator:
    """Damage to a text: of characters, of tokens, of numbers, of its structure."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def integer(self) -> int:
        rng = self.rng
        return rng.choice(INTEGERS) if rng.random() < 0.4 else rng.randint(-2, 12)

    def text(self, seed: str, others: list[str]) -> str:
        for _ in range(self.rng.choice([1, 1, 1, 2, 3, 6])):
            seed = self.rng.choice(
                [self.cut, self.insert, self.number, self.number, self.repeat, self.swap, self.nest]
            )(seed)
            if others and self.rng.random() < 0.1:
                other = self.rng.choice(others)
                seed = seed[: self.at(seed)] + other[self.at(other) :]
        return seed

    def at(self, text: str) -> int:
        return self.rng.randint(0, len(text))

    def cut(self, text: str) -> str:
        a = self.at(text)
        return text[:a] + text[a + self.rng.choice([1, 1, 2, 5, 40]) :]

    def insert(self, text: str) -> str:
        a = self.at(text)
        return text[:a] + self.rng.choice(WORDS) + text[a:]

    def number(self, text: str) -> str:
        found = list(re.finditer(r"-?\d+", text))
        if not found:
            return self.insert(text)
        place = self.rng.choice(found)
        return text[: place.start()] + str(self.integer()) + text[place.end() :]

    def repeat(self, text: str) -> str:
        a = self.at(text)
        part = text[a : a + self.rng.choice([1, 1, 3, 10, 60])]
        times = self.rng.choice([2, 2, 3, 20, 300, 3000])
        return text[:a] + part * min(times, 1 + 60_000 // max(1, len(part))) + text[a:]

    def swap(self, text: str) -> str:
        words = re.findall(r"\w+|\W", text)
        if len(words) < 2:
            return text
        a, b = self.rng.randrange(len(words)), self.rng.randrange(len(words))
        words[a], words[b] = words[b], words[a]
        return "".join(words)

    def nest(self, text: str) -> str:
        a, b = sorted((self.at(text), self.at(text)))
        left, right = self.rng.choice(
            [("(", ")"), ("[", "]"), ("{", "}"), ("-", ""), ("relu(", ")")]
        )
        times = self.rng.choice([1, 2, 50, 1000, 20000])
        return text[:a] + left * times + text[a:b] + right * times + text[b:]

    def tree(self, value: Any, depth: int = 0) -> Any:
        """A JSON document with one or a few of its values changed."""
        rng = self.rng
        if rng.random() < 0.02 * (1 + depth):
            return rng.choice(
                [
                    None,
                    True,
                    "",
                    "k",
                    [],
                    {},
                    -1,
                    0,
                    1e308,
                    0.5,
                    2**64,
                    "9" * 400,
                    [[[]]],
                    {"a": 1},
                    self.integer(),
                ]
            )
        if isinstance(value, dict):
            made = {k: self.tree(v, depth + 1) for k, v in value.items() if rng.random() > 0.01}
            if rng.random() < 0.02:
                made[rng.choice(["", "x", "format", *value])] = rng.choice([1, "x", [], None])
            return made
        if isinstance(value, list):
            made = [self.tree(v, depth + 1) for v in value if rng.random() > 0.02]
            return made * rng.choice([1] * 40 + [2, 50])
        if isinstance(value, str) and rng.random() < 0.05:
            return self.text(value, [])
        if isinstance(value, (int, float)) and rng.random() < 0.08:
            return self.integer()
        return value


class Fuzzer:
    """One generator of cases; `run(n)` is the n-th one, which depends on the seed and n alone."""

    def __init__(self, seed: int, last: Path | None) -> None:
        self.seed = seed
        self.last = last
        self.folder = Path(tempfile.mkdtemp(prefix="syno-fuzz-"))
        os.chdir(self.folder)  # a text may be taken for a folder to write to
        self.spec = _core.spec_named("test")
        self.specs = [_core.spec_named(name) for name in _core.spec_names()]
        self.spec_texts = [spec.to_json() for spec in self.specs]
        self.graphs = [
            _core.named_operator(name, self.spec, {"kernel": "k_1"})
            for name in ("conv", "conv1x1", "separable_conv")
        ]
        self.programs = [self.parsed(text) for text in FORMULAS]
        self.concrete = [p for p in self.programs if p.concrete]
        self.schedules = [_core.default_schedule(p) for p in self.concrete]
        self.nests = [
            _core.apply_schedule(p, s) for p, s in zip(self.concrete, self.schedules, strict=True)
        ]
        self.machine = _core.describe_machine(None)
        self.tree = _core.Tree(self.spec, seed=1)
        self.tree_text = self.tree.to_json()
        with contextlib.suppress(SynoError):
            for ticket, _ in self.tree.ask(2):
                self.tree.tell(ticket, 0.5)
            self.tree_text = self.tree.to_json()
        self.operator_files = [Operator.from_pgraph(g, 0).to_json() for g in self.graphs]
        self.operator_files += [Operator.from_program(p).to_json() for p in self.concrete[:3]]
        self.operator_files.append(
            Operator.parse(FORMULAS[0], n=1, o=2, c=3, h=4, w=4, r=3, s=3).to_json()
        )
        self.readers: list[Callable[[Mutator], None]] = [
            self.formula,
            self.formula,
            self.full_program,
            self.operator_file,
            self.pgraph,
            self.loop_nest,
            self.schedule,
            self.spec_file,
            self.tree_file,
            self.machine_file,
            self.named,
            self.binding,
            self.binding,
            self.command,
        ]
        self.bindings = list(_bindings())
        self.prepare()

    def prepare(self) -> None:
        """What readers of other kinds need beside this."""

    def parsed(self, text: str) -> _core.Program:
        sizes = {n: e for n, e in EXTENTS.items() if re.search(rf"\b{n}\b", text)}
        while True:
            try:
                return _core.Program.parse(text, sizes=sizes)
            except SynoError as error:
                unused = re.search(r"iterator or size '(\w+)'", str(error))
                wrong = re.search(r"size (\w+) is \d+ in the text", str(error))
                name = unused or wrong
                if name is None:
                    raise
                del sizes[name[1]]

    def run(self, number: int) -> None:
        rng = random.Random(f"{self.seed}:{number}")
        reader = rng.choice(self.readers)
        self.note(f"{self.seed}:{number} {reader.__name__}")
        faulthandler.dump_traceback_later(LIMIT_S, exit=True)
        try:
            reader(Mutator(rng))
        except SynoError as error:
            text = str(error)
            if not text.startswith("[") or len(text) > 6000:
                raise AssertionError(f"no short sentence: {text[:300]!r}") from error
        finally:
            faulthandler.cancel_dump_traceback_later()

    def note(self, text: str) -> None:
        if self.last is not None:
            self.last.write_text(text, encoding="utf-8", errors="backslashreplace")

    def case(self, what: str, content: str) -> str:
        """Writes down what is about to be read."""
        self.note(f"{what}\n{content[:20000]}")
        return content

    # The readers of texts

    def formula(self, m: Mutator) -> None:
        text = (
            m.text(m.rng.choice(FORMULAS), FORMULAS)
            if m.rng.random() < 0.9
            else m.rng.choice(FORMULAS)
        )
        sizes: dict[str, Any] = dict(EXTENTS)
        for name in EXTENTS:
            if m.rng.random() < 0.15:
                sizes[name] = m.integer()
            if m.rng.random() < 0.5 or not re.search(rf"\b{name}\b", text):
                sizes.pop(name)
        shapes = {}
        if m.rng.random() < 0.2:
            shapes = {
                m.rng.choice(["x", "y", "w", "q"]): [
                    m.integer() for _ in range(m.rng.randint(0, 5))
                ]
            }
        weights = m.rng.choice([None, None, [], ["x"], ["w", "q"]])
        self.case(f"formula {sizes} {shapes} {weights}", text)
        op = Operator.parse(_utf8(text), shapes=shapes, weights=weights, **sizes)
        self.use(op, m)

    def full_program(self, m: Mutator) -> None:
        texts = [p.text() for p in self.programs]
        text = self.case("program", m.text(m.rng.choice(texts), texts))
        program = _core.Program.parse(_utf8(text))
        assert _core.Program.parse(program.text()).text() == program.text()
        self.use(Operator.from_program(program), m)

    def use(self, op: Operator, m: Mutator) -> None:
        """Everything that is cheap whatever the sizes are; what computes where it is small."""
        program = op.program
        assert op.expr and repr(op) and program.loops()
        assert len(op.canonical_hash) == 32 and op.traffic_bytes >= 0
        if m.rng.random() < 0.3:
            assert Operator.from_json(op.to_json()) == op
        if not op.concrete:
            op = op.at(0)
            program = op.program
        elements = sum(_count(shape) for shape in op.shapes.values())
        if op.flops > 1 << 18 or elements > 1 << 18:
            return
        choice = m.rng.random()
        if choice < 0.3:
            import numpy as np

            op.reference(*[np.ones(op.shapes[name]) for name in op.inputs])
        elif choice < 0.5:
            _core.emit_c(program)
            _core.emit_pytorch(program)
            _core.emit_graphviz(program)
            _core.emit_te(program)
        elif choice < 0.6 and op.inputs:
            self.use(Operator.from_program(program.derivative(m.rng.choice(op.inputs))), m)
        elif choice < 0.63:
            kernel = op.compile()
            assert kernel.verification is not None
        elif choice < 0.75:
            nest = _core.apply_schedule(program, _core.default_schedule(program))
            assert _core.LoopNest.parse(nest.text()).text() == nest.text()

    def operator_file(self, m: Mutator) -> None:
        text = m.rng.choice(self.operator_files)
        if m.rng.random() < 0.6:
            text = json.dumps(m.tree(json.loads(text)))
        else:
            text = m.text(text, self.operator_files)
        self.use(Operator.from_json(_utf8(self.case("operator file", text))), m)

    def pgraph(self, m: Mutator) -> None:
        texts = [g.text() for g in self.graphs]
        text = self.case("pgraph", m.text(m.rng.choice(texts), texts))
        graph = _core.PGraph.parse(_utf8(text))
        assert _core.PGraph.parse(graph.text()) == graph
        assert graph.hash() and graph.to_svg() and graph.to_graphviz()
        _core.derivation(m.rng.choice(self.specs), graph, m.rng.choice([0, 1]))
        self.use(Operator.from_pgraph(graph), m)

    def loop_nest(self, m: Mutator) -> None:
        texts = [n.text() for n in self.nests]
        text = self.case("loop nest", m.text(m.rng.choice(texts), texts))
        nest = _core.LoopNest.parse(_utf8(text))
        nest.verify()
        assert _core.LoopNest.parse(nest.text()).text() == nest.text()
        _core.predict_nest(nest, self.machine, threads=m.rng.choice([1, 3]))

    def schedule(self, m: Mutator) -> None:
        i = m.rng.randrange(len(self.schedules))
        made = self.schedules[i]
        if m.rng.random() < 0.5:
            text = self.case("schedule", m.text(made.text(), [s.text() for s in self.schedules]))
            schedule = _core.Schedule.parse(_utf8(text))
        else:
            text = self.case("schedule file", json.dumps(m.tree(json.loads(made.to_json()))))
            schedule = _core.Schedule.from_json(_utf8(text))
        _core.apply_schedule(self.concrete[i], schedule).verify()

    def spec_file(self, m: Mutator) -> None:
        text = m.rng.choice(self.spec_texts)
        changed = m.rng.random() < 0.8
        text = json.dumps(m.tree(json.loads(text))) if changed else m.text(text, [])
        spec = _core.Spec.from_json(_utf8(self.case("spec", text)))
        assert _core.Spec.from_json(spec.to_json()) == spec
        _core.why_empty(spec, max_steps=2)
        _core.derivation(spec, m.rng.choice(self.graphs), 0)

    def tree_file(self, m: Mutator) -> None:
        text = json.dumps(m.tree(json.loads(self.tree_text)))
        _core.Tree.from_json(self.spec, self.case("tree", text)).to_json()

    def machine_file(self, m: Mutator) -> None:
        text = json.dumps(m.tree(json.loads(self.machine.to_json())))
        machine = _core.MachineModel.from_json(self.case("machine", text))
        assert _core.MachineModel.from_json(machine.to_json()) == machine
        i = m.rng.randrange(len(self.concrete))
        _core.predict_nest(self.nests[i], machine, threads=m.rng.choice([1, 2, 500]))
        _core.construct_schedule(self.concrete[i], machine)

    def named(self, m: Mutator) -> None:
        """Named operators with sizes that nobody planned."""
        spec = m.rng.choice(self.specs)
        name = m.rng.choice(sorted(_core.named_operators()))
        size = m.rng.choice(
            ["1", "3", "5", "0", "k_1", "C_in", "s^-1", "N*9", "1/2", "((", str(m.integer())]
        )
        sizes = {m.rng.choice(["kernel", "groups", "shrink", "x"]): size}
        self.case("named", f"{name} {sizes} {spec.name}")
        way = explain.explain(explain.read_operator(name, spec, sizes), spec)
        assert way.to_svg() and str(way)

    # Bindings and commands

    def binding(self, m: Mutator) -> None:
        """Any function of the engine with arguments of the right types and wrong values."""
        owner, static, name, parameters = m.rng.choice(self.bindings)
        positional: list[Any] = []
        named: dict[str, Any] = {}
        if not static:
            positional.append(self.value(owner, m))
        for parameter, kind, optional, keyword in parameters:
            if optional and m.rng.random() < 0.4:
                continue
            if keyword:
                named[parameter] = self.value(kind, m)
            else:
                positional.append(self.value(kind, m))
        function = getattr(_core if owner is None else getattr(_core, owner), name)
        self.case("binding", f"{owner}.{name}({positional!r}, {named!r})")
        with contextlib.suppress(TypeError, ValueError, OverflowError):  # pybind's own refusals
            function(*positional, **named)

    def value(self, kind: str, m: Mutator) -> Any:
        rng = m.rng
        simple: dict[str, Callable[[], Any]] = {
            "Program": lambda: rng.choice(self.programs),
            "PGraph": lambda: rng.choice(self.graphs),
            "Spec": lambda: rng.choice(self.specs[:3]),
            "Schedule": lambda: rng.choice(self.schedules),
            "LoopNest": lambda: rng.choice(self.nests),
            "MachineModel": lambda: self.machine,
            "Tree": lambda: _core.Tree(self.spec, seed=rng.randint(0, 3)),
            "Cpu": _core.host_cpu,
            "str": lambda: rng.choice(
                [
                    "",
                    "x",
                    "y",
                    "i",
                    "c",
                    "k",
                    "float32",
                    "float64",
                    "max",
                    "relu",
                    "graph",
                    "conv",
                    "héé",
                    *WORDS[:8],
                ]
            ),
            "bool": lambda: rng.random() < 0.5,
            "float": lambda: rng.choice(
                [0.0, 1.0, -1.0, 0.5, 1e308, float("nan"), float("inf"), 1e-9]
            ),
            "int": m.integer,
            "dict": lambda: {"x": rng.choice([[1.0], [[1.0]], "no", [[1.0, 2.0]] * 4])},
            "None": lambda: None,
        }
        for word, make in simple.items():
            if re.match(rf"(syno\._core\.)?{word}\b", kind) or (
                word in ("int", "float") and re.match(rf"typing\.Supports{word.title()}", kind)
            ):
                return make()
        if kind.startswith("collections.abc.Sequence"):
            inner = kind.removeprefix("collections.abc.Sequence[")[:-1]
            return [self.value(inner, m) for _ in range(rng.choice([0, 1, 1, 2, 2, 3, 4]))]
        if kind.startswith("tuple["):
            return ("x", m.integer())
        if kind.startswith("collections.abc.Mapping[str, "):
            inner = kind.removeprefix("collections.abc.Mapping[str, ")[:-1]
            return {
                name: self.value(inner, m) for name in rng.sample(["x", "i", "k", "N", "kernel"], 2)
            }
        return None

    def command(self, m: Mutator) -> None:
        """The command line, on what needs no model."""
        from typer.testing import CliRunner

        from syno.cli.main import app

        path = self.folder / "file.json"
        path.write_bytes(
            m.rng.choice(
                [
                    b"",
                    b"\xff\xfe\x00",
                    b"[" * 100_000,
                    m.text(m.rng.choice(self.operator_files), []).encode("utf-8", "replace"),
                    json.dumps(m.tree(json.loads(m.rng.choice(self.spec_texts)))).encode(),
                ]
            )
        )
        word = m.rng.choice(
            [
                str(m.integer()),
                m.rng.choice(WORDS).strip("\0") or "x",
                str(path),
                "conv",
                "resnet18",
            ]
        )
        arguments = m.rng.choice(
            [
                ["explain", word],
                [
                    "explain",
                    "conv",
                    "--spec",
                    m.rng.choice([word, str(path), "test"]),
                    "--size",
                    f"kernel={word}",
                ],
                ["explain", "conv", "--neighbours", str(m.integer())],
                ["explain", str(path)],
                ["help", word],
                ["tune", m.text(FORMULAS[0], []), "-s", f"n={word}"],
                ["cache", "import", str(path)],
            ]
        )
        self.case("command", repr(arguments))
        result = CliRunner().invoke(app, [_utf8(a).replace("\0", "") for a in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code in (0, 1, 2, 3), result.output


def _utf8(text: str) -> str:
    """Lone surrogates cannot reach the engine: a reader of a file or of a terminal has replaced them."""
    return text.encode("utf-8", "replace").decode()


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


#: Raw addresses, settings of the process, long measurements and searches.
_LEFT_OUT = {
    "call_pointers",
    "run_on_openmp",
    "measure_machine",
    "measure_schedules",
    "compare_schedules",
}
_LEFT_OUT |= {
    "enumerate_operators",
    "sample_operators",
    "TensorCalls",
    "MeasureOptions",
    "ask",
    "interpret_exact",
}
_OWNERS = ("Program", "PGraph", "Spec", "Tree", "Schedule", "LoopNest", "MachineModel")


def _bindings() -> Any:
    """Every function and method: its class, whether it is static, its name and its parameters (name, type,
    optional, by keyword only)."""
    for owner in (None, *_OWNERS):
        holder = _core if owner is None else getattr(_core, owner)
        for name in sorted(vars(holder)):
            function = getattr(holder, name)
            if (
                name in _LEFT_OUT
                or name.startswith("_")
                or not callable(function)
                or isinstance(function, type)
            ):
                continue
            for line in (function.__doc__ or "").splitlines():
                signature = re.search(rf"\b{name}\((.*)\) -> ", line)
                if signature is None:
                    continue
                parameters, keyword, static = [], False, True
                for part in _split(signature[1]):
                    if part == "*":
                        keyword = True
                        continue
                    parameter, _, kind = part.partition(": ")
                    if parameter == "self":
                        static = False
                        continue
                    kind, _, default = kind.partition(" = ")
                    parameters.append((parameter, kind, bool(default), keyword))
                yield owner, static, name, parameters
                break


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return [part for part in (*parts, text[start:].strip()) if part]


def run_as_program(kind: type[Fuzzer]) -> None:
    """The command line of a fuzzer."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--last", type=Path)
    parser.add_argument("--keep-going", action="store_true", help="list what fails, to the end")
    options = parser.parse_args()
    faulthandler.enable()
    fuzzer = kind(options.seed, options.last.absolute() if options.last else None)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    for number in range(options.first, options.first + options.count):
        try:
            fuzzer.run(number)
        except Exception:
            print(f"case {options.seed}:{number}", file=sys.stderr)
            if not options.keep_going:
                raise
            traceback.print_exc(limit=-3)
    print(f"{options.count} cases")


if __name__ == "__main__":
    run_as_program(Fuzzer)
