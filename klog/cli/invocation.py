"""One run of one command: its cluster, its output, its questions, its exit code.

``perform`` is what happens around every command function: it reads the global flags, runs the function (in an event
loop where it is async), shows what it returns and turns errors into a message and an exit code.
"""

from __future__ import annotations

import inspect
import logging
import sys
import traceback
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TextIO

import typer

from klog.cli import error_report, interrupt, standard_streams
from klog.cli.flags import DEFAULT_TIMEOUT_S, GlobalFlags
from klog.cli.name_values import connect_by
from klog.cli.progress import Drawing, at_work
from klog.cli.target import Target, klog_home, profile_of_addresses, profile_of_other, resolve, secured
from klog.cli.traits import Traits, command_name
from klog.errors import KlogError, UnknownTopicOrPartition, UsageError
from klog.render import Format, Report, render
from klog.render.visible import for_stream, is_terminal

if TYPE_CHECKING:
    from klog.admin.health.snapshot import Where
    from klog.admin.profiles import Profile
    from klog.cli.connect import Connection
    from klog.cli.session import Session
    from klog.client.client_config import ClientConfig
    from klog.client.cluster import Cluster
    from klog.coordination.zookeeper import ZooKeeper


UNDO_LINES_MAX = 5
"""Of the acts of one command."""


