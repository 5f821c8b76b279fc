"""What a description of an operator is made of, for those who read it and describe none: nothing else is imported with it."""

from __future__ import annotations

#: Before the name of the known operator that one is most like.
NEAREST = "Nearest known operator: "
