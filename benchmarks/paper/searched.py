"""(e) Found operators beside known ones, searched and judged in one experiment: images or language.

Fashion-MNIST on a canvas, or a byte-level GPT on texts of Debian's packages. Images first show that the task tells
1x1, separable, grouped and original apart, by three standard errors, and harden it until it does. Then a search with
all known operators beside those found trains on validation data alone; who is judged is written down, and only then
the test part is read. Everything is in sessions in `--directory`: the same command goes on after a kill, a training
the unit. `--small` is the same with smaller sizes; all of them are in `paper/searched_config.py`.

    python benchmarks/paper_syno.py searched images --small
    python benchmarks/paper_syno.py searched language --directory DIR --set seed=1
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from paper import contest, corpus, searched_report, store
from paper.resolves import hardened
from paper.searched_config import Images, Kind, Language, keep_config, read_config
from syno.errors import SynoError
from syno.searching.network import place
from syno.searching.pipeline import search_task
from syno.searching.result import Result
from syno.session import Budget, SessionView, open_view
from syno.session.records import Candidate
from syno.support.files import write_whole
from syno.support.machine import describe_machine
from syno.timing.bench import measure
from syno.training.train import torch_threads

TASKS = Path(__file__).resolve().with_name("searched_tasks.py")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", choices=["images", "language"])
    parser.add_argument("--small", action="store_true", help="minutes instead of hours")
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="NAME=VALUE",
        help="another size (searched_config.py)",
    )
    parser.add_argument(
        "--directory", type=Path, help="of the sessions; default runs/searched/KIND or KIND-small"
    )
    parser.add_argument("--data", help="directory of Fashion-MNIST's four files")
    parser.add_argument("--workers", type=int, help="trainings at a time; default one a core")
    parser.add_argument("--report", action="store_true", help="only say what there is")
    parser.add_argument(
        "--trust",
        action="store_true",
        help="go on with sessions that were made on another machine, or by somebody else",
    )


def output(options: argparse.Namespace) -> Path:
    """The results file where none is given: beside the others for the full sizes alone."""
    if options.small or options.set:
        return directory_of(options) / f"{options.kind}.json"
    return store.RESULTS / f"paper_searched_{options.kind}.json"


def directory_of(options: argparse.Namespace) -> Path:
    if options.directory is not None:
        return Path(options.directory)
    return Path("runs/searched") / (options.kind + ("-small" if options.small else ""))


def run(options: argparse.Namespace) -> dict[str, Any]:
    config = read_config(options.kind, small=options.small, settings=options.set)
    directory = directory_of(options)
    keep_config(directory / "sizes.json", config)
    experiment = Experiment(config, directory, options)
    try:
        if not options.report:
            experiment.go()
        document = experiment.document()
    except SynoError as error:
        raise SystemExit(str(error)) from None
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write_whole(options.output, json.dumps(document, indent=1) + "\n")
    print(searched_report.as_text(document))
    return document


def plot(document: dict[str, Any], path: Path) -> None:
    """Found against known operators, with intervals, and the front."""
    searched_report.draw(document, path)


class Experiment:
    """One experiment in its directory; every step goes on where it was."""

    def __init__(self, config: Kind, directory: Path, options: argparse.Namespace) -> None:
        self.config = config
        self.directory = directory
        self.options = options
        self.kind = "images" if isinstance(config, Images) else "language"
        self.reference = f"{TASKS}:{self.kind}"

    def go(self) -> None:
        """Resolves, searches, chooses, judges, times."""
        task = self.task()
        self.search(task)
        chosen = self.choose()
        self.judge(task, chosen)
        if isinstance(self.config, Language):
            self.time_steps(chosen)

    # --- the steps

    def task(self) -> dict[str, Any]:
        """The options of the task: of images, those at which it resolves; of language, its corpus."""
        c = self.config
        if isinstance(c, Images):
            names = ("canvas", "place", "least_scale", "rotation", "examples", "batch", "epochs")
            names += ("validation_examples", "test_examples", "widths", "blocks", "learning_rate")
            names += ("device",)
            plain = {name: getattr(c, name) for name in names}
            plain["widths"] = list(plain["widths"])
            if self.options.data is not None:
                plain["path"] = str(Path(self.options.data).resolve())
            found = hardened(c, self.reference, plain, self.directory, self.options.workers)
            return {**plain, **found["changes"]}
        where = self.directory.resolve() / "corpus"
        facts = corpus.write_corpus(where, c.packages, least_characters=c.least_characters)
        print(
            f"corpus: {facts['characters']} characters of {', '.join(facts['packages'])}",
            flush=True,
        )
        names = ("context", "width", "heads", "layers", "batch", "steps", "learning_rate")
        names += ("validation_windows", "test_windows", "device")
        return {"corpus": str(where), **{name: getattr(c, name) for name in names}}

    def _search(self, task: Mapping[str, Any], finalists: Any) -> None:
        c = self.config
        result = search_task(
            self.reference,
            self.directory / "search",
            options=task,
            budget=Budget(candidates=c.candidates),
            seed=c.seed,
            policy=c.policy,
            known=c.known,
            rungs=c.rungs,
            groups=c.groups,
            max_steps=c.max_steps,
            min_flops_ratio=c.min_flops_ratio,
            flops_ratio=c.flops_ratio,
            batch_width=c.batch_width,
            lag=c.lag,
            finalists=finalists,
            workers=self.options.workers,
            timeout_s=c.train_limit_s,
            trust=self.options.trust,
            command=store.command(),
        )
        interrupted = result.interrupted
        result.view.close()
        if interrupted:
            raise SystemExit("interrupted: the same command goes on")

    def search(self, task: Mapping[str, Any]) -> None:
        """Trains candidates, judged on validation data; once finalists are chosen, nothing more is searched."""
        if (self.directory / "chosen.json").exists():
            return
        self._search(task, 0)

    def choose(self) -> dict[str, Any]:
        """Who is judged on the test part: written down once, before anything is."""
        path = self.directory / "chosen.json"
        if path.exists():
            known: dict[str, Any] = json.loads(path.read_text())
            return known
        with open_view(self.directory / "search") as view:
            if any(
                c.finals for c in [*view.candidates(), *([view.baseline] if view.baseline else [])]
            ):
                raise SystemExit(
                    f"{self.directory}: somebody was judged before finalists were chosen"
                )
            chosen = chosen_on_validation(view, self.config)
        write_whole(path, json.dumps(chosen, indent=1) + "\n")
        return chosen

    def judge(self, task: Mapping[str, Any], chosen: Mapping[str, Any]) -> None:
        """Trains them again on their seeds, judged on the test part, and times them in turns."""
        self._search(task, chosen["seeds"])

    def time_steps(self, chosen: Mapping[str, Any], turns: int = 9) -> None:
        """Milliseconds of a training step of every network, in turns."""
        path = self.directory / "steps.json"
        if path.exists():
            return
        from paper.gpt import _step

        with open_view(self.directory / "search") as view:
            result = Result(view)
            task, sites = result.network.task, result.network.sites()
            inputs, targets = next(iter(task.batches("train", 0)))
            runs = {}
            for id in chosen["seeds"]:
                assigned = result.assigned(view.candidate(id))
                model = place(task.make_model(0), sites, assigned).train()
                runs[id] = _step(task, model, inputs, targets)
            with torch_threads(1):
                timings = measure(runs, turns=turns, threads=1)
        rows = {
            t.name: {"ms": t.median_us / 1e3, "iqr_ms": t.iqr_us / 1e3, "samples": t.samples}
            for t in timings
        }
        write_whole(path, json.dumps(rows, indent=1) + "\n")

    # --- what came out

    def document(self) -> dict[str, Any]:
        """All that table and picture say; nothing is measured."""
        found: dict[str, Any] = {
            "experiment": f"searched, {self.kind}",
            "size": size_of(self.options),
            "sizes": msgspec.to_builtins(self.config),
            "machine": msgspec.to_builtins(describe_machine()),
            "date": datetime.date.today().isoformat(),
            "command": store.command(),
            "state": self.state(),
            "rows": {},
        }
        for name, path in (
            ("resolution", self.directory / "resolution.json"),
            ("corpus", self.directory / "corpus" / "corpus.json"),
            ("chosen", self.directory / "chosen.json"),
            ("steps", self.directory / "steps.json"),
        ):
            if path.exists():
                found[name] = json.loads(path.read_text())
        if (self.directory / "search" / "session.sqlite").exists():
            with open_view(self.directory / "search") as view:
                found |= results(view, self.config, found.get("steps"))
        return found

    def state(self) -> str:
        """How far it is: what is not whole is not a result."""
        path = self.directory / "chosen.json"
        if not path.exists():
            return "searching: nothing has been judged on the test part"
        seeds = json.loads(path.read_text())["seeds"]
        with open_view(self.directory / "search") as view:
            missing = sum(
                max(0, wanted - len(view.candidate(id).finals)) for id, wanted in seeds.items()
            )
            if missing:
                return f"judging: {missing} of {sum(seeds.values())} trainings are missing"
            return "whole" if view.final is not None else "judged, not timed"


def size_of(options: argparse.Namespace) -> str:
    """Which sizes these are, in words."""
    base = "small" if options.small else "full"
    return f"{base}, but {' '.join(options.set)}" if options.set else base


def reward_of(candidate: Candidate) -> float:
    return candidate.reward or 0.0


def latest(candidate: Candidate) -> tuple[float, float]:
    """How far a candidate came, and what it was worth there: of two, the one that went further is the better one."""
    return (candidate.score is not None) * 10.0 + len(candidate.rungs), reward_of(candidate)


def chosen_on_validation(view: SessionView, config: Kind) -> dict[str, Any]:
    """Finalists, leaders and known operators, from what the search recorded on validation data."""
    everyone = [
        c for c in view.candidates() if c.state in ("done", "pruned") and (c.score or c.rungs)
    ]
    done = [c for c in everyone if c.score is not None and c.state == "done"]
    found = sorted((c for c in done if not c.known), key=lambda c: (-reward_of(c), c.number))
    # Half of them by the reward, the others from the front of accuracy and latency, the most accurate first.
    half = -(-config.finalists // 2)
    finalists = found[:half]
    sign = 1.0 if view.higher_is_better else -1.0
    front = [c for c in view.pareto() if c in found and c not in finalists]
    front.sort(key=lambda c: (-sign * (c.validation or 0.0), c.number))
    rest = [c for c in found if c not in finalists and c not in front]
    finalists = [*finalists, *front, *rest][: config.finalists]
    known = [c for c in everyone if c.known]
    known.sort(key=lambda c: (-latest(c)[0], -latest(c)[1], c.number))
    if config.most_known and len(known) > config.most_known:
        # The best of every name first, then whoever is best.
        names: dict[str, Candidate] = {}
        for c in known:
            names.setdefault(c.known.partition("(")[0], c)
        first = list(names.values())
        known = [*first, *(c for c in known if c not in first)][: config.most_known]
    leaders = finalists[: config.leaders]
    best_known = known[: config.leaders]
    seeds = {c.id: config.finalist_seeds for c in [*finalists, *known]}
    seeds |= {c.id: config.leader_seeds for c in [*leaders, *best_known]}
    return {
        "seeds": {"baseline": config.leader_seeds, **seeds},
        "finalists": [c.id for c in finalists],
        "leaders": [c.id for c in leaders],
        "known": {c.id: c.known for c in known},
        "best_known": [c.id for c in best_known],
        "by": "the reward of the search (validation, one training), the front of validation and latency",
    }


def results(view: SessionView, config: Kind, steps: Mapping[str, Any] | None) -> dict[str, Any]:
    """Counts of the search, a row a network, verdicts of pairs, goals."""
    everyone = view.candidates()
    counts = {
        "proposed": len(everyone),
        "given up before training": sum(
            c.state == "pruned" and not c.rungs and c.score is None for c in everyone
        ),
        **{
            f"trained on {share:.0%} of the steps": sum(len(c.rungs) > i for c in everyone)
            for i, share in enumerate(config.rungs)
        },
        "trained whole": sum(c.score is not None for c in everyone),
        "failed": sum(c.state in ("failed", "lost") for c in everyone),
        "known operators among them": sum(bool(c.known) for c in everyone),
    }
    found: dict[str, Any] = {
        "search": counts,
        "rungs": [report.sentence() for report in view.rungs()],
        "known_refused": view.known_refused,
        "hours": view.elapsed_s / 3600,
    }
    baseline = view.baseline
    judged = [c for c in everyone if c.finals]
    if baseline is None or not baseline.finals or not judged:
        return found
    networks = {c.id: contest.trained(view, c) for c in [baseline, *judged]}
    times = times_of(view, networks)
    rows = {c.id: row_of(view, c, networks, times.get(c.id), steps) for c in [baseline, *judged]}
    own = [c.id for c in judged if not c.known]
    known = [c.id for c in judged if c.known]
    said = contest.verdicts([(a, b) for a in own for b in known], networks)
    if all(id in times for id in networks):
        for id, others in contest.apart(own, known, said, times).items():
            rows[id]["beside known"] = others
    base = [rows[c.id]["best_us"] for c in [baseline] if rows[c.id].get("best_us") is not None]
    found["rows"] = rows
    found["pairs"] = [{"found": a, "known": b, **one} for (a, b), one in said.items()]
    found["goals"] = goals(rows, config, base[0] if base else None)
    return found


def times_of(view: SessionView, ids: Mapping[str, Any]) -> dict[str, contest.Timed]:
    """Latencies of whole networks: each as a part of the original's, with which it took turns."""
    final = view.final
    if final is None or "baseline" not in final.latencies_us:
        return {}
    base = final.latencies_us["baseline"]
    found = {"baseline": contest.Timed(base, final.iqrs_us.get("baseline", 0.0), final.samples)}
    for id in ids:
        ratio = final.speedups.get(id)
        if ratio and id != "baseline":
            iqr = base / ratio * final.speedup_iqrs.get(id, 0.0) / ratio
            found[id] = contest.Timed(base / ratio, iqr, final.samples)
    return found


