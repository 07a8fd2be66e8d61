"""A report as one page of HTML that loads nothing and needs no script: figures, plots, tables.

``page.html`` is the template. It escapes every text, so names of any kind are shown as they are. Each plot is drawn
twice, for wide screens and for phones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from klog.render import plots
from klog.render.plots import Bars

WIDE, NARROW = (1000, 220, 90), (340, 190, 40)
"""(width, height, at most so many bars)."""

NUMBER_MAX = 24
"""Anything longer is text."""


class Tile(NamedTuple):
    """A figure at the top of the page. ``kind``: ``good``, ``bad`` or nothing."""

    name: str
    value: str
    more: str
    kind: str = ""


@dataclass(frozen=True)
class Section:
    """A card of the page: a plot or a table, under a sentence."""

    title: str
    said: str = ""
    legend: Sequence[str] = ()
    plots: Sequence[tuple[str, str]] = ()
    """(wide or narrow, or scroll where phones show a part, SVG)."""
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    """The first column is a name; the others are numbers and times, or sentences."""

    @property
    def texts(self) -> set[int]:
        """Columns with long names or sentences, which are set in lines, from the left."""
        return {at for row in self.rows for at, cell in enumerate(row) if len(cell) > NUMBER_MAX}


def render_page(
    *,
    name: str,
    cluster_id: str,
    time: str,
    tiles: Sequence[Tile],
    findings: Sequence[str],
    sections: Sequence[Section],
    footer: str,
) -> str:
    """The page. ``findings``: the problems, in a card of their own."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(loader=PackageLoader("klog.render", ""), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("page.html").render(
        name=name,
        cluster_id=cluster_id,
        time=time,
        tiles=tiles,
        findings=findings,
        sections=sections,
        footer=footer,
    )


def plotted(title: str, said: str, plot: Callable[[int], Bars], legend: Sequence[str] = ()) -> Section:
    """A plot as a section. ``plot`` takes how many bars fit."""
    sizes = (("wide", WIDE), ("narrow", NARROW))
    drawn = [(kind, plots.draw(plot(count_max), width, height)) for kind, (width, height, count_max) in sizes]
    return Section(title, said, legend, drawn)
