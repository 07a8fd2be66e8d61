"""One run of one command: its cluster, its output, its questions, its exit code.

``perform`` is what happens around every command function: it reads the shared flags, runs the function (in an event
loop where it is async), shows what it returns and turns errors into a message and an exit code.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

import typer
from typer._click.core import Context

from klog.cli import failure, interrupt
from klog.cli.command import Traits, command_name
from klog.cli.flags import DEFAULT_TIMEOUT_S
from klog.cli.target import Target, TargetFlags, klog_home, resolve
from klog.ops.visible import for_stream
from klog.render import Format, Report, render

if TYPE_CHECKING:
    from klog.client.cluster import Cluster
    from klog.coordination.zookeeper import ZooKeeper


@dataclass(frozen=True, slots=True)
class Shared:
    """The values of the flags of every command. Also what stands before the noun (``klog -B h:9092 topic list``) and
    what the shell was started with: then it is the default for what the command itself leaves out."""

    output: Format | None = None
    no_header: bool = False
    quiet: bool = False
    verbose: bool = False
    bootstrap_server: str | None = None
    zookeeper: str | None = None
    profile: str | None = None
    timeout: float | None = None
    trace: bool = False
    yes: bool = False
    dry_run: bool = False

    def over(self, outer: Shared) -> Shared:
        """These flags, and the outer ones where these say nothing."""
        merged = {name: getattr(self, name) or getattr(outer, name) for name in Shared.__slots__}
        if self.bootstrap_server or self.zookeeper or self.profile:
            # Which cluster is one choice: half an address from each place would be two clusters.
            merged.update(bootstrap_server=self.bootstrap_server, zookeeper=self.zookeeper, profile=self.profile)
        return Shared(**merged)


@dataclass(slots=True)
class Invocation:
    """What a command function is given. Used by one thread, the command's."""

    command: str
    traits: Traits
    shared: Shared
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
    session: ZooKeeper | None = None
    """The command's one session with ZooKeeper, once it has needed it."""
    _target: Target | None = None

    # --- output

    @property
    def output(self) -> Format:
        """How rows are shown."""
        return self.shared.output or Format.TABLE

    @property
    def timeout_s(self) -> float:
        """The bound of each wait for an answer."""
        return self.shared.timeout if self.shared.timeout is not None else DEFAULT_TIMEOUT_S

    def say(self, text: str) -> None:
        """A line for a person, on stderr: progress, receipts, notes. ``-q`` silences it."""
        if not self.shared.quiet:
            sys.stderr.write(for_stream(text, sys.stderr) + "\n")
            sys.stderr.flush()

    def detail(self, text: str) -> None:
        """A line that only ``-v`` wants to read."""
        if self.shared.verbose:
            self.say(text)

    def warn(self, text: str) -> None:
        """A warning, on stderr; ``-q`` silences it."""
        self.say(f"warning: {text}")

    def report(self, rows: Iterable[Any], **around: Any) -> Report:
        """A report of this command's rows; the keywords are those of ``Report``."""
        row_type = self.traits.row_type()
        assert row_type is not None, f"{self.command} declares no rows"
        return Report(self.command, row_type, rows, **around)

    def show(self, report: Report, *, out: TextIO | None = None) -> int:
        """Write a report to stdout in the chosen format, and its notes to stderr; the exit code that it asks for."""
        stream = sys.stdout if out is None else out
        header = not self.shared.no_header
        failed = render(report, self.output, stream, header=header, terminal=is_terminal(stream))
        stream.flush()
        if not self.output.is_structured and self.output is not Format.TSV:
            for note in (*report.notes, report.footer):
                if note:
                    self.say(note)
        return failure.EXIT_FAILED if failed or report.failed else 0

    # --- which cluster

    @property
    def target(self) -> Target:
        """The cluster that is meant, and who said so."""
        if self._target is None:
            flags = TargetFlags(self.shared.bootstrap_server, self.shared.zookeeper, self.shared.profile)
            self._target = resolve(flags, os.environ, klog_home())
            self.detail(f"cluster: {self._target}")
        return self._target

    async def cluster(self) -> Cluster:
        """A connection to the cluster, closed when the command ends."""
        from klog.cli import connect

        return await connect.open_cluster(self)

    async def bootstrap_servers(self) -> str:
        """The addresses of its brokers, for what connects by itself."""
        from klog.cli import connect

        return await connect.bootstrap_servers(self)

    async def zookeeper(self) -> ZooKeeper:
        """A session with the cluster's ZooKeeper, closed when the command ends."""
        from klog.cli import connect

        return await connect.open_zookeeper(self)

    def retarget(self, found: Target) -> None:
        """Fill in the address that was looked up."""
        self._target = found

    # --- questions

    def confirm(self, question: str, preview: Report | None = None) -> None:
        """Ask before something that cannot be taken back; returns only where the answer is yes.

        ``--dry-run`` shows the preview on stdout and ends the command with 0; ``--yes`` goes on without a question;
        where stdin is no terminal, that is exit 2 at once; no is exit 1.
        """
        if self.shared.dry_run:
            if preview is not None:
                self.show(preview)
            self.say(f"dry run, nothing done: {question}")
            raise typer.Exit(0)
        if self.shared.yes:
            return
        where = f" on {self.target}" if self.traits.connects else ""
        if not is_terminal(sys.stdin):
            raise failure.NeedsAnswer(
                f"{question}{where}: this asks first, and stdin is no terminal",
                hint="-y does it without asking, --dry-run shows what would be done",
            )
        if preview is not None:
            render(preview, Format.TABLE, sys.stderr, terminal=is_terminal(sys.stderr))
        with interrupt.raising():
            sys.stderr.write(for_stream(f"{question}{where}? [y/N] ", sys.stderr))
            sys.stderr.flush()
            answer = sys.stdin.readline()
        if answer.strip().lower() not in ("y", "yes"):
            if not answer:
                sys.stderr.write("\n")
            raise failure.Declined("not done: the answer was no")


