"""``klog status``: how is it, which problems are there, why, and what helps; and live, ``klog top``."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from klog.cli.command import top_command
from klog.cli.flags import argument, duration, flag, limit
from klog.cli.invocation import Invocation
from klog.cli.name_cache import subjects
from klog.cli.target import NoCluster, klog_home
from klog.errors import KlogError, UsageError
from klog.names import counted
from klog.render import Format, Report
from klog.render.fitting import wrapped
from klog.render.visible import for_stream, is_terminal
from klog.render.writer import write_styled

if TYPE_CHECKING:
    from klog.admin.health.snapshot import Where
    from klog.tools.status import Answer

NAGIOS_OK, NAGIOS_WARNING, NAGIOS_CRITICAL, NAGIOS_UNKNOWN = range(4)


@top_command("status", rows="klog.admin.health.findings:Finding")
async def status(
    invocation: Invocation,
    subject: list[str] | None = argument(
        "SUBJECT",
        "topic T, partition T-P, group G, broker ID, message T-P OFFSET, denied [PRINCIPAL], "
        "throttled [NAME], or a name; or some of topics, groups, brokers, zookeeper. Everything, if not given.",
        autocompletion=subjects,
    ),
    max_lag: int | None = flag("--max-lag N", "Report groups that lag by more than N messages.", min=0),
    wait: float | None = flag(
        "--wait DURATION", "Repeat until nothing is wrong, for at most this long.", parser=duration
    ),
    watch: bool = flag("--watch", "Show it live, as `klog top`."),
    every: float | None = flag("--every DURATION", "Refresh interval of --watch (2s).", parser=limit),
    html: str | None = flag("--html FILE", "Write a page about the cluster; - for stdout."),
    nagios: bool = flag("--nagios", "Print one line and exit with 0, 1, 2 or 3, as monitoring plugins do."),
) -> Report | int | None:
    """Show how the cluster is: problems by cause, why, what comes of them and what helps; and what was changed.

    With a SUBJECT it shows the steps from its trouble to the first cause, and what to do: of a partition without a
    leader or in-sync replicas, a group that does not move, a topic that is gone, a broker that does not serve, a
    message that cannot be read. `denied` shows the last denials, of one principal or of all, and the rule that decides.
    `throttled` shows which clients have had to wait, for which quota, who set it, and how to lift it.

    Exit 1 if anything is wrong. `-o wide` is a table of all findings; in JSON each consequence is a row of its own, and
    the parts of the cluster stand beside the rows.
    """
    from klog.admin.health.rules import SUBJECTS

    asked = list(subject or ())
    flags = {"--watch": watch, "--html": html is not None, "--nagios": nagios}
    given = [name for name, is_given in flags.items() if is_given]
    if len(given) > 1 or (given and asked and given != ["--nagios"]):
        raise UsageError(f"{given[-1]} excludes {given[0] if len(given) > 1 else 'a subject'}")
    if every is not None and not watch:
        raise UsageError("--every needs --watch")
    if watch:
        from klog.cli.live_screen import live

        return await live(invocation, every)
    if html is not None:
        return await _write_page(invocation, html)
    if any(one not in SUBJECTS for one in asked):
        if nagios:
            raise UsageError(f"--nagios is about {', '.join(SUBJECTS)}, got {' '.join(asked)!r}")
        return await _explain(invocation, asked)
    return await _answer(invocation, asked, max_lag, wait or 0.0, nagios)


@top_command("top", rows="klog.tools.top.facts:TopTick")
async def top(
    invocation: Invocation, every: float | None = flag("--every DURATION", "Refresh interval (2s).", parser=limit)
) -> int | None:
    """Show the cluster live: brokers, topics, partitions in trouble, groups by lag, events; in a pipe as JSON Lines.

    Keys: Tab and arrows choose, Enter goes deeper, w asks why, / filters, s sorts, h shows all keys, q leaves. A large
    cluster is asked less often than the interval says, so that looking costs it less than 2 % of a core.
    """
    from klog.cli.live_screen import live

    return await live(invocation, every)


async def _write_page(invocation: Invocation, file: str) -> Report | None:
    """Write a self-contained page without scripts: state, findings, rates of the last day, groups, acts and events."""
    from klog.tools import cluster_report

    facts = await cluster_report.gather(invocation.cluster, invocation.zookeeper, invocation.where)
    text = await asyncio.to_thread(cluster_report.render, facts)
    if file == "-":
        sys.stdout.write(text)
        return None
    data = text.encode("utf-8", "replace")
    await asyncio.to_thread(Path(file).write_bytes, data)
    row = cluster_report.ReportRow(file, len(data), len(facts.findings), len(facts.brokers), facts.hours)
    missing = tuple(f"not on the page: {one}" for one in facts.missing)
    return Report(invocation.command, cluster_report.ReportRow, [row], notes=missing)


async def _explain(invocation: Invocation, subject: list[str]) -> Report:
    """From the symptom of a subject to its first cause."""
    from klog.cli.live_screen import steps_of
    from klog.tools.why.steps import Step

    steps = await steps_of(invocation, subject)
    helps = dict.fromkeys(step.do for step in steps if step.do is not None)
    footer = "" if helps else "nothing is wrong"
    if helps and invocation.output is Format.TABLE:
        footer = "\n".join(line for one in helps for line in wrapped(one, _width(sys.stderr), "to do: "))
    return Report(invocation.command, Step, steps, failed=bool(helps), footer=footer)


async def _answer(
    invocation: Invocation, asked: list[str], max_lag: int | None, wait_s: float, nagios: bool
) -> Report | int:
    from klog.admin.health.screen import summary
    from klog.tools.status import look, with_causes

    try:
        where, name = _where(invocation)
        answer = await look(where, asked, max_lag=max_lag, wait_s=wait_s)
    except KlogError as error:
        if not nagios or error.exit_code != 1:
            raise
        sys.stdout.write(for_stream(f"KLOG UNKNOWN - {error.message}\n", sys.stdout))
        return NAGIOS_UNKNOWN
    if nagios:
        return _plugin_line(answer)
    answer = await with_causes(answer, invocation.cluster, invocation.zookeeper)
    findings = answer.findings
    if invocation.output is not Format.TABLE:
        about = summary(answer.snapshot, findings)
        footer = counted(len(findings), "finding") if findings else "no findings"
        return invocation.report(findings, failed=bool(findings), footer=footer, about=about)
    _draw(invocation, answer, name)
    return 1 if findings else 0


def _where(invocation: Invocation) -> tuple[Where, str]:
    """The cluster that is asked about, and its name. What ran here last is asked about where nothing else is given."""
    from klog.admin.health.snapshot import Where
    from klog.admin.local_state import look, recorded_clusters

    try:
        where, target = invocation.where, invocation.target
    except NoCluster:
        home = klog_home()
        there = recorded_clusters(home)
        if not there:
            raise
        if len(there) > 1:
            listed = "; ".join(f"{one.bootstrap} in {one.directory}" for one in there)
            raise UsageError(
                f"{len(there)} local clusters were run here, and none runs: {listed}",
                hint="start one (`klog up --dir DIR`), or say which is meant: -B HOST:PORT",
            ) from None
        last, timeout_s = there[0], invocation.timeout_s
        source = f"the local cluster in {last.directory}"
        where = Where(last.bootstrap, last.zookeeper or None, source, home, last.directory, timeout_s=timeout_s)
        return where, "local"
    profile = invocation.profile
    named = profile.name if profile is not None else "local" if target.directory is not None else ""
    return where, named if target.directory is None or look(target.directory) is not None else ""


def _width(stream: TextIO) -> int:
    from klog.admin.health.screen import WIDTH

    return shutil.get_terminal_size((WIDTH, 24)).columns if is_terminal(stream) else WIDTH


def _draw(invocation: Invocation, answer: Answer, name: str) -> None:
    """The screen, on stdout."""
    from klog.admin.health.screen import screen, short_addresses

    invocation.clear_line()
    invocation.has_shown = True
    title = "  ".join(filter(None, [name, short_addresses(answer.snapshot.addresses)]))
    lines = screen(answer.snapshot, answer.findings, title, _width(sys.stdout))
    if not is_terminal(sys.stdout):
        sys.stdout.write("".join(for_stream(line.text, sys.stdout) + "\n" for line in lines))
    else:
        write_styled([for_stream(line.text, sys.stdout) for line in lines], [line.style for line in lines], sys.stdout)
    sys.stdout.flush()


def _plugin_line(answer: Answer) -> int:
    from klog.admin.health.findings import CRITICAL, causes
    from klog.admin.health.verdict import verdict

    first = causes(answer.findings)
    critical = sum(one.severity == CRITICAL for one in first)
    code = NAGIOS_CRITICAL if critical else NAGIOS_WARNING if first else NAGIOS_OK
    said = "; ".join([str(verdict(*answer)), *(f"{one.what}: {one.found}" for one in first)])
    said = " ".join(said.replace("|", "/").split())  # what follows the bar is numbers
    state = ("OK", "WARNING", "CRITICAL")[code]
    line = f"KLOG {state} - {said} | critical={critical} warning={len(first) - critical}\n"
    sys.stdout.write(for_stream(line, sys.stdout))
    return code
