"""``scripts/bench --growth``: each curve on klog and Kafka in one run; tables, drawings, results as JSON."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import machine
from bench.cluster_run import at_most
from bench.growth import drawings, page
from bench.growth.curves import CURVES
from bench.growth.growing import Growing, version_of
from bench.growth.record import GrowthRecord
from bench.klog_system import REPOSITORY
from bench.maven import PeerMissing
from bench.paper.__main__ import commit
from bench.run import FAILURES, say

KEYS = tuple(one.key for one in CURVES)


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    unknown = sorted(set(given.curves) - set(KEYS))
    if unknown:
        print(f"no such curve: {', '.join(unknown)}; there are {', '.join(KEYS)}", file=sys.stderr)
        return 2
    results = given.out / "scale" / "results.json"
    record = GrowthRecord.read(results) if results.exists() else GrowthRecord()
    if not given.draw:
        chosen = [one for one in CURVES if not given.curves or one.key in given.curves]
        run(record, chosen, given.systems, results, given.limit, quick=given.quick, most=given.most)
    drawings.draw(record, given.out / "scale")
    say(f"{page.write(given.out)}")
    return 1 if given.quick and record.notes else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench --growth", description=__doc__)
    parser.add_argument("curves", nargs="*", metavar="CURVE", help=f"of {', '.join(KEYS)}; all unless given")
    parser.add_argument(
        "--systems",
        type=lambda text: text.split(","),
        help="klog,kafka-4.1,kafka-3.9; each curve has its own unless given",
    )
    parser.add_argument("--most", type=int, help="no point beyond this value")
    parser.add_argument(
        "--limit", type=float, metavar="SECONDS", help="for each system of a curve, in place of its own"
    )
    parser.add_argument("--quick", action="store_true", help="two small points of each; exit 1 on failure")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs", help="where scale.md and scale/ go (docs)")
    parser.add_argument("--draw", action="store_true", help="measure nothing; write the page again from the results")
    return parser


def run(
    record: GrowthRecord,
    curves: Sequence[Growing],
    systems: Sequence[str] | None,
    results: Path,
    limit_s: float | None,
    *,
    quick: bool,
    most: int | None,
) -> None:
    """Measure each point, and keep what is measured after each curve; where a system fails, its curve ends there and a
    note says why."""
    record.date, record.commit = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", commit()
    folder = Path(tempfile.mkdtemp(prefix="klog-growth-"))
    try:
        record.machine = machine.describe(folder)
        for growing in curves:
            values = [one for one in (growing.quick if quick else growing.values) if most is None or one <= most]
            for system in systems or growing.systems:
                _measure(record, folder / growing.key / system, growing, system, values, limit_s or growing.limit_s)
                record.write(results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(
    record: GrowthRecord, folder: Path, growing: Growing, system: str, values: Sequence[int], limit_s: float
) -> None:
    curve = record.curve(growing.key, system)
    curve.points.clear()
    curve.load, curve.date, curve.commit = machine.load(), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", commit()
    begun = f"{growing.title}: {system}: "
    record.notes = [one for one in record.notes if not one.startswith(begun)]
    reached = 0
    try:
        with at_most(limit_s):
            record.versions[system] = version_of(system)
            for x, figures in growing.measure(system, folder, values):
                curve.add(x, figures)
                reached = x
                told = ", ".join(f"{name} {value:,.4g}" for name, value in figures.items())
                say(f"{begun}{x:,} {growing.of}: {told}")
    except (*FAILURES, PeerMissing, TimeoutError, AssertionError) as error:
        at = f"after {reached:,} {growing.of}" if reached else "at once"
        record.notes.append(f"{begun}ended {at}: {str(error).strip().splitlines()[0] if str(error) else repr(error)}")
        say(record.notes[-1])


if __name__ == "__main__":
    sys.exit(main())
