"""A message's timestamp as a row shows it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(timestamp_ms: int) -> datetime | str:
    """The time in UTC; beyond the years that Python has, which a producer may put into a message, its ms as text."""
    try:
        return _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
