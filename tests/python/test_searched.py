"""The experiment `searched`: its data, its statistics, and the whole of it on something tiny, killed and continued."""

from __future__ import annotations

import argparse
import gzip
import json
import math
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from paper import (  # noqa: E402
    contest,
    corpus,
    searched,
    searched_config,
    searched_report,
    searched_tasks,
)
from paper import resolves as resolves_module  # noqa: E402
from test_data import idx_bytes  # noqa: E402

import syno  # noqa: E402
from syno.session import open_view  # noqa: E402
from syno.session.interval import Sample  # noqa: E402
from syno.session.records import Score  # noqa: E402

# --- images on canvases


def drawn(count: int = 6, size: int = 12) -> Any:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, 256, (count, 1, size, size), generator=generator).to(torch.uint8)


def moved(images: Any, seed: int = 0, **how: Any) -> Any:
    return searched_tasks.on_canvas(images, torch.Generator().manual_seed(seed), **how)


def test_an_image_lies_in_the_middle_of_its_canvas_as_it_was() -> None:
    images = drawn()
    assert torch.allclose(moved(images, canvas=12), images.float(), atol=1e-2)
    wide = moved(images, canvas=20)
    assert torch.allclose(wide[..., 4:16, 4:16], images.float(), atol=1e-2)
    assert float(wide.sum()) == pytest.approx(float(images.sum()), rel=1e-4)


def test_a_placed_image_is_whole_and_somewhere_else_every_time() -> None:
    images = drawn(40)
    placed = moved(images, canvas=24, place=True)
    sums = placed.sum((1, 2, 3)) / images.float().sum((1, 2, 3))
    assert float((sums - 1).abs().max()) < 1e-3
    where = {tuple(one[0].nonzero()[0].tolist()) for one in placed}
    assert len(where) > 20
    assert torch.equal(placed, moved(images, canvas=24, place=True))
    assert not torch.equal(placed, moved(images, seed=1, canvas=24, place=True))


def test_turning_and_shrinking_keep_what_an_image_is_made_of() -> None:
    white = torch.full((30, 1, 12, 12), 255, dtype=torch.uint8)
    turned = moved(white, canvas=24, rotation=180.0)
    assert float(turned.sum((1, 2, 3)).std() / turned.sum((1, 2, 3)).mean()) < 0.02
    small = moved(white, canvas=24, least_scale=0.5)
    share = small.sum((1, 2, 3)) / white.float().sum((1, 2, 3))
    assert 0.2 < float(share.min()) < 0.6 and 0.75 < float(share.max()) <= 1.01
    # Turned about its middle: a mark above the middle stays as far from it.
    mark = torch.zeros(20, 1, 13, 13, dtype=torch.uint8)
    mark[:, :, 1, 6] = 255
    for one in moved(mark, canvas=13, rotation=180.0):
        y, x = np.unravel_index(int(one[0].argmax()), (13, 13))
        assert math.hypot(int(y) - 6, int(x) - 6) == pytest.approx(5, abs=1)


# --- the corpus


def package(root: Path, name: str, files: dict[str, str]) -> None:
    (root / "lists").mkdir(parents=True, exist_ok=True)
    (root / "texts" / name).mkdir(parents=True)
    names = []
    for file, text in files.items():
        path = root / "texts" / name / file
        path.write_bytes(gzip.compress(text.encode()) if file.endswith(".gz") else text.encode())
        names.append(str(path))
    (root / "lists" / f"{name}.list").write_text("\n".join(["/.", *names]) + "\n")
    with (root / "status").open("a") as status:
        status.write(f"Package: {name}\nStatus: install ok installed\nVersion: 1-2\n\n")


#: So many that each part has some wherever they lie: a document's part follows its path.
DOCUMENTS = 500


