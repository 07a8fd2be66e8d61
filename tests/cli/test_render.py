"""The renderer against a reader of its output: what went in comes back, whatever characters it holds."""

from __future__ import annotations

import io
import json
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from klog.cli.root import walk
from klog.render import Format, Report, render
from klog.render.columns import MayFail, columns
from klog.render.values import UNKNOWN, rfc3339, to_cell, to_json, to_text, to_tsv
from klog.render.writer import yaml_text
from tests.rows import each


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Row(MayFail):
    """One of each kind of value."""

    topic: str
    log_end_offset: int | None
    ratio: float | None
    in_sync: bool
    replicas: tuple[int, ...]
    from_: int
    since: datetime | None = field(metadata={"wide": True})


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["-", "\\-", "\\", "\t", "a\\tb"]
)
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))
ROWS = st.builds(
    Row,
    topic=TEXT,
    log_end_offset=st.none() | st.integers(),
    ratio=st.none() | st.floats(),
    in_sync=st.booleans(),
    replicas=st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple),
    from_=st.integers(),
    since=st.none() | TIMES,
    error=st.none() | TEXT,
    message=st.none() | TEXT,
)


UNESCAPED = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r", "-": "-"}


def from_tsv(text: str) -> str | None:
    """What `to_tsv` wrote: the text, or None where it was unknown."""
    return None if text == UNKNOWN else re.sub(r"\\(.)", lambda found: UNESCAPED[found[1]], text)


def shown(rows: list[Any], form: Format, **keywords: Any) -> str:
    out = io.StringIO()
    render(Report("some.rows", type(rows[0]) if rows else Row, rows), form, out, **keywords)
    return out.getvalue()


def expected(row: Row) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "log_end_offset": row.log_end_offset,
        "ratio": row.ratio if row.ratio is not None and abs(row.ratio) < float("inf") else None,
        "in_sync": row.in_sync,
        "replicas": list(row.replicas),
        "from": row.from_,
        "since": None if row.since is None else rfc3339(row.since),
        "error": row.error,
        "message": row.message,
    }


@given(st.lists(ROWS, max_size=4))
def test_json_gives_back_what_went_in(rows: list[Row]) -> None:
    document = json.loads(shown(rows, Format.JSON))
    assert document == {"_command": "some.rows", "_version": 1, "rows": [expected(row) for row in rows]}


@given(st.lists(ROWS, max_size=4))
def test_json_lines_are_one_row_a_line(rows: list[Row]) -> None:
    lines = shown(rows, Format.JSONL).split("\n")
    assert lines.pop() == ""
    assert [json.loads(line) for line in lines] == [expected(row) for row in rows]


@given(st.lists(ROWS, max_size=3))
def test_yaml_is_the_same_document(rows: list[Row]) -> None:
    assert yaml.safe_load(shown(rows, Format.YAML))["rows"] == [expected(row) for row in rows]


@given(st.lists(ROWS, max_size=4))
def test_tsv_has_a_field_a_column_and_gives_back_text(rows: list[Row]) -> None:
    lines = shown(rows, Format.TSV).split("\n")
    assert lines.pop() == ""
    heads = lines.pop(0).split("\t")
    assert heads == [column.head for column in columns(Row)]
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        fields = dict(zip(heads, map(from_tsv, line.split("\t")), strict=True))
        assert fields["TOPIC"] == row.topic
        assert fields["ERROR"] == row.error
        assert fields["LOG-END-OFFSET"] == (None if row.log_end_offset is None else str(row.log_end_offset))
        assert fields["REPLICAS"] == ",".join(map(str, row.replicas))


@given(TEXT)
def test_tsv_text_round_trip(text: str) -> None:
    written = to_tsv(text)
    assert not set(written) & set("\t\n\r")
    assert from_tsv(written) == text
    assert from_tsv(to_tsv(None)) is None