def row_of(
    view: SessionView,
    candidate: Candidate,
    networks: Mapping[str, contest.Trained],
    time: contest.Timed | None,
    steps: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """A network: what it is, what it is worth, what it costs."""
    values = [score.value for score in candidate.finals]
    row: dict[str, Any] = {
        "origin": candidate.origin,
        "expr": view.formula(candidate) or "the original layers",
        "metric": candidate.finals[0].metric,
        "validation": candidate.validation,
        "test": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "seeds": [score.seed for score in candidate.finals],
        "values": values,
        "test_examples": candidate.finals[0].count,
        "flops": candidate.flops,
        "params": candidate.params,
    }
    if candidate.key:
        row["operators"] = {
            stage: operator.pgraph.text() for stage, operator in view.operators(candidate).items()
        }
        one = contest.compared(
            networks[candidate.id], networks["baseline"], list(networks.values())
        )
        row["against original"] = {
            "gain": one.gain, "lower": one.lower, "upper": one.upper, "paired": one.paired
        }  # fmt: skip
    final = view.final
    if time is not None and final is not None:
        row |= {"us": time.us, "iqr_us": time.iqr_us, "samples": time.samples}
        row["speed_up"] = final.speedups.get(candidate.id)
        if not candidate.key:
            row["compiled_us"] = final.compiled_us.get("baseline")
            eager = [] if final.eager_us is None else [final.eager_us]
            row["eager_us"] = final.eager_us
            row["best_us"] = min(time.us, *eager, *final.compiled_us.values())
            row["skipped"] = dict(final.skipped)
        if final.note:
            row["note"] = final.note
    if steps and candidate.id in steps:
        row["step"] = steps[candidate.id]
        row["step_speed_up"] = steps["baseline"]["ms"] / steps[candidate.id]["ms"]
    return row


def goals(rows: Mapping[str, Any], config: Kind, best_us: float | None) -> dict[str, Any]:
    """Which found operators meet the goals of the experiment; none where the list is empty."""
    found = {id: row for id, row in rows.items() if row["origin"] == "found"}
    said: dict[str, Any] = {}
    if all("beside known" in row for row in found.values()):
        said["on the front, no known operator beats or ties with it"] = [
            id for id, row in found.items() if set(row["beside known"].values()) <= {"stands"}
        ]
    if isinstance(config, Images) and best_us is not None:
        name = f"{config.speed} times as fast as the original's best, loss below {config.tolerance}"
        said[name] = [
            id
            for id, row in found.items()
            if best_us / row["us"] >= config.speed
            and row["against original"]["lower"] > -config.tolerance
        ]
    if isinstance(config, Language) and all("step_speed_up" in row for row in found.values()):
        name = f"{config.speed} times as fast a step, at most {config.tolerance} nats more"
        said[name] = [
            id
            for id, row in found.items()
            if row["step_speed_up"] >= config.speed
            and row["against original"]["lower"] >= -config.tolerance
        ]
    return said


__all__ = ["Experiment", "arguments", "chosen_on_validation", "goals", "plot", "results", "run"]
