"""``docs/scale.md``: the curves as tables, with what one more costs at each point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.growth.curves import CURVES
from bench.growth.growing import Growing
from bench.growth.record import Curve, GrowthRecord
from bench.simulation.page import section as simulation
from bench.simulation.record import SimulationRecord

BEND = 2.0
"""A slope that is so many times the one before bends, and is marked."""


def page(record: GrowthRecord, folder: Path) -> str:
    """All of the page; ``folder`` is that of the results. What has been simulated has its own section."""
    return "\n\n".join(one for one in (section(record), _simulated(folder)) if one) + "\n"


def write(docs: Path) -> Path:
    """The page again, from whatever results ``docs/scale`` has; its path."""
    folder = docs / "scale"
    results = folder / "results.json"
    path = docs / "scale.md"
    path.write_text(page(GrowthRecord.read(results) if results.exists() else GrowthRecord(), folder))
    return path


def _simulated(folder: Path) -> str:
    """The section of `bench.simulation`, where it has results beside ours."""
    results = folder / "simulation.json"
    return simulation(SimulationRecord.read(results), folder.parent).strip() if results.exists() else ""


def section(record: GrowthRecord) -> str:
    """The curves; a heading alone where there are none."""
    if not record.curves:
        return "# How cost grows"
    machine = ", ".join(f"{name}: {value}" for name, value in record.machine.items())
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    parts = [
        f"""# How cost grows

Written by `scripts/bench --growth` on {record.date} at commit `{record.commit}` from `docs/scale/results.json`.
Each point is a real run, on one machine that brokers and clients share: {machine}.
Systems, each with its defaults: {versions}. klog flushes before it acknowledges, Kafka does not.

Below a figure stands its slope: what one more costs, from the point before to this one. A slope at least {BEND:g} times
the one before is marked with ↑."""
    ]
    parts += _bars(record)
    parts += [_curve(record, growing) for growing in CURVES if record.systems(growing.key)]
    if record.notes:
        parts.append("## Where a curve ended early\n\n" + "\n".join(f"- {one}" for one in record.notes))
    return "\n\n".join(parts)


def _bars(record: GrowthRecord) -> list[str]:
    """What klog was to reach, and what it did, at the largest value of each curve."""
    rows = []
    for growing in CURVES:
        curve = record.find(growing.key, "klog")
        for bar in growing.bars:
            points = [] if curve is None else curve.points.get(bar.figure, [])
            if not points:
                continue
            reached = points[-1][1]
            if bar.each:
                slope = record.whole_slope(growing.key, "klog", bar.figure)
                if slope is None:
                    continue
                reached = slope * growing.sloped[bar.figure][1]
            verdict = "reached" if reached <= bar.most else f"**missed**: {reached / bar.most:.2f} times as much"
            rows.append(
                f"| [{growing.title}](#{_anchor(growing.title)}), {points[-1][0]:,.0f} | {bar.told} | {bar.most:g} "
                f"| {shown(reached)} | {verdict} |"
            )
    if not rows:
        return []
    return [
        "\n".join(
            ["## The bars", "", "| at | of klog | at most | measured | |", "| --- | --- | ---: | ---: | --- |", *rows]
        )
    ]


def _anchor(title: str) -> str:
    return "".join(one for one in title.lower().replace(" ", "-") if one.isalnum() or one == "-")


def _curve(record: GrowthRecord, growing: Growing) -> str:
    curves = [one for name in record.systems(growing.key) if (one := record.find(growing.key, name)) is not None]
    parts = [f"## {growing.title}", f"![{growing.title}](scale/{growing.key}.svg)"]
    doc = (growing.measure.__doc__ or "").strip()
    if doc:
        parts.insert(1, doc)
    lines = [(figure, told, curve) for figure, told in growing.figures.items() for curve in curves]
    lines = [(figure, told, curve) for figure, told, curve in lines if curve.points.get(figure)]
    xs = sorted({point[0] for _, _, curve in lines for point in curve.points[next(iter(curve.points))]})
    rows = [[growing.of, "", *(f"{x:,.0f}" for x in xs)], ["---", "---", *(["---:"] * len(xs))]]
    last = ""
    for figure, told, curve in lines:
        rows.append(["" if told == last else told, curve.system, *(_cell(growing, curve, figure, x) for x in xs)])
        last = told
    parts.append("\n".join("| " + " | ".join(row) + " |" for row in rows))
    runs = "; ".join(
        f"{curve.system} on {curve.date} at `{curve.commit}`, load {curve.load}" for curve in curves if curve.load
    )
    if runs:
        parts.append(f"Measured (load: processes that wanted a core in the minute before): {runs}.")
    bends = _bends(growing, curves)
    if bends:
        parts.append("Bends: " + "; ".join(bends) + ".")
    if growing.why:
        parts.append(growing.why)
    return "\n\n".join(parts)


def _cell(growing: Growing, curve: Curve, figure: str, x: float) -> str:
    value = curve.value(figure, x)
    if value is None:
        return ""
    cell = shown(value)
    slope = curve.slope(figure, x)
    if figure in growing.sloped and slope is not None:
        unit, factor = growing.sloped[figure]
        cell += f"<br>{slope * factor:.3g} {unit}{_bend(curve, figure, x, slope)}"
    return cell


def _bends(growing: Growing, curves: list[Curve]) -> list[str]:
    """klog's slopes that are marked, in words."""
    found = []
    for curve in curves:
        if curve.system != "klog":
            continue
        for figure, (unit, factor) in growing.sloped.items():
            for x, _ in curve.points.get(figure, []):
                slope = curve.slope(figure, x)
                if slope is not None and _bend(curve, figure, x, slope):
                    before = max(at for at, _ in curve.points[figure] if at < x)
                    was = curve.slope(figure, before)
                    assert was is not None
                    found.append(
                        f"{growing.figures[figure]}, at {x:,.0f} {growing.of}: "
                        f"{was * factor:.3g} {unit} before, {slope * factor:.3g} now"
                    )
    return found


def _bend(curve: Curve, figure: str, x: float, slope: float) -> str:
    xs = [at for at, _ in curve.points[figure] if at < x]
    before = curve.slope(figure, xs[-1]) if xs else None
    return " ↑" if before is not None and before > 0 and slope >= BEND * before else ""


def shown(value: float) -> str:
    """Three significant figures."""
    steps: tuple[tuple[float, Callable[[float], str]], ...] = (
        (999.5, lambda one: f"{round(one, 3 - len(str(round(one)))):,.0f}"),
        (99.95, lambda one: f"{one:.0f}"),
        (9.995, lambda one: f"{one:.1f}"),
        (0.9995, lambda one: f"{one:.2f}"),
    )
    return next((form(value) for least, form in steps if value >= least), f"{value:.3f}")