def test_a_corpus_has_each_paragraph_once_no_licence_and_its_parts_apart(tmp_path: Path) -> None:
    def prose(of: int) -> str:
        return "\n\n".join(
            f"Chapter {of}.{i} speaks of things that nobody said elsewhere." for i in range(5)
        )

    common = "This very paragraph stands in each and every document of the package, word for word."
    licence = "Permission is hereby granted, free of charge, to any person obtaining a copy."
    files = {f"text{i}.txt": f"{prose(i)}\n\n{common}\n\n{licence}" for i in range(DOCUMENTS)}
    files |= {"zipped.txt.gz": prose(1000), "COPYING.txt": prose(1001), "data.bin": prose(1002)}
    package(tmp_path, "words", files)
    facts = corpus.write_corpus(
        tmp_path / "corpus",
        ["words", "absent"],
        least_characters=100,
        lists=tmp_path / "lists",
        status=tmp_path / "status",
    )
    texts = {part: (tmp_path / "corpus" / f"{part}.bytes").read_text() for part in corpus.PARTS}
    whole = "".join(texts.values())
    assert facts["packages"] == {"words": "1-2"}
    assert whole.count(common) == 1 and "hereby granted" not in whole
    assert (
        "Chapter 1000.0" in whole
        and "Chapter 1001.0" not in whole
        and "Chapter 1002.0" not in whole
    )
    for i in range(DOCUMENTS):
        parts = {part for part, text in texts.items() if f"Chapter {i}.0 " in text}
        assert parts == {corpus.part_of(str(tmp_path / "texts" / "words" / f"text{i}.txt"))}
    assert facts["characters"] == {part: len(text) for part, text in texts.items()}
    assert all(facts["documents"].values()) and sum(facts["documents"].values()) == DOCUMENTS + 1
    with pytest.raises(SystemExit, match="install words"):
        corpus.write_corpus(
            tmp_path / "other", ["words"], least_characters=10**6,
            lists=tmp_path / "lists", status=tmp_path / "status",
        )  # fmt: skip


# --- statistics


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(1e-6, 0.9), min_size=1, max_size=9, unique=True))
def test_holm_is_the_textbooks(p_values: list[float]) -> None:
    count = len(p_values)
    held = contest.holm(count, lambda i, tests: 0.05 / tests - p_values[i], lambda i: -p_values[i])
    wanted = set()
    for place, i in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        if p_values[i] >= 0.05 / (count - place):
            break
        wanted.add(i)
    assert set(held) == wanted


def network(
    id: str, seeds: int, accuracy: float, draw: np.random.Generator, shared: Any, count: int
) -> contest.Trained:
    """Trainings whose accuracies vary by 0.4 points over seeds; of one seed, networks are lucky together."""
    rows = []
    for seed in range(seeds):
        level = accuracy + shared[seed] + 0.004 * draw.standard_normal()
        difficulty = NormalDist().inv_cdf(min(0.999, max(0.001, level)))
        easy = shared[-1] + 0.7 * draw.standard_normal(count)
        rows.append((easy < math.sqrt(0.49 + 1) * difficulty).astype(float))
    examples = np.stack(rows)
    scores = [
        Score(
            phase="final", seed=seed, part="test", metric="accuracy", higher_is_better=True,
            value=float(row.mean()), stderr=0.01, count=count, steps=1, total_steps=1, seconds=1.0,
            examples_per_s=1.0, threads=1,
        )
        for seed, row in enumerate(rows)
    ]  # fmt: skip
    return contest.Trained(id, Sample(scores, examples), True)


def networks(
    accuracies: dict[str, tuple[int, float]], seed: int, count: int = 1_500
) -> dict[str, contest.Trained]:
    draw = np.random.default_rng(seed)
    shared: Any = [*(0.004 * draw.standard_normal(8)), draw.standard_normal(count)]
    return {
        id: network(id, seeds, accuracy, draw, shared, count)
        for id, (seeds, accuracy) in accuracies.items()
    }


