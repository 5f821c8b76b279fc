"""What pictures of boxes one below the other have in common: letters, lines and their colours in light and dark."""

from __future__ import annotations

LIGHT = """
text{font:12px ui-monospace,SFMono-Regular,Menlo,monospace;fill:#1f2328}
.small{font-size:10px;fill:#59636e}
rect{rx:5px;stroke-width:1px}
.end{fill:none;stroke:#59636e}
path{fill:none;stroke:#818b98;stroke-width:1.3px}
"""
DARK = """
text{fill:#e6edf3}.small{fill:#9198a1}path{stroke:#656c76}
"""


def style(light: str, dark: str) -> str:
    """CSS of a picture.

    Args:
        light, dark: rules of its own classes.
    """
    return f"{LIGHT}{light}@media(prefers-color-scheme:dark){{{DARK}{dark}}}\n"


def shortened(text: str, most: int) -> str:
    """At most so many letters, the last three of them dots where some were left out."""
    return text if len(text) <= most else text[: most - 3] + "..."
