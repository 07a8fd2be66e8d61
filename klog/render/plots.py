"""Plots as SVG: stacked bars over time, and spreads over time on a logarithmic scale. matplotlib draws them.

Strategy: the page's style sheet has the colours, so one SVG serves light and dark: matplotlib draws in placeholder
colours, which become CSS variables. Fonts come from the page too. Every mark has a ``<title>``, which browsers show on
hover without a script. Text keeps its size because a plot is as wide in pixels as it says, so the page also has a
narrow one for phones.

Limits: matplotlib is an optional package (`klog[plots]`), because it takes 35 MB and loads in half a second.
"""

from __future__ import annotations

import io
import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from klog.render.value_texts import moment_text, span_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AVAILABLE = find_spec("matplotlib") is not None

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
_POINTS_AN_INCH = 72
"""In which matplotlib writes SVG: one point is one pixel of the page."""

_LINE = "#00f1ff"
_COLOURS = {f"#00f1{number:02x}": f"var(--s{number})" for number in range(SERIES_MAX)} | {_LINE: "var(--line)"}
"""Placeholders, and what they become. None is black, which matplotlib does not write because it is SVG's default."""


def _colour(number: int) -> str:
    """The placeholder for a series' colour."""
    return f"#00f1{number % SERIES_MAX:02x}"


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
    """The plot as an SVG element for a page of HTML. ImportError without matplotlib."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.fonttype": "none", "font.size": 12}):
        figure = Figure(figsize=(width / _POINTS_AN_INCH, height / _POINTS_AN_INCH))
        inner_width, inner_height = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
        axes = figure.add_axes((_LEFT / width, _BOTTOM / height, inner_width / width, inner_height / height))
        axes.set_frame_on(False)
        axes.tick_params(left=False, bottom=False)
        axes.set_axisbelow(True)
        axes.yaxis.grid(color=_LINE, linewidth=1, clip_on=False)
        titles = _draw_bars(axes, plot, inner_width, inner_height)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="svg", transparent=True)
    return _for_page(drawn.getvalue(), width, height, titles)


def _draw_bars(axes: Axes, plot: Bars, width: int, height: int) -> dict[str, str]:
    """The titles of the marks, by their ids."""
    bins, titles = plot.bins, {}
    totals = [sum(one.values[i] for one in plot.series) for i in range(bins.count)]
    ticks = _ticks(max(totals, default=0))
    least = 0.8 * ticks[-1] / height  # one message is visible
    step = width / bins.count
    share = max(1.0, step - (1.5 if step > 4 else 0.3)) / step
    for i, total in enumerate(totals):
        if not total:
            continue
        values = [(number, one.values[i]) for number, one in enumerate(plot.series) if one.values[i]]
        title = [span_text(bins.begin_ms(i), bins.width_ms)]
        title += [f"{plot.series[number].name}: {plot.unit(value)}" for number, value in values]
        base = 0.0
        for number, value in values:
            tall = max(value, least)
            (bar,) = axes.bar(i, tall, share, base, align="edge", color=_colour(number), clip_on=False)
            bar.set_gid(f"mark-{i}-{number}")
            titles[f"mark-{i}-{number}"] = "\n".join(title)
            base += tall
    axes.set_ylim(0, ticks[-1])
    axes.set_yticks(ticks, [plot.unit(one) for one in ticks])
    end_ms = bins.begin_ms(bins.count)
    marks = _time_ticks(bins.start_ms, end_ms, width)
    axes.set_xlim(0, bins.count)
    axes.set_xticks([(at - bins.start_ms) / bins.width_ms for at, _ in marks], [text for _, text in marks])
    return titles


# --- Axes -------------------------------------------------------------------------------------------------------------


def _ticks(highest: float) -> list[float]:
    """Three to six round values from 0 to at least ``highest``."""
    if highest <= 0:
        return [0, 1]
    power = 10 ** math.floor(math.log10(highest / 4))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor * 5 >= highest)
    step = max(step, 1)
    return [step * i for i in range(math.ceil(highest / step - 1e-9) + 1)]


def _time_ticks(start_ms: float, end_ms: float, width: int) -> list[tuple[float, str]]:
    """(moment, text), as many as fit. matplotlib's own end with the year 9999, and timestamps do not."""
    span = max(1.0, end_ms - start_ms)
    step = next((one for one in _STEPS_MS if span / one * 84 <= width), _STEPS_MS[-1])
    form = "%Y-%m-%d" if step >= 86_400_000 else "%m-%d %H:%M" if span > 86_400_000 else "%H:%M"
    if step < 60_000:
        form = "%H:%M:%S"
    first = -(-int(start_ms) // step) * step
    moments = [first + step * number for number in range(int((end_ms - first) // step) + 1)]
    return [(at, moment_text(at, form)) for at in moments if 10 <= width * (at - start_ms) / span <= width - 22]


# --- From matplotlib's SVG to the page's ------------------------------------------------------------------------------

_FONT = re.compile(r"font[a-z-]*:[^;]*;?\s*")
_NAMESPACE = re.compile(r"^\{[^}]*\}")


def _for_page(drawn: bytes, width: int, height: int, titles: dict[str, str]) -> str:
    """Without namespaces, ids and fonts; with the page's colours, and a title for each mark."""
    root = ET.fromstring(drawn)
    _adapt(root, titles)
    root.attrib = {"role": "img", "width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    return ET.tostring(root, encoding="unicode")


def _adapt(element: ET.Element, titles: dict[str, str]) -> None:
    for child in list(element):
        child.tag = _NAMESPACE.sub("", child.tag)
        if child.tag in ("metadata", "defs"):
            element.remove(child)
            continue
        child.tail = None
        _adapt(child, titles)
    element.tag = _NAMESPACE.sub("", element.tag)
    if element.text is not None and not element.text.strip():
        element.text = None
    style = _FONT.sub("", element.attrib.pop("style", ""))
    for colour, variable in _COLOURS.items():
        style = style.replace(colour, variable)
    if style:
        element.set("style", style.strip())
    title = titles.get(element.attrib.pop("id", ""))
    if title is not None:
        element.set("class", "mark")
        shown = ET.Element("title")
        shown.text = title
        element.insert(0, shown)
