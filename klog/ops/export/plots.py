"""Plots as SVG text: bars over time, a spread over time on a logarithmic scale, horizontal bars.

Strategy: colours and fonts are left to the page's style sheet, by class (``s0`` to ``s5`` for series), so that one SVG
serves light and dark. Every mark has a ``<title>``, which browsers show on hover: there is no script. A plot is as wide
in pixels as it says, so its text keeps its size; who wants it on a phone draws a narrow one too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

SERIES_MAX = 6
"""Colours that can be told apart, by the colour-blind too."""

_STEPS_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1000 * s for s in (1, 2, 5, 10, 30)),
    *(60_000 * m for m in (1, 2, 5, 10, 30)),
    *(3_600_000 * h for h in (1, 2, 3, 6, 12)),
    *(86_400_000 * d for d in (1, 2, 7, 14, 30, 90)),
    *(86_400_000 * 365 * y for y in (1, 2, 5, 10, 50, 100, 1000, 10_000, 100_000)),
)
_YEAR_MS = 31_556_952_000
"""On average."""
_DECADES_MS = (1, 10, 100, 1000, 10_000, 60_000, 600_000, 3_600_000, 36_000_000, 86_400_000, 864_000_000, 8_640_000_000)

_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 8, 8, 24


class Series(NamedTuple):
    name: str
    values: Sequence[float]
    """One a bin."""


@dataclass(frozen=True)
class Bins:
    """Equal spans of time: bin i is [start_ms + i * width_ms, ...)."""

    start_ms: int
    width_ms: int
    count: int

    def holding(self, time_ms: float) -> int | None:
        """The bin of a moment, if it is in any."""
        i = int((time_ms - self.start_ms) // self.width_ms)
        return i if 0 <= i < self.count else None

    def begin_ms(self, i: int) -> int:
        return self.start_ms + i * self.width_ms


class Spread(NamedTuple):
    """At one moment, from ``low`` to ``high`` (both ms, of whatever is shown)."""

    at_ms: float
    low_ms: float
    high_ms: float
    title: str


def bins_for(first_ms: int, last_ms: int, count_max: int, least_ms: int = 1) -> Bins:
    """Bins of a round length, at least ``least_ms``, that hold both moments."""
    for width in _STEPS_MS:
        if width >= least_ms and width % least_ms == 0:
            start = first_ms - first_ms % width
            count = (last_ms - start) // width + 1
            if count <= count_max:
                return Bins(start, width, int(count))
    width = -(-(last_ms - first_ms + 1) // count_max)
    return Bins(first_ms, width, count_max)


def bars(bins: Bins, series: Sequence[Series], width: int, height: int, unit: Callable[[float], str]) -> str:
    """Stacked bars, one a bin; ``unit`` writes a value."""
    totals = [sum(one.values[i] for one in series) for i in range(bins.count)]
    ticks = _ticks(max(totals, default=0))
    scale = (height - _TOP - _BOTTOM) / ticks[-1]
    step = (width - _LEFT - _RIGHT) / bins.count
    parts = [_grid(width, height, [(value * scale, unit(value)) for value in ticks])]
    for i, total in enumerate(totals):
        if not total:
            continue
        x, bar = _LEFT + i * step, max(1.0, step - (1.5 if step > 4 else 0.3))
        said = [span_words(bins.begin_ms(i), bins.width_ms)]
        said += [f"{one.name}: {unit(one.values[i])}" for one in series if one.values[i]]
        base = float(height - _BOTTOM)
        parts.append(f"<g><title>{escape(chr(10).join(said))}</title>")
        for number, one in enumerate(series):
            tall = one.values[i] * scale
            if one.values[i]:
                tall = max(tall, 0.8)  # one message is not nothing
                base -= tall
                parts.append(_rect(x, base, bar, tall, f"s{number % SERIES_MAX}"))
        parts.append("</g>")
    parts.append(_time_axis(bins.start_ms, bins.begin_ms(bins.count), width, height))
    return _svg(width, height, parts)


def spreads(points: Sequence[Spread], start_ms: int, end_ms: int, width: int, height: int) -> str:
    """A bar from low to high for each point, on a logarithmic scale of durations; the lower ends joined by a line."""
    lowest = max(1.0, min(point.low_ms for point in points))
    highest = max(10.0, *(point.high_ms for point in points))
    low = max((one for one in _DECADES_MS if one <= lowest), default=1)
    high = min((one for one in _DECADES_MS if one >= highest and one > low), default=math.ceil(highest))
    shown = [one for one in _DECADES_MS if low <= one <= high]
    span = math.log(high / low)

    def up(value_ms: float) -> float:
        return (height - _TOP - _BOTTOM) * math.log(min(max(value_ms, low), high) / low) / span

    def across(at_ms: float) -> float:
        return _LEFT + (width - _LEFT - _RIGHT) * (at_ms - start_ms) / max(1, end_ms - start_ms)

    base = height - _BOTTOM
    parts = [_grid(width, height, [(up(one), duration_words(one)) for one in shown])]
    for point in points:
        x, bottom, top = across(point.at_ms), up(point.low_ms), up(point.high_ms)
        mark = _rect(x - 1.5, base - top, 3, max(1.5, top - bottom), "band")
        parts.append(f"<g><title>{escape(point.title)}</title>{mark}</g>")
    line = " ".join(f"{across(point.at_ms):.1f},{base - up(point.low_ms):.1f}" for point in points)
    parts.append(f'<polyline class="line" points="{line}"/>')
    parts.append(_time_axis(start_ms, end_ms, width, height))
    return _svg(width, height, parts)


def levels(rows: Sequence[tuple[str, float, str]], width: int) -> str:
    """Horizontal bars: (name, value, what is said of it)."""
    tall, name_width = 20, min(max((len(name) for name, _, _ in rows), default=0) * 7 + 10, width // 2)
    said_width = max((len(said) for _, _, said in rows), default=0) * 7 + 8
    room = max(10, width - name_width - said_width)
    most = max((value for _, value, _ in rows), default=0) or 1
    parts = []
    for number, (name, value, said) in enumerate(rows):
        y = number * tall
        bar = max(1.5, room * value / most)
        cut = name if len(name) * 7 + 10 <= name_width else "…" + name[-(name_width - 17) // 7 :]
        parts.append(
            f'<g><title>{escape(name)}: {escape(said)}</title><text x="{name_width - 8}" y="{y + 14}" '
            f'text-anchor="end">{escape(cut)}</text>{_rect(name_width, y + 3, bar, tall - 6, "s0")}'
            f'<text x="{name_width + bar + 6:.1f}" y="{y + 14}">{escape(said)}</text></g>'
        )
    return _svg(width, tall * max(1, len(rows)), parts)


# --- Words for values -------------------------------------------------------------------------------------------------


def count_words(value: float) -> str:
    """``950``, ``12.3 k``, ``4 M``."""
    return _scaled_words(value, 1000, ("", "k", "M", "G", "T", "P"))


def size_words(value: float) -> str:
    """``950 B``, ``12.3 KB``: powers of 1000, as klog writes sizes."""
    return _scaled_words(value, 1000, ("B", "KB", "MB", "GB", "TB", "PB"))


def duration_words(value_ms: float) -> str:
    """The largest unit that fits, with one decimal where that says more: ``350 ms``, ``2.5 s``, ``3 h``."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if value_ms >= length:
            return f"{_short(value_ms / length)} {unit}"
    return f"{value_ms:.0f} ms"


