"""Counts, sizes, durations and moments as short texts for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

_YEAR_MS = 31_556_952_000
"""On average."""


def count_text(value: float) -> str:
    """``950``, ``12.3 k``, ``4 M``."""
    return _scaled_text(value, 1000, ("", "k", "M", "G", "T", "P"))


def size_text(value: float) -> str:
    """``950 B``, ``12.3 KB``: powers of 1000, as klog writes sizes."""
    return _scaled_text(value, 1000, ("B", "KB", "MB", "GB", "TB", "PB"))


def duration_text(value_ms: float) -> str:
    """The largest unit that fits, with one decimal where that says more: ``350 ms``, ``2.5 s``, ``3 h``."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if value_ms >= length:
            return f"{_short(value_ms / length)} {unit}"
    return f"{value_ms:.0f} ms"


def clock_text(ahead_ms: float) -> str:
    """How far a clock is from others: ``90 s ahead of``, ``864,000 s (10 days) behind``."""
    days = abs(ahead_ms) / 86_400_000
    shown = f" ({days:,.0f} days)" if days >= 2 else ""
    return f"{abs(ahead_ms) / 1000:,.0f} s{shown} {'ahead of' if ahead_ms > 0 else 'behind'}"


def moment_text(time_ms: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A moment in UTC; beyond the years 1 to 9999, which producers may put into messages, its year alone."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime(form)
    except (ValueError, OverflowError):
        return f"year {1970 + int(time_ms // _YEAR_MS)}"


def span_text(start_ms: float, width_ms: float) -> str:
    return f"{moment_text(start_ms)} UTC, {duration_text(width_ms)}"


def _scaled_text(value: float, base: int, units: Sequence[str]) -> str:
    power = 0
    while abs(value) >= base * 0.9995 and power < len(units) - 1:
        value /= base
        power += 1
    return f"{_short(value)} {units[power]}".rstrip()


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if value < 100 else f"{value:.0f}"