def is_terminal(stream: Any) -> bool:
    """Whether a person is at the other end."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def perform(ctx: Context, function: Callable[..., Any], traits: Traits, values: dict[str, Any]) -> None:
    """Run a command function with all that is around it; raises ``typer.Exit`` with the exit code where it is not 0."""
    own = Shared(**{name: values.pop(name) for name in traits.shared_names() if name in values})
    outer = ctx.find_root().obj
    shared = own.over(outer) if isinstance(outer, Shared) else own
    invocation = Invocation(command_name(ctx), traits, shared)
    # What matters of a command is in its error or its rows; klog's own log lines are a server's.
    logging.basicConfig(level=logging.WARNING if shared.verbose else logging.ERROR, format="%(levelname)s %(message)s")
    if traits.own_interrupt:
        interrupt.leave_to_command()
    try:
        code = _finish(invocation, _run(invocation, function, values))
    except KeyboardInterrupt:
        raise typer.Exit(interrupt.exit_code()) from None  # typer knows no signal but SIGINT
    except typer.Exit:
        raise
    except BrokenPipeError:
        code = 0  # the reader has seen enough; here, because typer would change sys.stdout under a shell that lives on
    except Exception as error:
        code = _fail(invocation, error)
    if code:
        raise typer.Exit(code)


def _run(invocation: Invocation, function: Callable[..., Any], values: dict[str, Any]) -> Any:
    if not inspect.iscoroutinefunction(function):
        return function(invocation, **values)

    import asyncio  # 40 ms that `klog up` need not pay

    async def run() -> tuple[Any, bool]:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            loop.call_soon_threadsafe(task.cancel)

        with interrupt.cancelling(cancel) as interrupted:
            try:
                async with invocation.closing:
                    result = await function(invocation, **values)
            except (asyncio.CancelledError, Exception):
                if interrupted():
                    raise KeyboardInterrupt from None  # also where an error came of being stopped
                raise
            return result, interrupted()

    result, interrupted = asyncio.run(run())
    if interrupted:
        # It was asked to stop and has told what it did until then.
        _finish(invocation, result)
        raise KeyboardInterrupt
    return result


def _finish(invocation: Invocation, result: Any) -> int:
    if result is None:
        return 0
    if isinstance(result, int):
        return result
    report = result if isinstance(result, Report) else invocation.report(result)
    return invocation.show(report)


def _fail(invocation: Invocation, error: Exception) -> int:
    shown = failure.translated(error)
    is_server = invocation.traits.own_interrupt
    if shown is not error and (invocation.shared.verbose or (is_server and isinstance(shown, failure.Bug))):
        # Of a server there may be no second time at which to ask it with -v.
        traceback.print_exception(error)
    # The target as far as it was needed: an error before that has no cluster to name.
    known = invocation._target
    where = str(known) if known is not None else None
    failure.show(shown, invocation.command, invocation.output, sys.stderr, cluster=where)
    return shown.exit_code
