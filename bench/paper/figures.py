"""Figures 4 and 5 in the paper's form: messages a second over MB moved, a line for each system and batch size.

Two panels each: the options that the makers advise, and the paper's. The paper's own values are broken lines.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.paper import published
from bench.paper.record import Line, Record

COLOURS = {
    "klog": "#1b6ca8",
    "kafka-4.1": "#d1495b",
    "activemq": "#7a9e3f",
    "rabbitmq classic": "#e3a018",
    "rabbitmq quorum": "#8d5a97",
}
STYLES = {"librdkafka": "-", "its own": "-", "klog.Producer": "--", "klog.Consumer": "--"}
MARKERS = {1: "o", 50: "s", None: "o"}
PANELS = {"advised": "as its makers advise", "paper": "with the paper's options"}


def draw(record: Record, folder: Path) -> list[Path]:
    """SVG and PNG of both figures; the files."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "klog"  # the same drawing is the same file
    folder.mkdir(parents=True, exist_ok=True)
    produced = [(f"the paper's Kafka, batch {batch}", rate) for batch, rate in published.PRODUCED.items()]
    return [
        *_figure(record, "4", "Producers", produced, folder / "figure-4"),
        *_figure(record, "5", "Consumers", [("the paper's Kafka", published.CONSUMED)], folder / "figure-5"),
    ]


def _figure(record: Record, which: str, title: str, paper: list[tuple[str, int]], path: Path) -> list[Path]:
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter

    drawing, panels = pyplot.subplots(1, 2, figsize=(11, 6.2), sharey=True)
    named: dict[str, Any] = {}
    for panel, options in zip(panels, PANELS, strict=True):
        lines = [one for one in record.lines if one.figure == which and one.options == options]
        for line in lines:
            named[line.name] = _line(panel, line)
        for number, (name, rate) in enumerate(paper):
            named[name] = panel.axhline(rate, color="0.45", linestyle=(":", "-.")[number % 2], linewidth=1.2)
        panel.set_yscale("log")
        panel.set_xscale("log")
        panel.set_title(PANELS[options], fontsize=10)
        panel.set_xlabel("MB moved")
        panel.grid(visible=True, which="major", color="0.9")
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
            axis.set_minor_formatter(NullFormatter())
    panels[0].set_ylabel("messages/s")
    names = sorted(named)
    drawing.legend([named[one] for one in names], names, loc="lower center", ncols=3, fontsize=8, frameon=False)
    rows = -(-len(names) // 3)
    drawing.suptitle(f"{title}: messages of {published.VALUE_BYTES} bytes (figure {which} of the paper)", fontsize=12)
    drawing.tight_layout(rect=(0, 0.035 * rows + 0.02, 1, 1))
    files = [path.with_suffix(".svg"), path.with_suffix(".png")]
    drawing.savefig(files[0], metadata={"Date": None})
    drawing.savefig(files[1], dpi=110, metadata={"Software": None})
    pyplot.close(drawing)
    return files


def _line(panel: Any, line: Line) -> Any:
    across = [point[0] for point in line.points]
    up = [point[1] for point in line.points]
    (drawn,) = panel.plot(
        across,
        up,
        color=COLOURS.get(line.system, "0.2"),
        linestyle=STYLES.get(line.client, "-"),
        marker=MARKERS.get(line.batch, "o"),
        markersize=3.5,
        linewidth=1.3,
    )
    return drawn
