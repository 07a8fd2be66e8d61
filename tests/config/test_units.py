"""Durations, sizes and rates as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.config.units import Rate, parse_duration_ms, parse_rate, parse_size
from klog.errors import UsageError
from tests.rows import each


@each(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("10s", 10_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("1.5s", 1500),
        ("0s", 0),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms
    assert parse_duration_ms(f" {text.upper()} ") == ms


@each("text", ["", "5", "s", "-1s", "5 weeks", "1e3s", "5s5", "٣s", "1_0s", "9" * 30 + "d"])
def test_no_durations(text: str) -> None:
    with pytest.raises(UsageError, match="duration"):
        parse_duration_ms(text)


@each(
    ("text", "size"),
    [
        ("0", 0),
        ("10", 10),
        ("10B", 10),
        ("64KB", 64_000),
        ("64KiB", 65_536),
        ("1GiB", 2**30),
        ("1.5kb", 1500),
        ("2TiB", 2**41),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@each("text", ["", "KB", "-1", "1XB", "1 2", "1iB"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(UsageError, match="size"):
        parse_size(text)


@each(
    ("text", "rate"),
    [
        ("500/s", Rate(500.0, "messages")),
        ("0.5/s", Rate(0.5, "messages")),
        ("20MB/s", Rate(20e6, "bytes")),
        ("1KiB/s", Rate(1024.0, "bytes")),
        ("100B/s", Rate(100.0, "bytes")),
    ],
)
def test_rates(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate


@each("text", ["", "500", "500/m", "/s", "0/s", "0MB/s", "-5/s", "5x/s", "20MB"])
def test_no_rates(text: str) -> None:
    with pytest.raises(UsageError, match="rate"):
        parse_rate(text)


@given(st.integers(0, 10**12), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_a_number_and_a_unit_multiply(number: int, unit: str) -> None:
    factor = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[unit]
    if number * factor < 2**63:
        assert parse_duration_ms(f"{number}{unit}") == number * factor


@given(st.text(max_size=12))
def test_any_text_is_a_unit_or_a_usage_error(text: str) -> None:
    for parse in (parse_duration_ms, parse_size, parse_rate):
        try:
            parse(text)
        except UsageError as error:
            assert error.hint and error.exit_code == 2


@each(("text", "meant"), [("5", "5s"), ("10 seconds", "10s"), ("0", None), ("9" * 20, None)])
def test_a_duration_that_is_suggested_is_taken(text: str, meant: str | None) -> None:
    with pytest.raises(UsageError) as raised:
        parse_duration_ms(text)
    hint = raised.value.hint or ""
    assert f" {meant}?" in hint if meant is not None else "?" not in hint
