"""The paper's Figure 3 as SVG: front ends, live clusters, the offline cluster, and what reads them.

Built as a tree of elements, so that every text is escaped. Colours and fonts are the page's.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from bench.figure3.facts import Box, Facts, Flow
from klog.render.value_texts import count_text, duration_text
from klog.render.visible import visible

WIDTH: Final = 1000
BOX_WIDTH: Final = 168
LINE: Final = 16
PAD: Final = 10
ROW: Final = 150
COLUMNS: Final = (0, 277, 554, 832)
ABOVE_LINES: Final = "paint-order:stroke;stroke:var(--card);stroke-width:4px"
"""Of text that a line goes through."""
TEXT_MAX: Final = 23
TROUBLE_MAX: Final = 2


class Place(NamedTuple):
    """Column and row of a box; half rows are allowed."""

    column: int
    row: float


def draw(facts: Facts, places: Mapping[str, Place]) -> str:
    """``places``: of each box by its name."""
    rows = max((one.row for one in places.values()), default=0.0)
    height = int((rows + 1) * ROW)
    root = ET.Element(
        "svg",
        # A border is half outside of its box.
        {"role": "img", "width": str(WIDTH), "height": str(height), "viewBox": f"-1 -1 {WIDTH + 2} {height + 2}"},
    )
    ET.SubElement(root, "title").text = "The deployment of Figure 3, with rate, lag and delay of each arrow"
    marker = ET.SubElement(
        ET.SubElement(root, "defs"),
        "marker",
        {"id": "tip", "viewBox": "0 0 8 8", "refX": "7", "refY": "4", "markerWidth": "7", "markerHeight": "7"}
        | {"orient": "auto-start-reverse"},
    )
    ET.SubElement(marker, "path", {"d": "M0 0L8 4L0 8z", "style": "fill:var(--quiet)"})
    boxes = {box.name: box for box in facts.boxes if box.name in places}
    for flow in facts.flows:
        if flow.source in boxes and flow.target in boxes:
            _arrow(root, flow, boxes, places)
    for name, box in boxes.items():
        _box(root, box, places[name])
    return ET.tostring(root, encoding="unicode")


def _height(box: Box) -> int:
    return 2 * PAD + LINE * (1 + len(box.lines) + min(len(box.trouble), TROUBLE_MAX))


def _frame(box: Box, place: Place) -> tuple[float, float, int]:
    """Left, top, height: a box is in the middle of its row."""
    height = _height(box)
    return COLUMNS[place.column], (place.row + 0.5) * ROW - height / 2, height


def _box(root: ET.Element, box: Box, place: Place) -> None:
    x, y, height = _frame(box, place)
    border = "var(--bad)" if box.trouble else "var(--line)"
    group = ET.SubElement(root, "g", {"class": "mark"})
    ET.SubElement(group, "title").text = visible(" · ".join([box.title, *box.lines, *box.trouble]))
    ET.SubElement(
        group,
        "rect",
        {"x": f"{x}", "y": f"{y:g}", "width": str(BOX_WIDTH), "height": str(height), "rx": "8"}
        | {"style": f"fill:var(--card);stroke:{border};stroke-width:1.5"},
    )
    lines = [(box.title, "fill:var(--text);font-weight:600"), *((one, "") for one in box.lines)]
    lines += [(one, "fill:var(--bad)") for one in box.trouble[:TROUBLE_MAX]]
    for number, (text, style) in enumerate(lines):
        _text(group, x + PAD, y + PAD + LINE * (number + 0.75), text, style)


def _arrow(root: ET.Element, flow: Flow, boxes: Mapping[str, Box], places: Mapping[str, Place]) -> None:
    """From edge to edge; three short lines of text in its middle."""
    x1, y1, height1 = _frame(boxes[flow.source], places[flow.source])
    x2, y2, height2 = _frame(boxes[flow.target], places[flow.target])
    ends: Sequence[float]
    if places[flow.source].column == places[flow.target].column:
        middle = x1 + BOX_WIDTH / 2
        down = y1 < y2
        ends = middle, y1 + height1 if down else y1, middle, y2 if down else y2 + height2
        at, anchor = (middle + 6, (ends[1] + ends[3]) / 2 - LINE / 2), "start"
    else:
        right = x1 < x2
        ends = x1 + (BOX_WIDTH if right else 0), y1 + height1 / 2, x2 + (0 if right else BOX_WIDTH), y2 + height2 / 2
        at, anchor = ((ends[0] + ends[2]) / 2, (ends[1] + ends[3]) / 2 - 2 * LINE), "middle"
    style = "stroke:var(--quiet);stroke-width:1.5" + (";stroke-dasharray:4 4" if flow.rate == 0 else "")
    group = ET.SubElement(root, "g", {"class": "mark"})
    ET.SubElement(group, "title").text = visible(flow.by)
    names = ("x1", "y1", "x2", "y2")
    ET.SubElement(
        group,
        "line",
        {name: f"{value:g}" for name, value in zip(names, ends, strict=True)}
        | {"style": style, "marker-end": "url(#tip)"},
    )
    for number, text in enumerate(_words(flow)):
        _text(group, at[0], at[1] + LINE * (number + 0.75), text, f"{ABOVE_LINES};text-anchor:{anchor}")


def _words(flow: Flow) -> list[str]:
    rate = None if flow.rate is None else f"{count_text(flow.rate)}/s"
    delay = None if flow.delay_ms is None else duration_text(flow.delay_ms)
    lag = None if flow.lag is None else f"lag {count_text(flow.lag)}"
    return [one for one in (rate, delay, lag) if one is not None]


def _text(parent: ET.Element, x: float, y: float, text: str, style: str) -> None:
    shown = visible(text)
    if len(shown) > TEXT_MAX:
        shown = shown[: TEXT_MAX - 1] + "…"
    ET.SubElement(parent, "text", {"x": f"{x:g}", "y": f"{y:g}", **({"style": style} if style else {})}).text = shown