@given(st.lists(ROWS, min_size=1, max_size=4), st.booleans(), st.booleans())
def test_a_table_has_a_line_a_row_aligned_and_never_cut(rows: list[Row], wide: bool, header: bool) -> None:
    lines = shown(rows, Format.WIDE if wide else Format.TABLE, header=header).split("\n")
    assert lines.pop() == ""
    assert len(lines) == len(rows) + header
    for line, row in zip(lines[header:], rows, strict=True):
        assert to_cell(row.topic).rstrip() in line
        assert line.isprintable()
        if row.error is not None:
            assert to_cell(row.message).rstrip() in line
    if header:
        assert ("SINCE" in lines[0]) == wide
        assert ("ERROR" in lines[0]) == any(row.error is not None for row in rows)


def test_columns_line_up() -> None:
    rows = [Row("a" * 200, 5, None, True, (1, 2), 0, None), Row("b", 12345, 0.5, False, (), 7, None)]
    first, second, third = shown(rows, Format.TABLE).splitlines()
    for head in ("LOG-END-OFFSET", "FROM"):
        end = first.index(head) + len(head)
        assert second[:end].rstrip()[-1].isdigit() and third[:end].rstrip()[-1].isdigit()
    assert second.startswith("a" * 200)
    assert third.split() == ["b", "12345", "0.5", "no", "-", "7"]


def test_an_empty_list_still_has_its_columns() -> None:
    assert shown([], Format.TABLE).split() == ["TOPIC", "LOG-END-OFFSET", "RATIO", "IN-SYNC", "REPLICAS", "FROM"]
    assert json.loads(shown([], Format.JSON))["rows"] == []
    assert shown([], Format.JSONL) == ""
    assert shown([], Format.TSV, header=False) == ""


def test_a_terminal_with_room_gets_colour_and_the_same_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    rows = [Row("[bold]" + "x" * 60, 1, None, True, (1,), 0, None, error="E", message="\x1b[2Jboo")]
    coloured = shown(rows, Format.TABLE, terminal=True)
    assert "\x1b[1m" in coloured and "\x1b[31m" in coloured
    assert "\x1b[2J" not in coloured, "a value has moved the cursor"
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == shown(rows, Format.TABLE)
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in shown(rows, Format.TABLE, terminal=True)


def test_render_says_whether_a_row_failed() -> None:
    good, bad = Row("a", 1, None, True, (), 0, None), Row("b", 1, None, True, (), 0, None, error="E", message="m")
    for form in Format:
        assert render(Report("c", Row, [good]), form, io.StringIO()) is False
        assert render(Report("c", Row, iter([good, bad])), form, io.StringIO()) is True


def test_lines_begin_before_the_last_row_is_known() -> None:
    out = io.StringIO()

    def endless() -> Any:
        yield Row("first", 1, None, True, (), 0, None)
        assert "first" in out.getvalue()
        raise KeyboardInterrupt

    for form in (Format.JSONL, Format.TSV):
        out.truncate(0)
        with pytest.raises(KeyboardInterrupt):
            render(Report("c", Row, endless()), form, out)


@given(TIMES)
def test_times_are_rfc_3339_in_utc_with_milliseconds(moment: datetime) -> None:
    elsewhere = moment.astimezone(timezone(timedelta(hours=5, minutes=30)))
    written = rfc3339(elsewhere)
    assert len(written) == 24 and written.endswith("Z")
    assert datetime.fromisoformat(written) == moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def test_a_time_without_a_zone_is_a_bug_and_says_so() -> None:
    with pytest.raises(ValueError, match="zone"):
        rfc3339(datetime(2026, 1, 1))


