"""Formulas of operators as browsers draw them: MathML of the engine's LaTeX."""

from __future__ import annotations

import functools
import html
import re
from xml.etree import ElementTree

#: Letters of a formula beyond which nobody reads it as mathematics.
_LONGEST = 20_000

#: What formulas are made of: nothing that leads elsewhere or runs.
_ELEMENTS = frozenset(
    [
        "math",
        "mrow",
        "mi",
        "mn",
        "mo",
        "mtext",
        "mspace",
        "msub",
        "msup",
        "msubsup",
        "munder",
        "mover",
        "munderover",
        "mfrac",
        "msqrt",
        "mroot",
        "mtable",
        "mtr",
        "mtd",
    ]
)
_ATTRIBUTES = frozenset(
    [
        "display",
        "xmlns",
        "stretchy",
        "fence",
        "form",
        "columnalign",
        "mathvariant",
        "width",
        "largeop",
        "movablelimits",
        "linebreak",
        "minsize",
        "maxsize",
    ]
)


@functools.lru_cache(maxsize=256)
def mathml(latex: str) -> str:
    """What :meth:`syno.Operator.latex` gives, as ``<math>`` elements, one a line of ``aligned``.

    What cannot be drawn is shown as it is written. Reports are read from files: nothing in the text becomes
    an element that is none of MathML's.
    """
    body = re.sub(r"\\(begin|end)\{aligned\}", "", latex).strip()
    try:
        if len(latex) > _LONGEST:
            raise ValueError("too long")
        return "".join(_line(line) for line in body.split(" \\\\\n"))
    except Exception:  # the library has kinds of its own, one a construct
        return f"<code>{html.escape(latex)}</code>"


def _line(latex: str) -> str:
    from latex2mathml.converter import convert_to_element

    drawn = convert_to_element(
        latex.replace(" &=", " =").replace(r" &\mathrel", r" \mathrel"), display="block"
    )
    for part in drawn.iter():
        if part.tag not in _ELEMENTS or not _ATTRIBUTES.issuperset(part.attrib):
            raise ValueError(f"<{part.tag} {' '.join(part.attrib)}> is no part of a formula")
        # The library's texts are references to characters, to be escaped once.
        part.text = html.unescape(part.text) if part.text else part.text
    return ElementTree.tostring(drawn, encoding="unicode")


__all__ = ["mathml"]
