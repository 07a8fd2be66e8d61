"""Columns stand under one another also behind characters that take two places of a terminal, or none."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pytest
from rich.cells import cell_len

from klog.render import Format, Report, render


@dataclass(frozen=True)
class Row:
    """A name, and what stands behind it."""

    name: str
    then: str


@pytest.mark.parametrize("name", ["注文", "🎉", "e\u0301", "ｆｕｌｌ", "주문-1"])
def test_what_stands_behind_begins_in_the_same_place(name: str) -> None:
    out = io.StringIO()
    render(Report("topic.list", Row, [Row(name, "<"), Row("orders-long", "<")]), Format.TABLE, out)
    _, first, second = out.getvalue().splitlines()
    assert cell_len(first.partition("<")[0]) == second.index("<")
