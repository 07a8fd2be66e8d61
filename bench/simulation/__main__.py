"""``scripts/bench --simulation``: what happens to a thousand brokers, by klog's own code in virtual time."""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import machine
from bench.growth.page import write
from bench.klog_system import REPOSITORY
from bench.paper.__main__ import commit
from bench.run import say
from bench.simulation.calibrate import measure
from bench.simulation.cluster import Cluster
from bench.simulation.record import BEFORE, NOW, Run, SimulationRecord
from bench.simulation.scenarios import FOREVER_S, Outcome, Scenarios

RESULTS = Path("scale") / "simulation.json"


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.brokers < 2 * given.per_host or given.brokers < given.rolled + 2 or given.partitions < 1:
        print(
            f"a simulation needs two hosts of brokers, and two more brokers than are restarted; got {given.brokers} "
            f"brokers, {given.per_host} a host, {given.rolled} restarted, {given.partitions} partitions",
            file=sys.stderr,
        )
        return 2
    results = given.out / RESULTS
    record = SimulationRecord.read(results) if results.exists() else SimulationRecord()
    wrong = False
    if not given.draw:
        logging.getLogger("klog").setLevel(logging.CRITICAL)  # a thousand brokers are told of one by one
        _calibrate(record, again=given.calibrate)
        record.write(results)
        run = _run(record, given)
        record.add(run)
        record.write(results)
        wrong = any(one.wrong or one.failed for one in run.outcomes)
    say(f"{write(given.out)}")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench --simulation", description=__doc__)
    parser.add_argument("--brokers", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=200_000)
    parser.add_argument("--per-host", type=int, default=4, help="brokers on one host (4)")
    parser.add_argument("--per-topic", type=int, default=100, help="partitions of one topic (100)")
    parser.add_argument("--rolled", type=int, default=5, help="brokers that are restarted one by one (5)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=FOREVER_S, help="virtual seconds after which a scenario fails")
    parser.add_argument("--calibrate", action="store_true", help="measure ZooKeeper again, though it was measured")
    parser.add_argument("--before", action="store_true", help="these sources are the ones before: kept beside today's")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs", help="where scale.md and scale/ go (docs)")
    parser.add_argument("--draw", action="store_true", help="simulate nothing; write the page again from the results")
    return parser


def _calibrate(record: SimulationRecord, *, again: bool) -> None:
    if record.measured.is_measured and not again:
        return
    folder = Path(tempfile.mkdtemp(prefix="klog-simulation-"))
    try:
        record.machine = machine.describe(folder)
        record.measured = measure(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    say(f"ZooKeeper: {record.measured}")


def _run(record: SimulationRecord, given: argparse.Namespace) -> Run:
    run = Run(
        BEFORE if given.before else NOW,
        commit(),
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        given.brokers,
        given.partitions,
        given.per_host,
        given.per_topic,
        given.rolled,
        given.seed,
    )
    cluster = Cluster(
        brokers=given.brokers,
        partitions=given.partitions,
        per_host=given.per_host,
        per_topic=given.per_topic,
        seed=given.seed,
        measured=record.measured,
        assumed=record.assumed,
    )
    say(f"{given.brokers:,} brokers, {given.partitions:,} partitions: {len(cluster.server.nodes):,} znodes")
    scenarios = Scenarios(cluster, say=_told, limit_s=given.limit)
    run.outcomes = cluster.run(scenarios.run(given.rolled))
    return run


def _told(outcome: Outcome) -> None:
    figures = ", ".join(f"{name} {value:,.4g}" for name, value in outcome.figures.items())
    say(f"{outcome.key}: {outcome.failed or figures}")
    for one in outcome.wrong:
        say(f"{outcome.key}: WRONG: {one}")


if __name__ == "__main__":
    sys.exit(main())