def moment_words(time_ms: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """A moment in UTC; beyond the years 1 to 9999, which producers may put into messages, its year alone."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime(form)
    except (ValueError, OverflowError):
        return f"year {1970 + int(time_ms // _YEAR_MS)}"


def span_words(start_ms: float, width_ms: float) -> str:
    return f"{moment_words(start_ms)} UTC, {duration_words(width_ms)}"


def _scaled_words(value: float, base: int, units: Sequence[str]) -> str:
    power = 0
    while abs(value) >= base * 0.9995 and power < len(units) - 1:
        value /= base
        power += 1
    return f"{_short(value)} {units[power]}".rstrip()


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0") if value < 100 else f"{value:.0f}"


# --- Axes and marks ---------------------------------------------------------------------------------------------------


def _ticks(highest: float) -> list[float]:
    """Three to six round values from 0 to at least ``highest``."""
    if highest <= 0:
        return [0, 1]
    power = 10 ** math.floor(math.log10(highest / 4))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor * 5 >= highest)
    step = max(step, 1)
    return [step * i for i in range(math.ceil(highest / step - 1e-9) + 1)]


def _grid(width: int, height: int, lines: Sequence[tuple[float, str]]) -> str:
    parts = []
    for up, said in lines:
        y = height - _BOTTOM - up
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(said)}</text>')
    return "".join(parts)


def _time_axis(start_ms: float, end_ms: float, width: int, height: int) -> str:
    span = max(1.0, end_ms - start_ms)
    room = width - _LEFT - _RIGHT
    step = next((one for one in _STEPS_MS if span / one * 84 <= room), _STEPS_MS[-1])
    form = "%Y-%m-%d" if step >= 86_400_000 else "%m-%d %H:%M" if span > 86_400_000 else "%H:%M"
    if step < 60_000:
        form = "%H:%M:%S"
    parts = []
    at = -(-int(start_ms) // step) * step
    while at <= end_ms:
        x = _LEFT + room * (at - start_ms) / span
        if _LEFT + 10 <= x <= width - 30:
            said = moment_words(at, form)
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{height - _BOTTOM}" y2="{height - 18}"/>')
            parts.append(f'<text x="{x:.1f}" y="{height - 6}" text-anchor="middle">{said}</text>')
        at += step
    return "".join(parts)


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    return f'<svg role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}">{"".join(parts)}</svg>'
