"""scripts/bench: see bench/README.md."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from bench import cluster_run, consumers_run, encrypted_run, host_run, machine, pipeline_run, results
from bench.consumers_run import ConsumerSizes
from bench.klog_system import COMPILED, RELEASES
from bench.pipeline_run import PipelineSizes
from bench.run import Bench, say
from bench.run_record import CONSUMERS, ENCRYPTED, HOST, ONE_BROKER, PIPELINE, STOCK, THREE_BROKERS, RunRecord
from bench.workloads import WORKLOADS, Sizes

SYSTEMS = ("klog", "klog-no-flush", COMPILED, *RELEASES, "kafka-4.1", "kafka-4.1-flush", "kafka-3.9")
STARTED = ("klog", "kafka-4.1", "kafka-3.9")
RESTARTED = ("klog", "kafka-4.1")
CLUSTERS = ("klog", "kafka-3.9")
PIPELINE_SYSTEMS = ("klog", "spark-kafka")
ROUNDS, CONSUMER_ROUNDS = 5, 3
HERE = Path(__file__).parent


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description="klog beside Apache Kafka, in one run.")
    parser.add_argument("--smoke", action="store_true", help="klog alone, tiny sizes, no file; exit 1 on failure")
    parser.add_argument("--rounds", type=int, help=f"default: {ROUNDS}; with --consumers {CONSUMER_ROUNDS}")
    parser.add_argument("--seconds", type=float, default=Sizes.seconds, help="of producing, each run")
    parser.add_argument(
        "--systems",
        help=f"of {', '.join(SYSTEMS)}, kafka-3.9-flush; with --pipeline: {', '.join(PIPELINE_SYSTEMS)}",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PART",
        help=f"workloads whose name has PART; with --cluster: {', '.join(cluster_run.PARTS)}; "
        f"with --consumers: {', '.join(consumers_run.PARTS)}; with --pipeline: {', '.join(pipeline_run.PARTS)}",
    )
    parser.add_argument("--restart-gb", type=float, default=2.0, help="of log to restart on after kill -9; 0: none")
    parser.add_argument("--restart-rounds", type=int, default=2)
    parser.add_argument("--start-rounds", type=int, default=3, help="0: leave it out")
    parser.add_argument("--command-rounds", type=int, default=5, help="of klog's own commands; 0: leave them out")
    parser.add_argument("--dir", type=Path, help="where the systems keep their data while they run")
    parser.add_argument("--cache", type=Path, help="where Kafka's jars are kept (also: KLOG_BENCH_CACHE)")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of RESULTS.md and results/history.jsonl")
    parser.add_argument("--cluster", action="store_true", help="three brokers instead of one, and what a fault costs")
    parser.add_argument("--consumers", action="store_true", help="groups, streams, commits, lag, tail, replay, mirror")
    parser.add_argument("--pipeline", action="store_true", help="Spark's reads and exports, beside its Kafka connector")
    parser.add_argument("--processes", action="store_true", help="two broker processes beside one, on all cores")
    parser.add_argument("--encrypted", action="store_true", help="TLS and SCRAM at every connection")
    parser.add_argument("--growth", action="store_true", help="how cost grows: curves; --growth --help has the rest")
    parser.add_argument(
        "--simulation", action="store_true", help="a thousand brokers; --simulation --help has the rest"
    )
    parser.add_argument("--fault-rounds", type=int, default=3, help="of each fault, with --cluster")
    parser.add_argument("--kills", type=int, default=20, help="of each kind that stock clients meet, with --cluster")
    parser.add_argument("--dry-run", action="store_true", help="write the page to stdout and no file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "--growth" in words:
        from bench.growth import __main__ as growth

        return growth.main([one for one in words if one != "--growth"])
    if "--simulation" in words:
        from bench.simulation import __main__ as simulation

        return simulation.main([one for one in words if one != "--simulation"])
    given = parse(words)
    if given.cache is not None:
        os.environ["KLOG_BENCH_CACHE"] = str(given.cache)
    if given.smoke:
        given.systems, given.rounds, given.command_rounds, given.start_rounds, given.restart_rounds = "klog", 1, 1, 1, 1
        given.fault_rounds = given.kills = 1
        sizes = Sizes.smoke()
        consumer_sizes = ConsumerSizes.smoke()
        pipeline_sizes = PipelineSizes.smoke()
    else:
        sizes = replace(Sizes(), seconds=given.seconds, restart_bytes=int(given.restart_gb * (1 << 30)))
        consumer_sizes = ConsumerSizes()
        pipeline_sizes = PipelineSizes()
    given.systems = given.systems or ",".join(PIPELINE_SYSTEMS if given.pipeline else SYSTEMS)
    if given.rounds is None:
        given.rounds = CONSUMER_ROUNDS if given.consumers else ROUNDS
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="klog-bench-", dir=given.dir) as folder:
        date = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        kind, kept_sizes = ONE_BROKER, asdict(sizes)
        if given.processes:
            kind = HOST
        elif given.encrypted:
            kind = ENCRYPTED
        elif given.pipeline:
            kind, kept_sizes = PIPELINE, asdict(pipeline_sizes)
        elif given.consumers:
            kind, kept_sizes = CONSUMERS, asdict(consumer_sizes)
        elif given.cluster:
            kind = STOCK if given.only == ["stock"] else THREE_BROKERS  # a run of few parts replaces no page of all
        record = RunRecord(date, machine.describe(Path(folder)), rounds=given.rounds, sizes=kept_sizes, kind=kind)
        if given.processes:
            host_run.run(
                record, Path(folder), sizes.seconds, given.rounds, host_run.NAMES[: 2 if given.smoke else None]
            )
            return finish(record, given, began)
        if given.encrypted:
            names = [name for name in encrypted_run.NAMES if name in given.systems.split(",")]
            encrypted_run.run(record, Path(folder), sizes, given.rounds, names)
            return finish(record, given, began)
        if given.pipeline:
            parts = [one for one in pipeline_run.PARTS if not given.only or one in given.only]
            pipeline_run.run(record, Path(folder), pipeline_sizes, given.rounds, given.systems.split(","), parts)
            return finish(record, given, began)
        if given.consumers:
            names = [name for name in CLUSTERS if name in given.systems.split(",")]
            parts = [one for one in consumers_run.PARTS if not given.only or one in given.only]
            consumers_run.run(record, Path(folder), consumer_sizes, given.rounds, names, parts)
            return finish(record, given, began)
        if given.cluster:
            names = [name for name in CLUSTERS if name in given.systems.split(",")]
            parts = [one for one in cluster_run.PARTS if not given.only or one in given.only]
            cluster_run.run(record, Path(folder), sizes, given.rounds, given.fault_rounds, names, parts, given.kills)
            return finish(record, given, began)
        bench = Bench(record, Path(folder), sizes, given.rounds)
        try:
            measure(bench, given)
        except KeyboardInterrupt:
            record.notes.append("the run was interrupted: what is missing was not measured")
        finally:
            bench.close()
    return finish(record, given, began)


def finish(record: RunRecord, given: argparse.Namespace, began: float) -> int:
    """Write what was found, or show it; the exit code."""
    say(f"done in {time.monotonic() - began:.0f} s")
    if given.smoke or given.dry_run:
        print(results.render(record))
        return 1 if given.smoke and (record.notes or not record.versions) else 0
    results.write(record, given.out)
    print(f"{given.out / 'RESULTS.md'}")
    return 0


def measure(bench: Bench, given: argparse.Namespace) -> None:
    """Side by side first, then one at a time: starts and restarts are not to share the machine."""
    systems = given.systems.split(",")
    bench.start(systems)
    if not given.smoke:
        bench.warm(WORKLOADS[0])
        bench.warm(WORKLOADS[1])
    bench.measure([one for one in WORKLOADS if not given.only or any(part in one.name for part in given.only)])
    if not given.only or "library" in given.only:
        bench.library(given.rounds)
    if given.command_rounds:
        bench.commands(given.command_rounds)
    bench.close()
    bench.starts([name for name in STARTED if name in systems], given.start_rounds)
    bench.restarts([name for name in RESTARTED if name in systems], given.restart_rounds if given.restart_gb else 0)


if __name__ == "__main__":
    sys.exit(main())
