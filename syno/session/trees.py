"""Which rows lie on pages of a database: its trees are followed from their roots, the pages in question read whole.

(Format: https://www.sqlite.org/fileformat2.html, section 1.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy

from syno.session.pages import Pages

#: Before and after every row's number.
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1

#: Leaves of a tree that is read whole where a page's owner is not found otherwise: a row may have its further pages
#: written anew, and nothing else.
_SMALL = 64

_INTERIOR_INDEX, _INTERIOR_TABLE, _LEAF_INDEX, _LEAF_TABLE = 2, 5, 10, 13


class UnclearPages(Exception):
    """The pages are not those of a database, or a page that is asked about belongs to nothing that was looked at."""


class Tree(NamedTuple):
    """A table or an index; of a table without row numbers, an index with all columns."""

    name: str
    root: int
    is_table: bool

    @property
    def leaf_kind(self) -> int:
        return _LEAF_TABLE if self.is_table else _LEAF_INDEX

    @property
    def interior_kind(self) -> int:
        return _INTERIOR_TABLE if self.is_table else _INTERIOR_INDEX


class Range(NamedTuple):
    """Rows of a table with numbers above ``low``, up to ``high``."""

    low: int
    high: int


class _Leaf(NamedTuple):
    page: int
    low: int
    high: int


class _Parent(NamedTuple):
    """A page above leaves, the rows below it, and where its entries are."""

    content: bytes
    places: tuple[int, ...]
    children: list[int]
    low: int
    high: int


class _Cell(NamedTuple):
    """An entry of a page: its beginning as far as it lies there, and its further pages."""

    content: bytes
    further: int  # first of them, or 0
    further_count: int


def rows_on(pages: Pages, asked: Any, trees: list[Tree], seals: str) -> dict[str, list[Range]]:
    """The rows of each table that lie on some pages, or whose seals do; and rows between them.

    Args:
        pages: of the database.
        asked: which of them, by number, ``[count + 1]``.
        trees: all there are.
        seals: the name of the one that holds the seals: entries that begin with a table's name and a row's number.
    Raises:
        UnclearPages: see there.
        OSError: a page cannot be read.
    """
    try:
        return _Search(pages, asked).run(trees, seals)
    except (struct.error, IndexError, ValueError) as error:  # a number that points out of a page
        raise UnclearPages(str(error)) from error


class _Search:
    def __init__(self, pages: Pages, asked: Any) -> None:
        self._pages, self._asked = pages, asked
        self._used = numpy.zeros(pages.count + 1, bool)
        self._found: dict[str, list[Range]] = {}
        self._usable = pages.size - pages.read(1)[20]

    def run(self, trees: list[Tree], seals: str) -> dict[str, list[Range]]:
        small: list[tuple[Tree, list[_Leaf]]] = []
        for tree in trees:
            parents = self._parents(tree, seals)
            few = sum(len(parent.children) for parent in parents) <= _SMALL
            unread = []
            for parent in parents:
                for leaf in self._leaves(tree, parent, every=few):
                    if self._asked[leaf.page]:
                        self._look_at_leaf(tree, leaf, seals)
                    else:
                        unread.append(leaf)
            if few:
                small.append((tree, unread))
        self._look_at_free()
        for tree, leaves in small:
            if (self._asked & ~self._used).any():
                for leaf in leaves:
                    self._look_at_further(tree, leaf)
        rest = numpy.nonzero(self._asked & ~self._used)[0]
        if len(rest):
            raise UnclearPages(f"page {rest[0]} belongs to nothing")
        return {table: _joined(ranges) for table, ranges in self._found.items()}

    def _use(self, pages: list[int]) -> None:
        """Each page belongs to one thing."""
        if not pages:
            return
        numbers = numpy.array(pages, numpy.int64)
        if numbers.min() < 1 or numbers.max() > self._pages.count:
            raise UnclearPages(f"there is no page {numbers.min()} or {numbers.max()}")
        if self._used[numbers].any() or len(set(pages)) < len(pages):
            raise UnclearPages("a page is used twice")
        self._used[numbers] = True

    def _parents(self, tree: Tree, seals: str) -> list[_Parent]:
        """All pages of a tree that are above leaves; the one leaf that is the root has a parent without a page."""
        self._use([tree.root])
        found, left = [], [_Leaf(tree.root, LOWEST, HIGHEST)]
        if self._kind(tree.root) == tree.leaf_kind:
            return [_Parent(b"", (), [tree.root], LOWEST, HIGHEST)]
        while left:
            page, low, high = left.pop()
            content, start = self._pages.read(page), _start(page)
            if content[start] != tree.interior_kind:
                raise UnclearPages(f"page {page} is of kind {content[start]}")
            (count,) = struct.unpack_from(">H", content, start + 3)
            places = struct.unpack_from(f">{count}H", content, start + 12)
            children = [
                *_four_bytes(content, places),
                *struct.unpack_from(">I", content, start + 8),
            ]
            self._use(children)
            if not tree.is_table and self._asked[page]:
                for cell in self._cells(content, start):
                    self._follow(cell)
                    if tree.name == seals:
                        self._add_seals([cell])
            parent = _Parent(content, places, children, low, high)
            # All children are of one kind.
            if self._kind(children[0]) == tree.leaf_kind:
                found.append(parent)
            else:
                left += self._leaves(tree, parent, every=True)
        return found

    def _kind(self, page: int) -> int:
        return self._pages.read(page)[_start(page)]

    def _leaves(self, tree: Tree, parent: _Parent, *, every: bool) -> list[_Leaf]:
        """The children of a page that are asked about, or all; of what is no table, without rows."""
        children = parent.children
        wanted = numpy.nonzero(self._asked[numpy.array(children)])[0].tolist()
        found = []
        for place in range(len(children)) if every else wanted:
            low, high = parent.low, parent.high
            if tree.is_table and place > 0:
                low = _number(parent.content, parent.places[place - 1] + 4)[0]
            if tree.is_table and place < len(parent.places):
                high = _number(parent.content, parent.places[place] + 4)[0]
            found.append(_Leaf(children[place], low, high))
        return found

    def _look_at_leaf(self, tree: Tree, leaf: _Leaf, seals: str) -> None:
        content, start = self._pages.read(leaf.page), _start(leaf.page)
        if content[start] != tree.leaf_kind:
            raise UnclearPages(f"page {leaf.page} is of kind {content[start]}")
        cells = list(self._cells(content, start))
        for cell in cells:
            self._follow(cell)
        if tree.is_table:
            self._add(tree, leaf)
        elif tree.name == seals:
            self._add_seals(cells)

    def _look_at_further(self, tree: Tree, leaf: _Leaf) -> None:
        """Of a leaf that is not asked about: its entries' further pages may be."""
        content = self._pages.read(leaf.page)
        for cell in self._cells(content, _start(leaf.page)):
            if any([self._asked[page] for page in self._follow(cell)]) and tree.is_table:
                self._add(tree, leaf)

    def _look_at_free(self) -> None:
        (trunk,) = struct.unpack_from(">I", self._pages.read(1), 32)
        while trunk:
            self._use([trunk])
            content = self._pages.read(trunk)
            trunk, count = struct.unpack_from(">II", content)
            self._use(list(struct.unpack_from(f">{count}I", content, 8)))
        place = (
            1 << 30
        ) // self._pages.size + 1  # SQLite locks its bytes, and writes nothing there
        if place <= self._pages.count:
            self._use([place])

    def _cells(self, content: bytes, start: int) -> Iterator[_Cell]:
        kind = content[start]
        (count,) = struct.unpack_from(">H", content, start + 3)
        interior = kind in (_INTERIOR_INDEX, _INTERIOR_TABLE)
        places = struct.unpack_from(f">{count}H", content, start + (12 if interior else 8))
        for place in places:
            size, at = _number(content, place + (4 if interior else 0))
            if kind == _LEAF_TABLE:
                _, at = _number(content, at)  # the row's own
            here = self._held_here(size, kind)
            further = 0
            if here < size:
                (further,) = struct.unpack_from(">I", content, at + here)
            yield _Cell(content[at : at + here], further, -((here - size) // (self._usable - 4)))

    def _held_here(self, size: int, kind: int) -> int:
        """Bytes of an entry that lie on its own page."""
        usable = self._usable
        most = usable - 35 if kind == _LEAF_TABLE else (usable - 12) * 64 // 255 - 23
        if size <= most:
            return size
        least = (usable - 12) * 32 // 255 - 23
        some = least + (size - least) % (usable - 4)
        return some if some <= most else least

    def _follow(self, cell: _Cell) -> list[int]:
        """An entry's further pages."""
        page = cell.further
        found: list[int] = []
        while page and len(found) < min(cell.further_count, self._pages.count):
            found.append(page)
            (page,) = struct.unpack_from(">I", self._pages.read(page))
        if page or len(found) != cell.further_count:
            raise UnclearPages("an entry has other pages than its bytes need")
        self._use(found)
        return found

    def _add(self, tree: Tree, leaf: _Leaf) -> None:
        self._found.setdefault(tree.name, []).append(Range(leaf.low, leaf.high))

    def _add_seals(self, cells: list[_Cell]) -> None:
        """The rows of seals that follow each other."""
        rows: dict[str, list[int]] = {}
        for cell in cells:
            table, row = _sealed(cell.content)
            rows.setdefault(table, []).append(row)
        for table, numbers in rows.items():
            self._found.setdefault(table, []).append(Range(min(numbers) - 1, max(numbers)))


def _four_bytes(content: bytes, places: tuple[int, ...]) -> list[int]:
    """The numbers of four bytes at some places."""
    held = numpy.frombuffer(content, numpy.uint8)
    at = numpy.add.outer(numpy.array(places, numpy.int64), numpy.arange(4))
    return [int(number) for number in held[at].view(">u4").ravel().tolist()]


def _start(page: int) -> int:
    """The first page begins with the file's header."""
    return 100 if page == 1 else 0


def _number(content: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends."""
    found = 0
    for place in range(at, at + 8):
        byte = content[place]
        found = found << 7 | byte & 0x7F
        if byte < 0x80:
            return found, place + 1
    found = found << 8 | content[at + 8]
    return (found - (1 << 64) if found >= 1 << 63 else found), at + 9


def _sealed(content: bytes) -> tuple[str, int]:
    """Table and row of an entry of the seals."""
    end, at = _number(content, 0)
    kind, at = _number(content, at)
    row, _ = _number(content, at)
    if kind < 13 or kind % 2 == 0 or row not in _WIDTHS:
        raise UnclearPages("an entry is no seal")
    length = (kind - 13) // 2
    table, rest = content[end : end + length], content[end + length :]
    if row in (8, 9):
        return table.decode(), row - 8
    return table.decode(), int.from_bytes(rest[: _WIDTHS[row]], "big", signed=True)


#: Bytes of whole numbers by their kind in an entry; 8 and 9 stand for 0 and 1.
_WIDTHS: Mapping[int, int] = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 0, 9: 0}


def _joined(ranges: list[Range]) -> list[Range]:
    """The same rows in as few ranges."""
    found: list[Range] = []
    for one in sorted(ranges):
        if found and one.low <= found[-1].high:
            found[-1] = Range(found[-1].low, max(found[-1].high, one.high))
        else:
            found.append(one)
    return found
