"""Reports: what a search found, beside the original, with uncertainty, machine and command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syno.support.late import late

if TYPE_CHECKING:
    from syno.report.model import Comparison, Entry, Report
    from syno.report.render import read_report, rows, to_csv, to_html, to_markdown, write_report
else:
    __getattr__ = late(
        __name__,
        {
            "Comparison": "syno.report.model",
            "Entry": "syno.report.model",
            "Report": "syno.report.model",
            "read_report": "syno.report.render",
            "rows": "syno.report.render",
            "to_csv": "syno.report.render",
            "to_html": "syno.report.render",
            "to_markdown": "syno.report.render",
            "write_report": "syno.report.render",
        },
    )

__all__ = [
    "Comparison",
    "Entry",
    "Report",
    "read_report",
    "rows",
    "to_csv",
    "to_html",
    "to_markdown",
    "write_report",
]
