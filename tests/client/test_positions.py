"""The grammar of positions, and that timestamps are read before a colon separates."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from klog.client.positions import END, START, Anchor, Position, Range, parse_position, parse_range
from klog.errors import UsageError
from tests.rows import each

NOW_MS = 1_800_000_000_000
TEN = Position(Anchor.TIME, 1_769_940_000_000)  # 2026-02-01T10:00:00Z


@each(
    ("text", "position"),
    [
        ("start", START),
        ("end", END),
        ("0", Position(Anchor.OFFSET, 0)),
        ("9223372036854775807", Position(Anchor.OFFSET, 2**63 - 1)),
        ("+10", Position(Anchor.FORWARD, 10)),
        ("-10", Position(Anchor.BACK, 10)),
        ("@2026-02-01T10:00:00Z", TEN),
        ("@2026-02-01T10:00:00", TEN),
        ("@2026-02-01T10:00", TEN),
        ("@2026-02-01 10:00:00.000", TEN),
        ("@2026-02-01T11:00:00+01:00", TEN),
        ("@2026-02-01T05:30:00-0430", TEN),
        ("@2026-02-01", Position(Anchor.TIME, TEN.value - 36_000_000)),
        ("@2026-02-01T10:00:00.123Z", Position(Anchor.TIME, TEN.value + 123)),
        ("@1769940000000", TEN),
        ("@-1h", Position(Anchor.TIME, NOW_MS - 3_600_000)),
        ("@-500ms", Position(Anchor.TIME, NOW_MS - 500)),
        ("@-1.5h", Position(Anchor.TIME, NOW_MS - 5_400_000)),
    ],
)
def test_points(text: str, position: Position) -> None:
    assert parse_position(text, now_ms=NOW_MS) == position
    assert parse_range(text, now_ms=NOW_MS) == Range(position, None)


@each(
    ("text", "expected"),
    [
        ("5:9", Range(Position(Anchor.OFFSET, 5), Position(Anchor.OFFSET, 9))),
        (":end", Range(START, END)),
        ("-10:", Range(Position(Anchor.BACK, 10), None)),
        ("start:+5", Range(START, Position(Anchor.FORWARD, 5))),
        ("@-2h:@-1h", Range(Position(Anchor.TIME, NOW_MS - 7_200_000), Position(Anchor.TIME, NOW_MS - 3_600_000))),
        ("@2026-02-01T10:00:00Z:@2026-02-01T10:00:00Z", Range(TEN, TEN)),
        ("@2026-02-01T10:00:00:end", Range(TEN, END)),
        ("@2026-02-01T10:00:5", Range(TEN, Position(Anchor.OFFSET, 5))),
        ("@1769940000000:+3", Range(TEN, Position(Anchor.FORWARD, 3))),
    ],
)
def test_ranges(text: str, expected: Range) -> None:
    assert parse_range(text, now_ms=NOW_MS) == expected
    with pytest.raises(UsageError, match="range") as caught:
        parse_position(text if not text.startswith(":") else f"start{text}", now_ms=NOW_MS)
    assert caught.value.exit_code == 2


@each("text", ["5:3", "+5:+3", "-3:-5", "end:start", "@-1h:@-2h", "@2026-02-02:@2026-02-01", "1:0"])
def test_a_range_that_ends_before_it_begins(text: str) -> None:
    with pytest.raises(UsageError, match="ends"):
        parse_range(text, now_ms=NOW_MS)


@each("text", ["5:5", "-5:-3", "end:end", "end:5", "5:-5", "5:start", "@-1h:@-1h"])
def test_a_range_that_may_be_empty(text: str) -> None:
    assert not parse_range(text, now_ms=NOW_MS).is_backward


def test_half_a_minute_past_ten_is_no_range() -> None:
    assert parse_position("@2026-02-01T10:00:30") == Position(Anchor.TIME, TEN.value + 30_000)


@each(
    "text",
    [
        *[
            "5-",
            "++5",
            "@",
            "@yesterday",
            "@-1",
            "@-1w",
            "@2026-02-30",
            "@2026-02-01T25:00",
            "٣",
            "1:2:3",
            "5:x",
            "START",
        ],
        *["", ":", "begin", "5 6", "9223372036854775808", "@99999999999999999999"],
    ],
)
def test_what_is_no_position_says_what_one_looks_like(text: str) -> None:
    for parse in (parse_position, parse_range):
        with pytest.raises(UsageError) as caught:
            parse(text)
        assert caught.value.hint
        assert caught.value.exit_code == 2


POINTS = st.one_of(
    st.sampled_from([START, END]),
    st.builds(
        Position,
        st.sampled_from([Anchor.OFFSET, Anchor.FORWARD, Anchor.BACK, Anchor.TIME]),
        st.integers(0, 2**63 - 1),
    ),
)


@given(POINTS)
def test_a_position_prints_as_it_is_read(position: Position) -> None:
    assert parse_position(str(position)) == position


@given(POINTS, st.one_of(st.none(), POINTS))
def test_a_range_prints_as_it_is_read(begin: Position, end: Position | None) -> None:
    given_range = Range(begin, end)
    assume(not given_range.is_backward)
    assert parse_range(str(given_range)) == given_range


MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
)


@given(MOMENTS, MOMENTS, st.sampled_from(["milliseconds", "seconds", "minutes"]))
def test_any_two_times_make_a_range(first: datetime, second: datetime, precision: str) -> None:
    first, second = sorted((first, second))
    text = "@{}:@{}".format(*(moment.isoformat(timespec=precision) for moment in (first, second)))
    unit = {"milliseconds": timedelta(milliseconds=1), "seconds": timedelta(seconds=1), "minutes": timedelta(minutes=1)}
    found = parse_range(text)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for moment, position in ((first, found.begin), (second, found.end)):
        floor_ms = (moment - epoch) // unit[precision] * unit[precision] // timedelta(milliseconds=1)
        assert position == Position(Anchor.TIME, floor_ms)


@given(st.text("0123456789:@+-startendTZ. hm", max_size=30))
def test_any_text_is_a_range_or_a_usage_error(text: str) -> None:
    try:
        found = parse_range(text, now_ms=NOW_MS)
    except UsageError:
        return
    assert parse_range(str(found), now_ms=NOW_MS) == found