def test_every_kind_of_value() -> None:
    assert to_json(Colour.RED) == "red" and to_text(Colour.RED) == "red"
    assert to_json(b"\xff\x00") == "/wA=" and to_json("é".encode()) == "é"
    assert to_json({"a": (1, None)}) == {"a": [1, None]} and to_text({"a": 1, "b": 2}) == "a=1,b=2"
    assert to_cell("") == '""' and to_cell(()) == "-" and to_cell("a\nb\x1b") == "a\\nb\\x1b"
    with pytest.raises(TypeError):
        to_json(object())


ROW_TYPES = {command.traits.rows: command.traits.row_type() for _, command in walk() if command.traits.rows}


@each("name", sorted(filter(None, ROW_TYPES)), tests=2)
@settings(max_examples=settings.default.max_examples // 20)  # for each kind of row
@given(data=st.data())
def test_every_row_of_every_command_can_be_shown_in_every_format(name: str, data: st.DataObject) -> None:
    row_type = ROW_TYPES[name]
    assert row_type is not None
    rows = data.draw(st.lists(st.builds(row_type, **_fields(row_type)), max_size=2))
    report = Report("x.y", row_type, rows)
    for form in Format:
        out = io.StringIO()
        render(report, form, out)
        if form is Format.JSON:
            for row in json.loads(out.getvalue())["rows"]:
                assert list(row) == [column.name for column in columns(row_type)]
        if form is Format.TSV:
            assert {line.count("\t") for line in out.getvalue().split("\n")[:-1]} == {len(columns(row_type)) - 1}


def _fields(row_type: type) -> dict[str, Any]:
    """Strategies for the fields whose types Hypothesis would fill with what no row holds: times without a zone."""
    import dataclasses
    from typing import get_args, get_type_hints

    hints = get_type_hints(row_type)
    found: dict[str, Any] = {}
    for one in dataclasses.fields(row_type):
        hint = hints[one.name]
        options = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        if datetime in options:
            found[one.name] = TIMES | st.none() if type(None) in options else TIMES
        elif hint == tuple[Mapping[str, Any], ...]:
            found[one.name] = st.lists(st.dictionaries(st.text(), st.text()), max_size=2).map(tuple)
    return found


@each("text", ["\x85", "a\u2028b", "\u2029", "plain", "é\x85\n", "- x: y"])
def test_yaml_reads_back_line_breaks_of_unicode(text: str) -> None:
    assert yaml.safe_load(yaml_text({"topic": text})) == {"topic": text}


CORE_1_2 = re.compile(
    r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)|null|Null|NULL|~|true|True|TRUE|false|False|FALSE|"
)
"""What the core schema of YAML 1.2 (10.3.2) takes for no string; JSON's numbers are among it."""
OF_1_1 = re.compile(
    r"[-+]?0b[01_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+"
    r"|[-+]?([0-9][0-9_]*)?\.[0-9.]*([eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*"
    r"|y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF"
)
"""And the types of YAML 1.1 (int, float, bool) beyond that."""


@given(st.one_of(st.from_regex(CORE_1_2, fullmatch=True), st.from_regex(OF_1_1, fullmatch=True), st.text()))
@example("1e3")
@example("0o17")
@example("25921e05")
@example("-.5e3")
@example("y")
def test_what_looks_like_no_text_is_in_quotes(text: str) -> None:
    written = yaml_text({"a": text})
    assert yaml.safe_load(written) == {"a": text}
    is_plain = not written.removeprefix("a: ").startswith(("'", '"', "|", ">"))
    assert not (is_plain and (CORE_1_2.fullmatch(text) or OF_1_1.fullmatch(text))), written


@each("text", ["NaN", "Infinity", "1,000", "-0o7", "+0x1F", "0X1f"])
def test_what_single_readers_take_for_numbers_is_in_quotes(text: str) -> None:
    assert yaml_text([text]) == f"- '{text}'\n"


@each("text", ["orders", "127.0.0.1:9092", "e1", "3 brokers", "yes-topic", "1e3x"])
def test_other_texts_stand_as_they_are(text: str) -> None:
    assert yaml_text([text]) == f"- {text}\n"