def test_networks_far_apart_are_told_apart_and_equal_ones_tie() -> None:
    everyone = networks(
        {"good": (8, 0.85), "bad": (3, 0.70), "like good": (8, 0.85), "like bad": (3, 0.70)}, 5
    )
    pairs = [("good", "bad"), ("bad", "like good"), ("bad", "like bad"), ("good", "like good")]
    said = contest.verdicts(pairs, everyone)
    assert [said[pair]["said"] for pair in pairs] == ["better", "worse", "tie", "tie"]
    assert all(
        one["paired"] and one["lower"] <= one["gain"] <= one["upper"] for one in said.values()
    )
    back = contest.verdicts([(b, a) for a, b in pairs], everyone)
    other = {"better": "worse", "worse": "better", "tie": "tie"}
    assert [back[b, a]["said"] for a, b in pairs] == [other[said[a, b]["said"]] for a, b in pairs]


def test_of_equal_networks_hardly_any_family_names_a_difference() -> None:
    wrong = 0
    again = 30
    for seed in range(again):
        everyone = networks({name: (3, 0.8) for name in "abcd"}, 100 + seed, count=300)
        pairs = [(a, b) for a in "ab" for b in "cd"]
        said = contest.verdicts(pairs, everyone)
        wrong += any(one["said"] != "tie" for one in said.values())
    assert wrong <= 0.15 * again  # both ways at one-sided 5 % each


def test_what_is_beaten_ties_or_stands() -> None:
    said = {
        ("f", "k"): {"said": "tie"}, ("f", "l"): {"said": "worse"}, ("f", "m"): {"said": "better"},
        ("s", "k"): {"said": "tie"}, ("s", "l"): {"said": "tie"}, ("s", "m"): {"said": "worse"},
    }  # fmt: skip
    quick, slow = contest.Timed(100.0, 2.0, 25), contest.Timed(200.0, 2.0, 25)
    times = {"f": quick, "s": slow, "k": quick, "l": slow, "m": quick}
    found = contest.apart(["f", "s"], ["k", "l", "m"], said, times)
    assert found == {
        "f": {"k": "tie", "l": "stands", "m": "stands"},
        "s": {"k": "beaten", "l": "tie", "m": "beaten"},
    }
    assert not contest.faster(contest.Timed(100.0, 40.0, 4), contest.Timed(101.0, 40.0, 4))


# --- sizes


def test_other_sizes_than_a_directory_was_begun_with_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a" / "sizes.json"
    small = searched_config.read_config("images", small=True)
    searched_config.keep_config(path, small)
    searched_config.keep_config(path, small)
    other = searched_config.read_config("images", small=True, settings=["seed=3", "epochs=2"])
    assert isinstance(other, searched_config.Images) and (other.seed, other.epochs) == (3, 2)
    with pytest.raises(SystemExit, match=r"other sizes \(epochs, seed\)"):
        searched_config.keep_config(path, other)
    with pytest.raises(SystemExit, match="--set wdth=3"):
        searched_config.read_config("images", small=True, settings=["wdth=3"])
    with pytest.raises(SystemExit, match="epochs"):
        searched_config.read_config("images", small=True, settings=['epochs="many"'])


def test_the_full_sizes_are_those_that_are_asked_for() -> None:
    images = searched_config.FULL["images"]
    assert isinstance(images, searched_config.Images)
    assert (images.examples, images.validation_examples, images.test_examples) == (
        55_000,
        5_000,
        10_000,
    )
    assert images.least_flops >= 40_000_000 and images.least_share >= 0.8 and images.epochs >= 6
    assert images.finalist_seeds >= 3 and images.leader_seeds >= 8 and images.candidates >= 100
    model = syno.models.make("fashion_resnet", widths=images.widths, blocks=images.blocks)
    example = torch.zeros(1, 1, images.canvas, images.canvas)
    sites = syno.sites(model, example, repeats=1)
    whole = sum(site.flops for site in sites)
    assert whole >= images.least_flops
    assert sites.groups()[0].flops / whole >= images.least_share
    language = searched_config.FULL["language"]
    assert isinstance(language, searched_config.Language)
    assert language.layers >= 4 and language.width >= 256 and language.context >= 128
    assert language.batch >= 16 and language.steps >= 2_000 and language.leader_seeds >= 6


