"""Text of installed Debian packages as a corpus: documents apart, without duplicates and licences.

A document belongs to one part, by a hash of its name, so that no part is close to another. What is said twice, a
paragraph of forty characters or more, is kept where it stands first, training before validation before test; documents
that are licences are left out, and paragraphs that are.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from syno.support.files import write_whole

_LISTS = Path("/var/lib/dpkg/info")
_STATUS = Path("/var/lib/dpkg/status")

#: Documents of plain text: what packages document themselves in.
_SUFFIXES = (".txt", ".txt.gz", ".md", ".rst", ".pod")

_LICENCE_NAMES = re.compile(r"(copying|copyright|licen[cs]e|gpl|artistic|uganda)", re.IGNORECASE)

_LICENCE_WORDS = re.compile(
    r"all rights reserved|copyright (\(c\)|©|\d{4})|permission is hereby granted|without warrant|"
    r"redistribution and use|general public license|apache license|distributed under the same terms|"
    r"licensed under|free software; you can redistribute",
    re.IGNORECASE,
)

_LEAST_PARAGRAPH = 40
_MOST_DOCUMENT = 4_000_000  # bytes: data that is called text

#: Of a hundred documents, so many are for validation and for the test.
SHARES = {"validation": 6, "test": 10}
PARTS = ("train", "validation", "test")


def part_of(name: str) -> str:
    """The part of a document, by its name alone."""
    place = int.from_bytes(sha256(name.encode()).digest()[:8], "big") % 100
    for part, share in SHARES.items():
        if place < share:
            return part
        place -= share
    return "train"


def versions(packages: Sequence[str], status: Path = _STATUS) -> dict[str, str]:
    """Versions of those packages that are installed."""
    found: dict[str, str] = {}
    if not status.exists():
        return found
    for paragraph in status.read_text(encoding="utf-8", errors="replace").split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Status): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Package") in packages and "installed" in fields.get("Status", ""):
            found[fields["Package"]] = fields.get("Version", "")
    return {name: found[name] for name in packages if name in found}


def documents(packages: Sequence[str], lists: Path = _LISTS) -> Iterator[tuple[str, str]]:
    """Names and texts of the packages' documents, in the order of their names; licences are left out."""
    files: set[str] = set()
    for package in packages:
        listing = lists / f"{package}.list"
        if listing.exists():
            files |= set(listing.read_text().split("\n"))
    for name in sorted(files):
        path = Path(name)
        if not name.endswith(_SUFFIXES) or _LICENCE_NAMES.search(path.name) or path.is_symlink():
            continue
        try:
            if not path.is_file() or path.stat().st_size > _MOST_DOCUMENT:
                continue
            raw = path.read_bytes()
            raw = gzip.decompress(raw) if name.endswith(".gz") else raw
            text = raw.decode("utf-8")
        except (OSError, EOFError, UnicodeDecodeError):
            continue  # what cannot be read here, or is no text, is no document
        yield name, text.replace("\r\n", "\n")


def paragraphs(text: str, seen: set[bytes]) -> Iterator[str]:
    """Those of a document that are no licence and were not said before; adds them to ``seen``."""
    for paragraph in re.split(r"\n\s*\n", text):
        plain = " ".join(paragraph.split())
        if not plain or _LICENCE_WORDS.search(plain):
            continue
        if len(plain) >= _LEAST_PARAGRAPH:
            key = sha256(plain.lower().encode()).digest()[:16]
            if key in seen:
                continue
            seen.add(key)
        yield paragraph.rstrip()


def write_corpus(
    directory: Path,
    packages: Sequence[str],
    *,
    least_characters: int,
    lists: Path = _LISTS,
    status: Path = _STATUS,
) -> dict[str, Any]:
    """Writes ``train.bytes``, ``validation.bytes`` and ``test.bytes`` once, and says what is in them.

    Raises:
        SystemExit: the packages that are installed have fewer characters.
    """
    facts = directory / "corpus.json"
    if facts.exists():
        known: dict[str, Any] = json.loads(facts.read_text())
        return known
    by_part: dict[str, list[tuple[str, str]]] = {part: [] for part in PARTS}
    for name, text in documents(packages, lists):
        by_part[part_of(name)].append((name, text))
    seen: set[bytes] = set()
    written, names = {}, {}
    for part in PARTS:
        texts = []
        names[part] = []
        for name, text in by_part[part]:
            kept = "\n\n".join(paragraphs(text, seen))
            if kept:
                texts.append(kept)
                names[part].append(name)
        written[part] = "\n\n".join(texts)
    characters = {part: len(text) for part, text in written.items()}
    total = sum(characters.values())
    if total < least_characters or not all(characters.values()):
        raise SystemExit(
            f"the packages {', '.join(versions(packages, status)) or 'that were asked for'} have {total:,} characters of "
            f"text here, {least_characters:,} are wanted: install {', '.join(packages)}, or give others with --set packages="
        )
    directory.mkdir(parents=True, exist_ok=True)
    for part, text in written.items():
        write_whole(directory / f"{part}.bytes", text.encode())
    found = {
        "packages": versions(packages, status),
        "characters": characters,
        "documents": {part: len(each) for part, each in names.items()},
        "sha256": {part: sha256(text.encode()).hexdigest() for part, text in written.items()},
    }
    write_whole(facts, json.dumps(found, indent=1) + "\n")
    return found
