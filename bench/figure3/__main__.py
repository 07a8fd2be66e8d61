"""``scripts/figure3``: the deployment of the paper's Figure 3 on this machine, and the proof that each message is in
each tier once. docs/figure3.md.

At the end the front ends stop, every tier catches up, and each is read again: a row per tier, with its missing and
extra messages by their stamps, and the delays since the front end. The exit code is 1 if one tier is not exact. Ctrl-C
begins the end, and a second one skips it. Nothing is left running, not even after a kill -9 of this command.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from bench.figure3.chaos import Chaos
from bench.figure3.commands import SMALL, Size
from bench.figure3.figure import Figure, Outcome
from bench.figure3.page import render as render_page
from bench.figure3.proof import TierRow
from bench.figure3.results import Run, append, check_writable
from bench.figure3.server import serve_page
from klog.cli.target import klog_home
from klog.config import units
from klog.errors import KlogError, UsageError
from klog.names import counted
from klog.render import Format, Report, render
from klog.signals import StopRequest
from klog.storage.filesystem import translated

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PAGE_EVERY_S = 2.0
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    os.umask(0o077)  # as klog's own commands
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(message)s")
    try:
        given = _parser().parse_args(arguments)
        outcome, faults = run(given)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except KlogError as error:
        say(f"scripts/figure3: {error.message}" + (f"\n  hint: {error.hint}" if error.hint else ""))
        return error.exit_code
    render(Report("figure3", TierRow, outcome.rows), given.output, sys.stdout, terminal=sys.stdout.isatty())
    for note in (
        *outcome.problems,
        *(f"{row.tier}: {row.note}" for row in outcome.rows if row.note and not row.is_good),
    ):
        say(note)
    is_late = outcome.caught_up_s is None
    done = "not all tiers caught up" if is_late else f"all tiers caught up after {outcome.caught_up_s:.1f} s"
    say(f"{done}; {counted(faults, 'fault')}" if faults else done)
    return 0 if outcome.is_good else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/figure3", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, help="empty folder for all data, which is kept (a temporary one)")
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument("--minutes", type=_minutes, help="end after so long (at Ctrl-C)")
    ends.add_argument(
        "--chaos", type=_minutes, metavar="MINUTES", help="kill and pause parts at random for so long, then end"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the faults and of the messages (1)")
    parser.add_argument("--small", action="store_true", help="one live cluster, and one broker in each cluster")
    parser.add_argument("--rate", type=_rate, help="messages of all front ends (500/s; --small: 200/s)")
    parser.add_argument("--port", type=int, default=0, help="of the page (a free one)")
    parser.add_argument("--to", type=Path, metavar="FILE.html", help="write the page to this file too")
    parser.add_argument("--results", type=Path, metavar="FILE.md", help="append the results to this file")
    parser.add_argument("-o", "--output", type=Format, choices=[*Format], default=Format.TABLE, metavar="FORMAT")
    return parser


def _minutes(text: str) -> float:
    value = float(text)
    if not 0.05 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: at least 0.05")
    return value


def _rate(text: str) -> float:
    rate = units.parse_rate(text)
    if rate.what != "messages":
        raise argparse.ArgumentTypeError(f"{text}: messages are counted here, such as 500/s")
    return rate.per_second


def run(given: argparse.Namespace) -> tuple[Outcome, int]:
    """The figure until it is to end; what came of it, and how many faults there were."""
    size = SMALL if given.small else Size()
    if given.rate is not None:
        size = size.at_rate(given.rate)
    asked = threading.Event()
    if given.results is not None:
        check_writable(given.results)
    with _stopping(asked), ExitStack() as ending:
        folder = _folder(given.dir)
        if given.dir is None:
            ending.callback(shutil.rmtree, folder, ignore_errors=True)
        figure = Figure(folder, klog_home().resolve(), size, keep=given.dir is not None, seed=given.seed, note=say)
        ending.callback(figure.stop)
        if given.to is not None:
            _write(given.to, figure)
        server = serve_page(
            lambda: render_page(figure.gauges.facts(), figure.gauges.places(), is_live=True), given.port
        )
        ending.callback(server.close)
        say(f"the page: http://{server.address}/")
        figure.start()
        is_ready = figure.await_ready(asked)
        faults = Chaos(figure.deployment, given.seed, say) if given.chaos is not None else None
        if faults is not None:
            ending.callback(faults.stop)  # it would start again what is ended here
            faults.start()
        wanted, began_s = given.chaos or given.minutes, figure.deployment.seconds
        _stay(figure, asked, None if wanted is None else wanted * 60, given.to)
        if faults is not None:
            faults.stop()
        ran_s = figure.deployment.seconds - began_s
        say("the front ends stop; every tier catches up")
        outcome = figure.end()
        if faults is not None:
            outcome.problems.extend(faults.problems)
        if given.to is not None:
            _write(given.to, figure)
        if given.results is not None:
            done = Run(
                size=size,
                minutes=ran_s / 60 if is_ready else None,
                seed=given.seed,
                chaos=faults is not None,
                faults=len(figure.deployment.faults),
                balanced_by=figure.deployment.balanced_by,
                caught_up_s=outcome.caught_up_s,
                rows=outcome.rows,
                problems=outcome.problems,
            )
            append(given.results, done)
    return outcome, len(figure.deployment.faults)


def _folder(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="klog-figure3-"))
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise UsageError(f"--dir {directory} is not empty", hint="each run begins with an empty folder")
    return directory.resolve()


@contextmanager
def _stopping(asked: threading.Event) -> Iterator[None]:
    """The first signal sets ``asked``; a second one raises KeyboardInterrupt, wherever that is."""
    request = StopRequest()

    def stop(number: int, frame: FrameType | None) -> None:
        if not request.again():
            return
        if request.count == 1:
            say("ending; press Ctrl-C again to end without the proof")
            asked.set()
        elif request.count == 2:
            raise KeyboardInterrupt

    before = {one: signal.signal(one, stop) for one in STOP_SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _stay(figure: Figure, asked: threading.Event, seconds: float | None, file: Path | None) -> None:
    """Until it is asked to end, or for so long; the file follows."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        left_s = PAGE_EVERY_S if deadline is None else min(PAGE_EVERY_S, deadline - time.monotonic())
        if left_s <= 0 or asked.wait(left_s):
            return
        if file is not None:
            _write(file, figure)


def _write(file: Path, figure: Figure) -> None:
    """Whole or not at all for a browser meanwhile."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    page = render_page(figure.gauges.facts(), figure.gauges.places(), is_live=False)
    try:
        part.write_bytes(page.encode("utf-8", "replace"))
    except OSError as error:
        raise translated(error, "write", str(part)) from error
    part.replace(file)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
