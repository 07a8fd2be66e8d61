"""``klog demo``: whole deployments on this machine, to look at and to try."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from klog.cli.command import Noun
from klog.cli.invocation import Invocation
from klog.cli.target import klog_home
from klog.config import units
from klog.errors import UsageError
from klog.render import Report
from klog.render.counts import counted
from klog.signals import StopRequest

if TYPE_CHECKING:
    from klog.tools.figure3.figure import Figure, Outcome

demo = Noun("demo", "Whole deployments on this machine, to look at and to try.")

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PAGE_EVERY_S = 2.0


@demo.command("figure3", rows="klog.tools.figure3.proof:TierRow", connects=False, own_interrupt=True)
def figure3(
    invocation: Invocation,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", metavar="DIR", help="Empty folder for all data, which is kept [a temporary one]."),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", metavar="N", min=0.05, help="End after N minutes [at Ctrl-C].")
    ] = None,
    rate: Annotated[
        units.Rate | None,
        typer.Option(
            "--rate",
            metavar="RATE",
            parser=units.parse_rate,
            help="Messages of all front ends [500/s; --small: 200/s].",
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--to", metavar="FILE.html", help="Write the page to this file too.")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option("--results", metavar="FILE.md", help="Append the results to this file, as a table of Markdown."),
    ] = None,
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port of the page; a free one if not given.")
    ] = 0,
    small: Annotated[bool, typer.Option("--small", help="One live cluster, and one broker in each cluster.")] = False,
    chaos: Annotated[
        float | None,
        typer.Option(
            "--chaos", metavar="MINUTES", min=0.05, help="Kill and pause parts at random for so long, then end."
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of the faults and of the messages [1].")] = 1,
) -> Report:
    """Run the deployment of the paper's Figure 3 on this machine, and prove that each message is in each tier once.

    Front ends produce page views into two live clusters of three brokers each. Near-line consumers and a query of Spark
    SQL read these. A mirror copies them into an offline cluster. From there Spark loads a table every two seconds,
    and a stream job counts views per page. A page on 127.0.0.1 shows rate, lag and delay of each arrow.

    At the end the front ends stop, every tier catches up, and each is read again: a row per tier, with its missing and
    extra messages by their stamps, and the delays since the front end. The exit code is 1 if one tier is not exact.
    Ctrl-C begins the end, and a second one skips it. Nothing is left running, not even after a kill -9 of this command.

    --chaos kills and pauses brokers, controllers, ZooKeeper servers, the mirror, Spark's drivers and workers, and a
    whole live cluster, in an order that --seed decides. Front ends are spared.
    """
    from klog.tools.figure3.chaos import Chaos
    from klog.tools.figure3.commands import SMALL, Size
    from klog.tools.figure3.figure import Figure
    from klog.tools.figure3.page import render
    from klog.tools.figure3.results import Run, append, check_writable
    from klog.tools.figure3.server import serve_page

    if chaos is not None and minutes is not None:
        raise UsageError("--chaos and --minutes exclude each other", hint="--chaos MINUTES says how long it runs")
    if rate is not None and rate.what != "messages":
        raise UsageError("--rate counts messages here", hint="--rate 500/s")
    size = SMALL if small else Size()
    if rate is not None:
        size = size.at_rate(rate.per_second)
    home = klog_home().resolve()
    asked = threading.Event()
    if results is not None:
        check_writable(results)
    with _stopping(invocation, asked), ExitStack() as ending:
        folder = _folder(directory)
        if directory is None:
            ending.callback(shutil.rmtree, folder, ignore_errors=True)
        figure = Figure(folder, home, size, keep=directory is not None, seed=seed, note=invocation.say)
        ending.callback(figure.stop)
        if file is not None:
            _write(file, figure)
        server = serve_page(lambda: render(figure.gauges.facts(), figure.gauges.places(), is_live=True), port)
        ending.callback(server.close)
        invocation.say(f"the page: http://{server.address}/")
        figure.start()
        figure.await_ready(asked)
        faults = Chaos(figure.deployment, seed, invocation.say) if chaos is not None else None
        if faults is not None:
            ending.callback(faults.stop)  # it would start again what is ended here
            faults.start()
        wanted, began_s = (chaos if chaos is not None else minutes), figure.deployment.seconds
        _stay(figure, asked, None if wanted is None else wanted * 60, file)
        if faults is not None:
            faults.stop()
        ran_s = figure.deployment.seconds - began_s
        invocation.say("the front ends stop; every tier catches up")
        outcome = figure.end()
        if faults is not None:
            outcome.problems.extend(faults.problems)
        if file is not None:
            _write(file, figure)
        if results is not None:
            run = Run(
                size=size,
                minutes=ran_s / 60,
                seed=seed,
                chaos=chaos is not None,
                faults=len(figure.deployment.faults),
                balanced_by=figure.deployment.balanced_by,
                caught_up_s=outcome.caught_up_s,
                rows=outcome.rows,
                problems=outcome.problems,
            )
            append(results, run)
    return _report(invocation, outcome, len(figure.deployment.faults))


def _folder(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="klog-figure3-"))
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise UsageError(f"--dir {directory} is not empty", hint="each run begins with an empty folder")
    return directory.resolve()


@contextmanager
def _stopping(invocation: Invocation, asked: threading.Event) -> Iterator[None]:
    """The first signal sets ``asked``; a second one raises KeyboardInterrupt, wherever that is."""
    request = StopRequest()

    def stop(number: int, frame: FrameType | None) -> None:
        if not request.again():
            return
        if request.count == 1:
            invocation.say("ending; press Ctrl-C again to end without the proof")
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
    from klog.render.page import write
    from klog.tools.figure3.page import render

    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    write(part, render(figure.gauges.facts(), figure.gauges.places(), is_live=False).encode("utf-8", "replace"))
    part.replace(file)


def _report(invocation: Invocation, outcome: Outcome, faults: int) -> Report:
    notes = [*outcome.problems, *(f"{row.tier}: {row.note}" for row in outcome.rows if row.note and not row.is_good)]
    is_late = outcome.caught_up_s is None
    done = "not all tiers caught up" if is_late else f"all tiers caught up after {outcome.caught_up_s:.1f} s"
    footer = f"{done}; {counted(faults, 'fault')}" if faults else done
    return invocation.report(outcome.rows, notes=tuple(notes), footer=footer, failed=not outcome.is_good)
