"""A database's write-ahead log by its own checksums: SQLite cuts it silently at the first frame that is not as it was written.

(Format: https://www.sqlite.org/fileformat2.html, section 4.)
"""

from __future__ import annotations

import functools
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy

_HEADER, _FRAME = struct.Struct(">8I"), struct.Struct(">6I")

#: The first word of a log, and how the words of its checksums lie in it.
_ORDERS = {0x377F0682: "<u4", 0x377F0683: ">u4"}

_MASK = 0xFFFFFFFF


class LogState(NamedTuple):
    """What is wrong with a log.

    Attributes:
        broken: what is wrong inside it, in words; empty where nothing is, or there is none. SQLite takes the first frame
            with a wrong checksum for the end, which is right where a process was killed while it wrote a transaction.
            Committed frames that follow with the log's own salts were written after it.
        lost_end: whether the last frame is whole, of a commit, but not as it was written. A power cut may leave it so, and
            damage; a process that is killed leaves a shorter file. What belongs to the frame is lost in any case, and
            nothing before it.
    """

    broken: str = ""
    lost_end: bool = False


def read_log(path: Path) -> LogState:
    """What a write-ahead log tells of itself; nothing where there is none.

    Raises:
        OSError: it cannot be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return LogState()
    if len(content) < _HEADER.size:
        return LogState()  # killed while it was begun
    magic, _, page, _, *salts, sum_a, sum_b = _HEADER.unpack_from(content)
    order = _ORDERS.get(magic)
    if order is None:
        return LogState("the log's beginning is damaged")
    head = numpy.frombuffer(content, order, (_HEADER.size - 8) // 4)
    start = _after((0, 0), head[None])[0]
    if start != (sum_a, sum_b) or not 512 <= page <= 65536 or page % 8:
        return LogState("the log's beginning is damaged")
    size = _FRAME.size + page
    count = (len(content) - _HEADER.size) // size
    frames = numpy.frombuffer(content, numpy.uint8, count * size, _HEADER.size)
    frames = frames.reshape(count, size)
    heads = frames[:, : _FRAME.size].copy().view(">u4").astype(numpy.int64)
    summed = numpy.concatenate([frames[:, :8], frames[:, _FRAME.size :]], axis=1).view(order)
    found = numpy.array(_after(start, summed), numpy.int64).reshape(count, 2)
    as_written = (heads[:, 2:4] == salts).all(axis=1) & (heads[:, 4:6] == found).all(axis=1)
    wrong = numpy.flatnonzero(~as_written)
    if not len(wrong):
        return LogState()
    first = int(wrong[0])
    own, lost = _remains(heads[first:], salts)
    if not lost.any():
        return LogState()
    if own[1:].any():
        return LogState(f"frame {first + 1} of the log is damaged, and others follow")
    return LogState(lost_end=True)


def _remains(heads: Any, salts: list[int]) -> tuple[Any, Any]:
    """Which frames behind the log's valid part are of this turn of it, by their headers, and which of these were committed.

    Frames of an earlier turn may lie there: the turns count the first salt up and draw the second. So may those of a
    transaction that ended without a commit, by a kill or because it was taken back, as long as its rows did not fit into SQLite's
    memory: it wrote them as they came, a page that changed again over its own frame, whose checksum is that of before; frames
    behind such a one have neither salts nor checksum until the commit. Nothing that was recorded is lost with them.
    """
    none = (heads[:, 2:4] == 0).all(axis=1)
    own = (heads[:, 2:4] == salts).any(axis=1) | none
    page, size = heads[:, 0], heads[:, 1]  # a transaction's last frame says how many there are
    under_way = (heads[:, 2:4] == salts).all(axis=1) & (size == 0)
    under_way |= (heads[:, 2:6] == 0).all(axis=1)
    return own, own & ~(under_way & (page != 0))


def _after(sums: tuple[int, int], parts: Any) -> list[tuple[int, int]]:
    """The checksum after each part, of words ``[parts, words]``, each going on from the one before.

    For each two words ``x`` and ``y`` the checksum ``(a, b)`` becomes ``(a + x + b, a + x + 2 b + y)``, modulo 2³². That is
    linear: what the words of a part add to it is a product of all of them at once.
    """
    adds_a, adds_b, (p, q, r) = _powers(parts.shape[1] // 2)
    words = parts.astype(numpy.uint32)
    found = []
    a, b = sums
    for own_a, own_b in zip((words @ adds_a).tolist(), (words @ adds_b).tolist(), strict=True):
        a, b = (p * a + q * b + own_a) & _MASK, (q * a + r * b + own_b) & _MASK
        found.append((a, b))
    return found


@functools.cache
def _powers(pairs: int) -> tuple[Any, Any, tuple[int, int, int]]:
    """By which each of ``2 pairs`` words counts in either half of a checksum, and the matrix ``[[p, q], [q, r]]`` by which the
    checksum before them does: the power ``pairs`` of ``[[1, 1], [1, 2]]``."""
    p, q, r = 1, 0, 1
    adds_a, adds_b = [], []
    for _ in range(pairs):  # from the last two words to the first
        adds_a += [q, (p + q) & _MASK]
        adds_b += [r, (q + r) & _MASK]
        p, q, r = (p + q) & _MASK, (p + 2 * q) & _MASK, (q + 2 * r) & _MASK
    halves = [numpy.array(adds[::-1], numpy.uint32) for adds in (adds_a, adds_b)]
    return halves[0], halves[1], (p, q, r)
