"""What a user may choose for the layouts of a network's tensors."""

from __future__ import annotations

ROW_MAJOR = "row-major"
AUTO = "auto"
MEASURED = "measured"
#: What may be chosen without measuring; behind the first, the families in the order of `syno.graph.layouts.families_of`.
CHOSEN = (AUTO, ROW_MAJOR, "channels-last", "blocked")
LAYOUTS = (*CHOSEN, MEASURED)
