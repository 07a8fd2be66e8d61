"""What a leader does with a record set before it appends it, in one call."""

from __future__ import annotations

from klog.record.admission import Limits, Unread, check_headers, unpacked_bytes_max
from klog.record.batch import BatchHeader

MAX_BYTES = 1 << 20
LIMITS = Limits(MAX_BYTES, unpacked_bytes_max(MAX_BYTES), None, (1 << 63) - 1)


def check_contents(records: memoryview, limits: Limits = LIMITS) -> list[BatchHeader]:
    """The headers, when the records behind them have been read, at time 0."""
    return Unread(check_headers(records, limits.batch_bytes_max), limits, 0).inspect(records)
