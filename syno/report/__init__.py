"""Reports: what a search found, beside the original, with uncertainty, machine and command."""

from syno.report.model import Comparison, Entry, Report
from syno.report.render import read_report, rows, to_csv, to_html, to_markdown, write_report

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