@pytest.mark.parametrize(
    ("errors", "resolves", "changes", "attempts"),
    [
        ([3.5, 9.0, 9.0], True, {}, 1),
        ([1.0, 3.1, 9.0], True, {"place": True}, 2),
        ([1.0, 2.0, 1.5], False, {"place": True}, 3),
    ],
)
def test_a_task_is_hardened_until_it_resolves_and_says_when_it_does_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    errors: list[float],
    resolves: bool,
    changes: dict[str, Any],
    attempts: int,
) -> None:
    tried: list[dict[str, Any]] = []

    def attempt(config: Any, reference: str, task: dict[str, Any], *_: Any) -> dict[str, Any]:
        tried.append(task)
        return {"least_errors": errors[len(tried) - 1]}

    harder = ({"place": True}, {"rotation": 30.0})
    config = searched_config.Images(harder=harder)
    monkeypatch.setattr("paper.resolves.tried", attempt)
    found = resolves_module.hardened(config, "x:y", {"canvas": 40}, tmp_path, None)
    assert (found["resolves"], found["changes"], len(tried)) == (resolves, changes, attempts)
    assert all(task["canvas"] == 40 for task in tried)
    assert ("does not tell" in found["said"]) == (not resolves)
    assert found == resolves_module.hardened(config, "x:y", {}, tmp_path, None), "it stays"
    assert len(tried) == attempts


# --- the whole of it


def fashion_folder(folder: Path) -> Path:
    """Ten classes of 8x8 images, each a stroke in a direction and a place of its own."""
    draw = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for prefix, count in (("train", 420), ("t10k", 120)):
        labels = draw.integers(0, 10, count).astype(np.uint8)
        images = draw.integers(0, 60, (count, 8, 8)).astype(np.uint8)
        for image, label in zip(images, labels, strict=True):
            if label < 5:
                image[1 + label, 1:7] = 250
            else:
                image[1:7, label - 4] = 250
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    return folder


TINY_IMAGES = [
    "canvas=12",
    "examples=320",
    "validation_examples=60",
    "test_examples=80",
    "widths=[8,16]",
    "batch=16",
    "epochs=1",
    "candidates=4",
    "rungs=[0.5]",
    "finalists=1",
    "leaders=1",
    "finalist_seeds=2",
    "leader_seeds=3",
    "most_known=1",
    "resolve_seeds=2",
    'harder=[{"place":true}]',
    "resolve_errors=0.001",
    "max_steps=6",
    'known="grouped,separable"',
]
TINY_LANGUAGE = [
    "context=16",
    "width=16",
    "heads=2",
    "layers=1",
    "batch=4",
    "steps=8",
    "candidates=4",
    "rungs=[0.5]",
    "finalists=1",
    "leaders=1",
    "finalist_seeds=2",
    "leader_seeds=3",
    "most_known=1",
    "validation_windows=20",
    "test_windows=30",
    "max_steps=5",
    "least_characters=1000",
    'packages=["words"]',
    'known="grouped"',
]


