"""Operators that people have named: trained beside those that a search finds, and told from them.

An operator is *found* where no known one has its key: at no value of its coefficients, nor with tied weights.
"""

from syno.known.naming import TIED, Names
from syno.known.operators import DEFAULT_KNOWN, NAMES, Known, Place, chosen, known_operators

__all__ = [
    "DEFAULT_KNOWN",
    "NAMES",
    "TIED",
    "Known",
    "Names",
    "Place",
    "chosen",
    "known_operators",
]
