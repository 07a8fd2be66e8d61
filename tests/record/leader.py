"""What a leader does with a record set before it appends it, in one call."""

from __future__ import annotations

from klog.record.batch import BatchHeader, check_produced
from klog.record.contents import BatchLimits, look_inside


def check_contents(buffer: memoryview, batch_bytes_max: int, limits: BatchLimits = BatchLimits()) -> list[BatchHeader]:
    """The headers, when what is behind them has been looked at."""
    return look_inside(buffer, check_produced(buffer, batch_bytes_max), limits)