def options(kind: str, directory: Path, words: list[str], *more: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    searched.arguments(parser)
    given = [
        kind,
        "--small",
        "--set",
        *words,
        "--directory",
        str(directory),
        "--workers",
        "1",
        *more,
    ]
    made = parser.parse_args(given)
    made.output = searched.output(made)
    return made


def plain(document: dict[str, Any]) -> dict[str, Any]:
    """Without what a clock said."""
    rows = {
        id: {k: row[k] for k in ("origin", "expr", "test", "values", "seeds", "flops", "params")}
        for id, row in document["rows"].items()
    }
    resolution = document.get("resolution", {})
    return {"rows": rows, "chosen": document["chosen"], "resolution": resolution}


@pytest.mark.nightly
def test_images_are_searched_judged_once_and_go_on_after_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = str(fashion_folder(tmp_path / "data"))
    document = searched.run(options("images", tmp_path / "one", TINY_IMAGES, "--data", data))
    assert document["state"] == "whole" and document["size"].startswith("small, but")
    rows = document["rows"]
    chosen = document["chosen"]["seeds"]
    assert {id: len(row["seeds"]) for id, row in rows.items()} == chosen
    assert chosen["baseline"] == 3
    origins = {row["origin"].partition(":")[0] for row in rows.values()}
    assert origins == {"original", "known", "found"}
    assert all(row["test_examples"] == 80 and row["us"] > 0 for row in rows.values())
    assert document["search"]["trained on 50% of the steps"] == 4
    assert set(document["resolution"]["tried"][0]["values"]) >= {"original", "pointwise"}
    with open_view(tmp_path / "one" / "resolves-0") as view:
        assert {s.count for c in view.candidates() for s in c.finals} == {60}, "validation alone"
    text = searched_report.as_text(document)
    assert "original" in text and "found" in text
    searched.plot(document, tmp_path / "one.svg")
    assert (tmp_path / "one.svg").read_text().startswith("<?xml")
    again = searched.run(options("images", tmp_path / "one", TINY_IMAGES, "--data", data))
    assert again["rows"] == rows, "nothing is trained or timed twice"
    assert json.loads((tmp_path / "one" / "images.json").read_text())["rows"] == rows

    # Interrupted in the search and among the finalists, and gone on with.
    told = 0

    def interrupt(what: str, candidate: Any, view: Any) -> None:
        nonlocal told
        told += 1
        if told in (9, 40):
            raise KeyboardInterrupt

    (tmp_path / "two").mkdir()
    kept = (tmp_path / "one" / "resolution.json").read_text()
    (tmp_path / "two" / "resolution.json").write_text(kept)  # what was decided stays
    search = searched.search_task
    monkeypatch.setattr(
        searched, "search_task", lambda *a, **k: search(*a, **{**k, "callbacks": interrupt})
    )
    for _ in range(2):
        with pytest.raises(SystemExit, match="goes on"):
            searched.run(options("images", tmp_path / "two", TINY_IMAGES, "--data", data))
    other = searched.run(options("images", tmp_path / "two", TINY_IMAGES, "--data", data))
    assert told > 40 and plain(other) == plain(document)

    # Who is judged was fixed before the test part was read, or nothing is said.
    (tmp_path / "one" / "chosen.json").unlink()
    with pytest.raises(SystemExit, match="somebody was judged before finalists were chosen"):
        searched.run(options("images", tmp_path / "one", TINY_IMAGES, "--data", data))


@pytest.mark.nightly
def test_language_is_searched_on_texts_of_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = np.random.default_rng(1)
    vocabulary = ["".join(words.choice(list("abcdefgh"), 4)) for _ in range(60)]
    files = {
        f"text{i}.txt": "\n\n".join(" ".join(words.choice(vocabulary, 12)) for _ in range(12))
        for i in range(50)
    }
    package(tmp_path, "words", files)
    write = corpus.write_corpus
    monkeypatch.setattr(
        corpus,
        "write_corpus",
        lambda *a, **k: write(*a, **k, lists=tmp_path / "lists", status=tmp_path / "status"),
    )
    document = searched.run(options("language", tmp_path / "one", TINY_LANGUAGE))
    assert document["state"] == "whole" and document["corpus"]["packages"] == {"words": "1-2"}
    rows = document["rows"]
    assert all(row["metric"] == "loss" and row["step"]["ms"] > 0 for row in rows.values())
    found = [row for row in rows.values() if row["origin"] == "found"]
    assert found and all(row["test_examples"] == 30 for row in found)
    assert "ms a step" in searched_report.as_text(document)
    searched.plot(document, tmp_path / "one.svg")