@dataclass(slots=True)
class Invocation(Drawing):
    """What a command function is given. Used by one thread, the command's."""

    command: str
    traits: Traits
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What else ends with the command."""
    client_config: ClientConfig | None = None
    """The file of ``--client-config``."""
    connect_by: Mapping[str, str] = field(default_factory=dict)
    """What ``-X`` says of the connection."""
    undo: list[str] = field(default_factory=list)
    """The lines that end its receipt."""
    _connection: Connection | None = None
    _session: Session | None = None

    # --- output

    @property
    def timeout_s(self) -> float:
        """The bound of each wait for an answer."""
        return self.shared.timeout if self.shared.timeout is not None else DEFAULT_TIMEOUT_S

    def say(self, text: str) -> None:
        """A line for a person, on stderr: progress, receipts, notes. ``-q`` silences it."""
        if not self.shared.quiet:
            self.clear_line()
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
        self.clear_line()
        self.has_shown = True
        stream = sys.stdout if out is None else out
        header, screen = not self.shared.no_header, self.shared.screen
        if screen is not None and screen.takes(self.output) and out is None and is_terminal(stream):
            failed = screen.show(report, self.output, header=header)
        else:
            failed = render(report, self.output, stream, header=header, terminal=is_terminal(stream))
        stream.flush()
        if not self.output.is_structured and self.output is not Format.TSV:
            left_out = f"not shown: {', '.join(report.left_out)} (-o wide)" if report.left_out else ""
            for note in (*report.notes, report.footer, left_out):
                if note:
                    self.say(note)
        return error_report.EXIT_FAILED if failed or report.failed else 0

    # --- which cluster

    @property
    def session(self) -> Session:
        """The shell's, or the command's own. One that is traced has its own in any case."""
        if self._session is None:
            from klog.cli.session import Session  # with asyncio, 40 ms that `klog up` need not pay

            kept = self.shared.session
            self._session = Session(trace=self.shared.trace) if kept is None or self.shared.trace else kept
        return self._session

    def take_client_config(self, own: GlobalFlags) -> None:
        """Read the file of ``--client-config``: it has what flags leave out. ``own``: the command's flags."""
        from klog.client.client_config import read_client_config

        path = self.shared.client_config
        assert path is not None
        self.client_config = found = read_client_config(path, more=self.connect_by)
        for note in found.notes:
            self.warn(note)
        beside = own if own.client_config is not None else self.shared
        if (found.bootstrap or found.zookeeper) and not (beside.bootstrap_server or beside.zookeeper or beside.profile):
            self.shared = replace(
                self.shared,
                bootstrap_server=found.bootstrap,
                zookeeper=found.zookeeper,
                profile=None,
                address_source=f"--client-config {path}",
            )
        if found.timeout_s is not None and beside.timeout is None:
            self.shared = replace(self.shared, timeout=found.timeout_s)

    @property
    def connection(self) -> Connection:
        """The way to the cluster that is meant."""
        if self._connection is None:
            self.connect_to(secured(resolve(self.shared), self.client_config, self.connect_by))
            self.detail(f"cluster: {self.target}")
            if self.traits.changes and not self.shared.dry_run:
                self.check_may_change()
        assert self._connection is not None
        return self._connection

    def connect_to(self, target: Target) -> None:
        """Take this cluster for the one that is meant."""
        from klog.cli.connect import Connection

        self._connection = Connection(target, self.timeout_s, self.session)

    @property
    def target(self) -> Target:
        """The cluster that is meant, and who said so."""
        return self.connection.target

    @property
    def where(self) -> Where:
        """The cluster that is meant, for what looks at it whether it answers or not."""
        from klog.admin.health.snapshot import Where

        one = self.target
        return Where(one.bootstrap, one.zookeeper, one.source, klog_home(), one.directory, one.security, self.timeout_s)

    async def cluster(self, *, client_id: str | None = None) -> Cluster:
        """A connection to the cluster, closed when the command ends."""
        return await self.connection.cluster(client_id)

    async def bootstrap_servers(self) -> str:
        """The addresses of its brokers, for what connects by itself."""
        return await self.connection.bootstrap_servers()

    async def answering_servers(self) -> str:
        """The same, once one of them has answered: what connects by itself may have no time limit of its own."""
        await self.cluster()
        return await self.bootstrap_servers()

    async def other_servers(self, given: str, flag: str) -> str:
        """The servers of a second cluster, which a flag gives: addresses, or a profile as ``@NAME``."""
        from klog.cli.connect import other_servers

        return await other_servers(given, flag, self.timeout_s, self.session)

    async def zookeeper(self) -> ZooKeeper:
        """A session with the cluster's ZooKeeper, closed when the command ends."""
        return await self.connection.zookeeper()

    async def empty_zookeeper(self) -> ZooKeeper:
        """A session with the ZooKeeper of ``-z``, which need not know a cluster yet; its chroot is made."""
        if self.shared.zookeeper is None:
            raise UsageError(
                "no ZooKeeper given to rebuild the registries in",
                hint="give its address, with the chroot if there is one: -z HOST:PORT/CHROOT",
            )
        return await self.connection.empty_zookeeper()

    async def restore_notes(self, topics: Collection[str]) -> tuple[str, ...]:
        """What brings topics back that do not exist because they are deleted."""
        from klog.admin.trash import restore_hint

        try:
            return tuple([hint for name in topics if (hint := await restore_hint(await self.cluster(), name))])
        except KlogError:
            return ()

    @property
    def profile(self) -> Profile | None:
        """The profile of the cluster: the one that was named, or the one that has an address which was given."""
        target = self.target
        return target.profile or profile_of_addresses(target.bootstrap, target.zookeeper)

    # --- questions

    def check_may_change(self, other: str | None = None) -> None:
        """UsageError where the profile is read-only. For commands that change the cluster only sometimes; the others
        declare it (``Traits.changes``). ``other``: another cluster, as `other_servers` takes it, which is the one to
        change."""
        profile = self.profile if other is None else profile_of_other(other)
        if profile is not None and profile.read_only:
            raise UsageError(
                f"profile {profile.name} is read-only, and `klog {self.command.replace('.', ' ')}` changes the cluster",
                hint=f"klog profile set {profile.name} read_only=false",
            )

    def end_dry_run(self, what: str, preview: Report | None = None) -> None:
        """With ``--dry-run``: show the preview on stdout, say what would be done, and end the command with 0. Otherwise
        it returns."""
        if self.shared.dry_run:
            if preview is not None:
                self.show(preview)
            self.say(f"dry run, nothing changed: {what}")
            raise typer.Exit(0)

    def confirm(
        self,
        question: str,
        preview: Report | None = None,
        *,
        consequence: str = "",
        everywhere: bool = True,
        of: Profile | None = None,
    ) -> None:
        """Ask before something that loses or stops something; returns only where the answer is yes.

        ``consequence``: what comes of it, and whether it can be taken back; it follows the cluster in the question.
        ``--dry-run`` ends the command (`end_dry_run`); ``--yes`` goes on without a question; if stdin is not a terminal
        it exits with 2, and with 1 if the answer is no. On a protected cluster the answer is the profile's name, and
        ``--yes`` needs ``--confirm`` with it. ``everywhere`` False: only a protected cluster asks. ``of``: the profile
        of the cluster that is meant, where the command connects to none.
        """
        consequence = consequence and f"; {consequence}"
        self.end_dry_run(question + consequence, preview)
        profile = self.profile if self.traits.connects else of
        protected = profile.name if profile is not None and profile.protected else None
        if self.shared.confirm is not None and (profile is None or self.shared.confirm != profile.name):
            named = f"profile {profile.name}" if profile is not None else "a cluster without a profile"
            raise UsageError(f"--confirm {self.shared.confirm}: the command would act on {named}")
        if protected is None and not everywhere:
            return
        if self.shared.yes:
            if protected is not None and self.shared.confirm is None:
                raise UsageError(
                    f"profile {protected} is protected: --yes is not enough", hint=f"add --confirm {protected}"
                )
            return
        question += (f" on {self.target.title}" if self.traits.connects else "") + consequence
        if not is_terminal(sys.stdin):
            words = "--yes" if protected is None else f"--yes --confirm {protected}"
            raise error_report.NeedsAnswer(
                f"{question}: confirmation needed, but stdin is not a terminal; add {words}",
                hint="--dry-run shows what would be done",
            )
        self.clear_line()
        if preview is not None:
            render(preview, Format.TABLE, sys.stderr, terminal=is_terminal(sys.stderr))
        with interrupt.raising():
            wanted = "[y/N]" if protected is None else f"It is protected; type {protected} to go on:"
            sys.stderr.write(for_stream(f"{question}? {wanted} ", sys.stderr))
            sys.stderr.flush()
            answer = interrupt.typed_line(sys.stdin)
        granted = answer.strip().lower() in ("y", "yes") if protected is None else answer.strip() == protected
        if not granted:
            if not answer:
                sys.stderr.write("\n")
            raise error_report.Declined("cancelled: not confirmed")


