"""Plots as SVG: stacked bars over time.

The page's style sheet has colours and fonts, so one SVG serves light and dark. Every bar has a ``<title>``, which
browsers show on hover without a script. Text keeps its size because a plot is as wide in pixels as it says, so the page
also has a narrow one for phones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from klog.render.value_texts import moment_text, span_text

SERIES_MAX = 6
"""Colours that readers can tell apart, the colour-blind included."""

_STEPS_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1000 * s for s in (1, 2, 5, 10, 30)),
    *(60_000 * m for m in (1, 2, 5, 10, 30)),
    *(3_600_000 * h for h in (1, 2, 3, 6, 12)),
    *(86_400_000 * d for d in (1, 2, 7, 14, 30, 90)),
    *(86_400_000 * 365 * y for y in (1, 2, 5, 10, 50, 100, 1000, 10_000, 100_000)),
)

_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 8, 8, 24
"""Around the axes, in pixels."""


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


class Bars(NamedTuple):
    """Stacked bars, one per bin; ``unit`` writes a value."""

    bins: Bins
    series: Sequence[Series]
    unit: Callable[[float], str]


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


def draw(plot: Bars, width: int, height: int) -> str:
    """The plot as an SVG element for a page of HTML."""
    bins, inner_width, inner_height = plot.bins, width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    totals = [sum(one.values[i] for one in plot.series) for i in range(bins.count)]
    ticks = _ticks(max(totals, default=0))
    scale = inner_height / ticks[-1]
    parts = []
    for tick in ticks:
        y = _TOP + inner_height - tick * scale
        parts.append(f'<path d="M{_LEFT} {y:.1f}h{inner_width}" stroke="var(--line)"/>')
        parts.append(_text(_LEFT - 6, y + 4, "end", plot.unit(tick)))
    span_ms = bins.width_ms * bins.count
    for at, text in _time_ticks(bins.start_ms, bins.begin_ms(bins.count), inner_width):
        parts.append(_text(_LEFT + (at - bins.start_ms) / span_ms * inner_width, height - 6, "middle", text))
    step = inner_width / bins.count
    wide = max(1.0, step - (1.5 if step > 4 else 0.3))
    for i, total in enumerate(totals):
        if not total:
            continue
        values = [(number, one.values[i]) for number, one in enumerate(plot.series) if one.values[i]]
        title = [span_text(bins.begin_ms(i), bins.width_ms)]
        title += [f"{plot.series[number].name}: {plot.unit(value)}" for number, value in values]
        said, y = escape("\n".join(title)), float(_TOP + inner_height)
        for number, value in values:
            tall = max(value * scale, 0.8)  # one message is visible
            y -= tall
            parts.append(
                f'<rect class="mark" x="{_LEFT + i * step:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" '
                f'fill="var(--s{number % SERIES_MAX})"><title>{said}</title></rect>'
            )
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg role="img" {size}>{"".join(parts)}</svg>'


def _text(x: float, y: float, anchor: str, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _ticks(highest: float) -> list[float]:
    """Three to six round values from 0 to at least ``highest``."""
    if highest <= 0:
        return [0, 1]
    power = 10 ** math.floor(math.log10(highest / 4))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor * 5 >= highest)
    step = max(step, 1)
    return [step * i for i in range(math.ceil(highest / step - 1e-9) + 1)]


def _time_ticks(start_ms: float, end_ms: float, width: int) -> list[tuple[float, str]]:
    """(moment, text), as many as fit; timestamps go on beyond the year 9999."""
    span = max(1.0, end_ms - start_ms)
    step = next((one for one in _STEPS_MS if span / one * 84 <= width), _STEPS_MS[-1])
    form = "%Y-%m-%d" if step >= 86_400_000 else "%m-%d %H:%M" if span > 86_400_000 else "%H:%M"
    if step < 60_000:
        form = "%H:%M:%S"
    first = -(-int(start_ms) // step) * step
    moments = [first + step * number for number in range(int((end_ms - first) // step) + 1)]
    return [(at, moment_text(at, form)) for at in moments if 10 <= width * (at - start_ms) / span <= width - 22]
