"""A drawing of each curve: its first two figures over what grows, both axes logarithmic."""

from __future__ import annotations

from pathlib import Path

from bench.growth.curves import CURVES
from bench.growth.record import GrowthRecord
from bench.paper.figures import COLOURS


def draw(record: GrowthRecord, folder: Path) -> None:
    """One SVG for each curve that has points."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "klog"
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullFormatter

    folder.mkdir(parents=True, exist_ok=True)
    for growing in CURVES:
        figures = list(growing.figures.items())[:2]
        curves = [one for one in record.curves if one.key == growing.key and one.points]
        if not curves:
            continue
        drawing, panels = pyplot.subplots(1, 2, figsize=(10, 3.6))
        for panel, (figure, told) in zip(panels, figures, strict=True):
            for curve in curves:
                points = curve.points.get(figure, [])
                panel.plot(
                    [x for x, _ in points],
                    [y for _, y in points],
                    marker="o",
                    markersize=3.5,
                    color=COLOURS.get(curve.system, "0.4"),
                    label=curve.system,
                )
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_xlabel(growing.of)
            panel.set_ylabel(told.replace("`", ""))
            panel.grid(visible=True, which="major", color="0.9")
            for axis in (panel.xaxis, panel.yaxis):
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
                axis.set_minor_formatter(NullFormatter())
        panels[0].legend(fontsize=8, frameon=False)
        drawing.suptitle(growing.title, fontsize=11)
        drawing.tight_layout()
        drawing.savefig(folder / f"{growing.key}.svg", metadata={"Date": None})
        pyplot.close(drawing)
