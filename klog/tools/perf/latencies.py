"""How long things took: counted, so that any number of them takes bounded memory."""

from __future__ import annotations

import math

FINE_US = 10_000
COARSE_US = 100
"""Below 10 ms to the microsecond, above it to a tenth of a millisecond: never more than one part in a hundred off."""


class Latencies:
    """A histogram. One thread adds; `merged` puts those of several together."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._sum_us = 0
        self.count = 0
        self._largest_us = 0

    def add(self, seconds: float) -> None:
        us = int(seconds * 1_000_000)
        self._sum_us += us
        self.count += 1
        if us > self._largest_us:
            self._largest_us = us
        bucket = us if us < FINE_US else us - us % COARSE_US
        self._counts[bucket] = self._counts.get(bucket, 0) + 1

    @classmethod
    def merged(cls, parts: list[Latencies]) -> Latencies:
        """All of them as one."""
        whole = cls()
        for part in parts:
            for bucket, count in part._counts.items():
                whole._counts[bucket] = whole._counts.get(bucket, 0) + count
            whole._sum_us += part._sum_us
            whole.count += part.count
            whole._largest_us = max(whole._largest_us, part._largest_us)
        return whole

    @property
    def average_ms(self) -> float | None:
        return round(self._sum_us / self.count / 1000, 3) if self.count else None

    @property
    def largest_ms(self) -> float | None:
        return self._largest_us / 1000 if self.count else None

    def percentile_ms(self, percent: float) -> float | None:
        """The smallest time that at least ``percent`` of them did not exceed; None where there are none."""
        if not self.count:
            return None
        wanted = max(math.ceil(self.count * percent / 100), 1)
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                return bucket / 1000
        return self.largest_ms
