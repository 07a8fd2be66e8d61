"""A table fits its screen: nothing is cut, and what gives way is named."""

from __future__ import annotations

import io
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from klog.admin.acts import ActRow
from klog.admin.brokers import BrokerSetting
from klog.admin.group_lag import LagRow
from klog.render import Format, Report, render
from klog.render.columns import Column
from klog.render.fitting import GAP, TEXT_MIN, fit

WORDS = st.lists(st.text("abcXYZ", min_size=1, max_size=12), min_size=1, max_size=12).map(" ".join)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Column], list[list[str]]]:
    """Columns of numbers and of texts, some with a rank; their cells."""
    kinds = draw(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), min_size=1, max_size=7))
    columns = [Column(f"f{at}", f"f{at}", f"HEAD-{at}", False, *kind) for at, kind in enumerate(kinds)]
    cells = [st.integers(0, 10**12).map(str) if numeric else WORDS for numeric, _ in kinds]
    return columns, draw(st.lists(st.tuples(*cells).map(list), max_size=4))


@given(tables(), st.integers(20, 140))
def test_no_cell_loses_a_word_and_columns_go_by_their_rank(
    table: tuple[list[Column], list[list[str]]], width: int
) -> None:
    columns, rows = table
    found = fit(columns, rows, width)
    kept = [columns.index(one) for one in found.columns]
    wanted = [[row[at].replace(" ", "") for at in kept] for row in rows]
    assert [["".join(lines).replace(" ", "") for lines in row] for row in found.rows] == wanted
    gone = [one for one in columns if one not in found.columns]
    assert sorted(one.head for one in gone) == sorted(found.left_out) and all(one.rank for one in gone)
    assert all(one.rank <= min((other.rank for other in gone), default=9) for one in found.columns)
    widths = [
        max([len(head), *(len(line) for row in found.rows for line in row[at])]) for at, head in enumerate(found.heads)
    ]
    if sum(widths) + GAP * (len(widths) - 1) > width:  # then nothing is left that could give way
        assert not any(one.rank for one in found.columns)
        assert all(
            one.numeric or size <= max(TEXT_MIN, len(one.head)) for one, size in zip(found.columns, widths, strict=True)
        )


def test_lag_in_eighty_columns_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    owner = "consumer-billing-7f6d8c9b5-x2x4z-0d5f0f6e-3c53"
    row = LagRow("billing", "payments", 11, 1 << 40, 1 << 39, 1 << 41, 62_300, 1 << 30, 4_000_000, owner)
    for form, width in ((Format.TABLE, 80), (Format.WIDE, 1_000)):
        out, report = io.StringIO(), Report("lag", LagRow, [row])
        render(report, form, out, terminal=True)
        head, *lines = out.getvalue().splitlines()
        assert max(map(len, [head, *lines])) <= width
        assert {"GROUP", "TOPIC", "LAG", "OWNER"} <= set(head.split())
        assert bool(report.left_out) == (form is Format.TABLE)
        if report.left_out:
            assert "".join(line[head.index("OWNER") :].strip() for line in lines) == owner
    piped = io.StringIO()
    render(report, Format.TABLE, piped)
    assert "LOG-START-OFFSET" in piped.getvalue(), "a pipe gets all of it"


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


@pytest.mark.parametrize(
    "row",
    [
        ActRow(
            *("mwzdmsmgy10p", datetime(2026, 11, 27, tzinfo=UTC), "klog@127.0.0.1", "klog", "offsets"),
            *("group billing", "orders-2=500", "orders-2=0", None),
        ),
        BrokerSetting(
            *("advertised.host.name", "broker-1.example.com", "default", "broker-1.example.com"),
            *("metadata and ZooKeeper", "Host advertised to clients if advertised.listeners is not given."),
        ),
    ],
    ids=lambda row: type(row).__name__,
)
def test_rows_of_many_columns_fit_in_eighty(monkeypatch: pytest.MonkeyPatch, row: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out, report = io.StringIO(), Report("undo", type(row), [row])
    render(report, Format.TABLE, out, terminal=True)
    assert max(map(len, out.getvalue().splitlines())) <= 80 and report.left_out
