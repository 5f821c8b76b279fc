"""All sizes of the experiment `searched`, in one place: `--small` is the same with smaller numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from syno.support.files import write_whole


class Contest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What both kinds have: how a search goes, who is trained again, how often.

    Attributes:
        candidates: trained on the first rung; a quarter of them known operators at most.
        rungs: shares of the steps of short trainings; see `syno.search`.
        groups: most groups of layers that are searched.
        lag: candidates that may be under way while further ones are proposed; see `syno.search`. None: `batch_width`
            of them at a time.
        device: that trains, such as `cuda`. Latencies are those of the processor beside it.
        finalists: found operators that are trained again; the `leaders` of them, as many of the known ones and the
            original on `leader_seeds` seeds, all others on `finalist_seeds`.
        most_known: known operators that are trained again; 0: all that were trained at all.
        tolerance: loss of the metric that the goal of speed allows, and `speed` that goal: times as fast as the
            original's best time.
    """

    seed: int = 0
    policy: str = "bayesian"
    known: str = "all"
    candidates: int = 160
    batch_width: int = 4
    lag: int | None = None
    device: str = "cpu"
    rungs: tuple[float, ...] = (0.1, 0.3)
    groups: int = 1
    max_steps: int | None = None
    min_flops_ratio: float = 0.1
    flops_ratio: float = 0.9
    finalists: int = 6
    leaders: int = 2
    finalist_seeds: int = 3
    leader_seeds: int = 8
    most_known: int = 0
    train_limit_s: float = 6 * 3600.0


class Images(Contest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fashion-MNIST on a canvas. `harder` are steps to a harder task, each over those before, until the task tells the
    four operators apart that it is tried with."""

    canvas: int = 40
    place: bool = False
    least_scale: float = 1.0
    rotation: float = 0.0
    examples: int = 55_000
    validation_examples: int = 5_000
    test_examples: int = 10_000
    widths: tuple[int, ...] = (32, 64, 112)
    blocks: int = 1
    batch: int = 64
    epochs: int = 6
    learning_rate: float = 3e-3
    least_flops: int = 40_000_000
    least_share: float = 0.8
    resolve_seeds: int = 4
    resolve_errors: float = 3.0
    harder: tuple[dict[str, Any], ...] = (
        {"place": True},
        {"least_scale": 0.6, "rotation": 30.0},
        {"rotation": 180.0},
        {"examples": 20_000},
    )
    tolerance: float = 0.01
    speed: float = 1.6


class Language(Contest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A byte-level GPT on texts of Debian packages; a window is `context` bytes."""

    packages: tuple[str, ...] = (
        "vim-runtime",
        "perl-modules-5.36",
        "perl-doc",
        "cmake-data",
        "git",
        "git-doc",
    )
    least_characters: int = 5_000_000
    context: int = 128
    width: int = 256
    heads: int = 4
    layers: int = 4
    batch: int = 16
    steps: int = 2_000
    learning_rate: float = 1e-3
    validation_windows: int = 1_000
    test_windows: int = 2_000
    leader_seeds: int = 6
    tolerance: float = 0.01
    speed: float = 1.2


Kind = Images | Language
_T = TypeVar("_T", Images, Language)

SMALL: dict[str, Kind] = {
    "images": Images(
        candidates=8,
        rungs=(0.5,),
        finalists=2,
        leaders=1,
        finalist_seeds=2,
        leader_seeds=3,
        most_known=2,
        canvas=32,
        examples=1_920,
        validation_examples=1_000,
        test_examples=2_000,
        widths=(8, 16),
        epochs=1,
        batch=32,
        resolve_seeds=2,
        harder=({"place": True},),
        least_flops=0,
    ),
    "language": Language(
        candidates=6,
        rungs=(0.5,),
        finalists=2,
        leaders=1,
        finalist_seeds=2,
        leader_seeds=3,
        most_known=2,
        least_characters=100_000,
        context=32,
        width=64,
        layers=1,
        batch=8,
        steps=120,
        validation_windows=100,
        test_windows=200,
    ),
}
FULL: dict[str, Kind] = {"images": Images(), "language": Language()}


def read_config(kind: str, *, small: bool, settings: Sequence[str] = ()) -> Kind:
    """The sizes of a kind, with `NAME=VALUE` over them, the value as JSON or as plain text.

    Raises:
        SystemExit: there is no such size, or it has another type.
    """
    base = (SMALL if small else FULL)[kind]
    fields = msgspec.to_builtins(base)
    for text in settings:
        name, separator, value = text.partition("=")
        if not separator or name not in fields:
            raise SystemExit(f"--set {text}: {kind} has the sizes {', '.join(sorted(fields))}")
        try:
            fields[name] = json.loads(value)
        except json.JSONDecodeError:
            fields[name] = value
    try:
        return msgspec.convert(fields, type(base))
    except msgspec.ValidationError as error:
        raise SystemExit(f"--set: {error}") from None


def keep_config(path: Path, config: Kind) -> None:
    """Writes the sizes down where they are not, and refuses others than those that are there.

    Raises:
        SystemExit: the directory was begun with other sizes.
    """
    now = msgspec.to_builtins(config)
    if path.exists():
        before = json.loads(path.read_text())
        if msgspec.json.encode(before) == msgspec.json.encode(now):
            return
        changed = sorted(
            n for n in {*now, *before} if before.get(n) != json.loads(json.dumps(now.get(n)))
        )
        if changed:
            raise SystemExit(
                f"{path.parent} was begun with other sizes ({', '.join(changed)}): give another --directory, or those "
                f"in {path}"
            )
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(now, indent=1) + "\n")
