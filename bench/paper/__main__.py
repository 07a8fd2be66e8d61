"""``scripts/paper``: the paper's section 5 as one run; figures, a page and the results as JSON."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import KafkaException

from bench import machine, wire
from bench.consume import ConsumeFailed
from bench.klog_system import REPOSITORY
from bench.maven import PeerMissing
from bench.paper import figures, figures_4_and_5, reasons
from bench.paper.figures_4_and_5 import Size
from bench.paper.page import page
from bench.paper.published import MESSAGES
from bench.paper.queues import LoadFailed
from bench.paper.record import Record
from bench.processes import StartFailed
from klog.errors import KlogError

PEERS = ("klog", "kafka-4.1", "activemq", "rabbitmq")
FAILURES = (PeerMissing, StartFailed, LoadFailed, ConsumeFailed, KlogError, KafkaException, wire.NoAnswer, wire.Refused)
"""What one system may end with while the others go on."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    results = given.out / "paper" / "results.json"
    if given.draw:
        write(Record.read(results), given.out)
        return 0
    unknown = sorted(set(given.peers) - set(PEERS))
    if unknown:
        print(f"scripts/paper: no such peer: {', '.join(unknown)}; there are {', '.join(PEERS)}", file=sys.stderr)
        return 2
    record = run(given.peers, given.messages, given.seconds, given.reason_seconds, round(given.log_gb * 1e9))
    record.write(results)
    write(record, given.out)
    say(f"{given.out / 'paper.md'}, with figures and results in {given.out / 'paper'}")
    return 0 if record.lines else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/paper", description=__doc__)
    parser.add_argument("--messages", type=_above_0(int), default=MESSAGES, help="of each line (10000000)")
    parser.add_argument("--seconds", type=_above_0(float), default=12.0, help="the most that a line takes (12)")
    parser.add_argument(
        "--reason-seconds", type=_above_0(float), default=3.0, help="the most that a row of a reason takes (3)"
    )
    parser.add_argument(
        "--log-gb",
        type=_above_0(float),
        default=8.0,
        help="the most in the log that grows, and half of the disk's room at most (8)",
    )
    parser.add_argument(
        "--peers", type=lambda text: text.split(","), default=list(PEERS), help=f"some of {','.join(PEERS)}"
    )
    parser.add_argument("--out", type=Path, default=REPOSITORY / "docs", help="where paper.md and paper/ go (docs)")
    parser.add_argument("--draw", action="store_true", help="measure nothing; write the page again from the results")
    return parser


def _above_0(kind: type[int] | type[float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = kind(text.replace("_", ""))
        if value <= 0:
            raise argparse.ArgumentTypeError(f"above 0 is wanted, got {text}")
        return value

    number.__name__ = kind.__name__
    return number


def run(peers: Sequence[str], messages: int, limit_s: float, reason_s: float, log_bytes: int) -> Record:
    """Measure; what a system could not do is said, and left out."""
    record = Record(messages=messages, limit_s=limit_s)
    record.date, record.commit = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", commit()
    began = time.monotonic()
    size, reason = Size(messages, limit_s), Size(messages, reason_s)
    folder = Path(tempfile.mkdtemp(prefix="klog-paper-"))
    try:
        record.machine = machine.describe(folder)
        for peer in peers:
            for what, part in _parts(record, folder, peer, size, reason, log_bytes):
                try:
                    part()
                except FAILURES as error:
                    told = f"{peer}, {what}: {str(error).strip()}"
                    record.left_out.append(told.splitlines()[0])
                    say(f"left out: {told}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    record.took_s = time.monotonic() - began
    return record


def _parts(
    record: Record, folder: Path, peer: str, size: Size, reason: Size, log_bytes: int
) -> Sequence[tuple[str, Callable[[], None]]]:
    """Figures and reasons of a system: the one may fail without the other."""
    if peer == "activemq":
        return (
            ("figures 4 and 5", lambda: figures_4_and_5.activemq(record, folder, size, say)),
            ("reasons", lambda: reasons.of_activemq(record, folder, reason, say)),
        )
    if peer == "rabbitmq":
        return (
            ("figures 4 and 5", lambda: figures_4_and_5.rabbitmq(record, folder, size, say)),
            ("reasons", lambda: reasons.of_rabbitmq(record, folder, reason, say)),
        )
    return (
        ("figures 4 and 5", lambda: figures_4_and_5.logs(record, folder, peer, size, say)),
        ("reasons", lambda: reasons.of_log(record, folder, peer, reason, log_bytes, say)),
    )


def write(record: Record, out: Path) -> None:
    """The page and the figures."""
    figures.draw(record, out / "paper")
    (out / "paper.md").write_text(page(record))


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


RESULTS = ("docs", "bench/RESULTS.md", "bench/results")
"""What measurements write, one after the other."""


def commit() -> str:
    """The commit of the sources that are measured, ``-dirty`` where they differ from it."""
    here = ["git", "-C", str(REPOSITORY)]
    found = subprocess.run([*here, "describe", "--always", "--tags"], capture_output=True, text=True, check=False)
    if found.returncode:
        return "unknown"
    but = [f":(top,exclude){one}" for one in RESULTS]
    changed = subprocess.run(
        [*here, "status", "--porcelain", "--", ":(top)", *but], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() + ("-dirty" if changed.stdout.strip() else "")


if __name__ == "__main__":
    sys.exit(main())