def perform(
    ctx: typer.Context, function: Callable[..., Any], traits: Traits, own: GlobalFlags, values: dict[str, Any]
) -> None:
    """Run a command function with all that is around it; raises ``typer.Exit`` with the exit code where it is not 0.

    ``own``: the flags of every command that this one was given; ``values``: all others, and its arguments.
    """
    outer = ctx.find_root().obj
    shared = own.over(outer) if isinstance(outer, GlobalFlags) else own
    invocation = Invocation(shared, command_name(ctx), traits)
    # What matters of a command is in its error or its rows; klog's own log lines are a server's.
    logging.basicConfig(level=logging.WARNING if shared.verbose else logging.ERROR, format="%(levelname)s %(message)s")
    if not shared.verbose:
        logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it logs, with all frames, is raised as well
    if traits.own_interrupt:
        interrupt.leave_to_command()
    try:
        if traits.connects:
            invocation.connect_by = connect_by(shared.connect_by, values)
        if shared.client_config is not None and traits.connects:
            invocation.take_client_config(own)
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

    has_rows_at_the_end = invocation.traits.rows is not None and not invocation.traits.own_interrupt

    async def run() -> tuple[Any, bool]:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            loop.call_soon_threadsafe(task.cancel)

        with interrupt.cancelling(cancel) as interrupted:
            try:
                async with AsyncExitStack() as around:
                    if has_rows_at_the_end and invocation.can_draw:
                        await around.enter_async_context(at_work(invocation))
                    await around.enter_async_context(invocation.closing)
                    result = await _known_to_be_deleted(invocation, function(invocation, **values))
            except (asyncio.CancelledError, Exception):
                if interrupted():
                    raise KeyboardInterrupt from None  # also where an error came of being stopped
                raise
            return result, interrupted()

    try:
        result, interrupted = invocation.session.run(run())
    finally:
        if invocation.session is not invocation.shared.session:
            invocation.session.close()
    if interrupted:
        # It was asked to stop and has told what it did until then.
        _finish(invocation, result)
        raise KeyboardInterrupt
    return result


async def _known_to_be_deleted(invocation: Invocation, work: Coroutine[Any, Any, Any]) -> Any:
    """The command's result; the error of a topic that is deleted says how it comes back."""
    try:
        return await _acting(invocation, work)
    except UnknownTopicOrPartition as error:
        if error.topic is not None:
            error.hint = next(iter(await invocation.restore_notes([error.topic])), error.hint)
        raise


async def _acting(invocation: Invocation, work: Coroutine[Any, Any, Any]) -> Any:
    """The command's result; then it is known how the acts are taken back that it has made, if ZooKeeper tells."""
    if not invocation.traits.acts or invocation.shared.quiet or invocation.shared.dry_run:
        return await work

    import asyncio

    from klog.admin.acts import made_here
    from klog.admin.undo import can_be_undone
    from klog.net.conversation import next_number

    first = next_number()
    result = await work
    try:
        made = await asyncio.to_thread(made_here, await invocation.zookeeper(), range(first, next_number()))
    except KlogError:
        return result
    lines = [f"undo: klog undo {one.act}" for one in made if can_be_undone(one)]
    more = len(lines) - UNDO_LINES_MAX
    invocation.undo = lines if more <= 0 else [f"{more:,} more acts: klog undo", *lines[more:]]
    return result


def _finish(invocation: Invocation, result: Any) -> int:
    if result is None:
        return 0
    if isinstance(result, int):
        return result
    report = result if isinstance(result, Report) else invocation.report(result)
    code = invocation.show(report)
    for line in invocation.undo:
        invocation.say(line)
    return code


def _fail(invocation: Invocation, error: Exception) -> int:
    if isinstance(error, standard_streams.OutputFailed):
        standard_streams.output_failed(error)
        return error_report.EXIT_FAILED
    shown = error_report.translated(error)
    is_server = invocation.traits.own_interrupt
    if shown is not error and (invocation.shared.verbose or (is_server and isinstance(shown, error_report.Bug))):
        # Of a server there may be no second time at which to ask it with -v.
        traceback.print_exception(error)
    # The target as far as it was needed: an error before that has no cluster to name.
    target = None if invocation._connection is None else invocation._connection.target
    error_report.show(shown, invocation.command, invocation.output, sys.stderr, target=target)
    return shown.exit_code
