"""Rows as blocks, a line for each column: how a table is shown that is wider than the screen."""

from __future__ import annotations

from typing import TextIO

from klog.render.columns import has_failed, shown_columns
from klog.render.report import Report
from klog.render.values import to_cell


def write_blocks(report: Report, out: TextIO, *, wide: bool) -> bool:
    """Write each row as a block, with its number above it; whether any row had failed."""
    rows = list(report.rows)
    shown = shown_columns(report.row_type, rows, wide=wide)
    width = max((len(column.head) for column in shown), default=0)
    for number, row in enumerate(rows, 1):
        out.write(f"-- {number} of {len(rows)} --\n")
        for column in shown:
            out.write(f"{column.head:<{width}}  {to_cell(getattr(row, column.field))}".rstrip() + "\n")
    return any(has_failed(row) for row in rows)
