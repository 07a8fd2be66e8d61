"""``klog check``: is anything wrong? For people, cron and monitoring."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from klog.cli.command import top_command
from klog.cli.flags import duration
from klog.cli.invocation import Invocation
from klog.cli.target import klog_home
from klog.errors import KlogError, UsageError
from klog.render import Format, Report
from klog.render.counts import counted
from klog.render.visible import for_stream

if TYPE_CHECKING:
    from klog.admin.findings import Finding

NAGIOS_OK, NAGIOS_WARNING, NAGIOS_CRITICAL, NAGIOS_UNKNOWN = range(4)


@top_command("check", rows="klog.admin.findings:Finding")
async def check(
    invocation: Invocation,
    subjects: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUBJECT", help="topics, groups, brokers or zookeeper; all if not given."),
    ] = None,
    max_lag: Annotated[
        int | None,
        typer.Option("--max-lag", metavar="N", min=0, help="Report groups that lag by more than N messages."),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(
            "--wait",
            metavar="DURATION",
            parser=duration,
            help="Repeat until there are no findings, for at most this long.",
        ),
    ] = None,
    nagios: Annotated[
        bool, typer.Option("--nagios", help="Print one line and exit with 0, 1, 2 or 3, as monitoring plugins do.")
    ] = False,
) -> Report | int:
    """Find problems, present or imminent, and show how to fix them. One row per cause.

    The other formats, `-o wide` too, have a row for each of its consequences as well. Exit 1 on any finding. For groups
    it checks the offsets in ZooKeeper.
    """
    from klog.admin import check as checking
    from klog.admin.findings import folded
    from klog.tools.why.addresses import last_addresses

    unknown = [one for one in subjects or () if one not in checking.SUBJECTS]
    if unknown:
        raise UsageError(f"unknown subject {unknown[0]!r}", hint=f"subjects: {', '.join(checking.SUBJECTS)}")
    try:
        target = invocation.target
        findings = await checking.check(
            target.bootstrap,
            target.zookeeper,
            subjects or (),
            max_lag=max_lag,
            source=target.source,
            wait_s=wait or 0.0,
            timeout_s=invocation.timeout_s,
            locate=last_addresses,
            home=klog_home(),
            security=target.security,
        )
    except KlogError as error:
        if not nagios or error.exit_code != 1:
            raise
        sys.stdout.write(for_stream(f"KLOG UNKNOWN - {error.message}\n", sys.stdout))
        return NAGIOS_UNKNOWN
    if nagios:
        return _plugin_line(findings)
    footer = counted(len(findings), "finding") if findings else "no findings"
    if invocation.output is not Format.TABLE:
        return invocation.report(findings, failed=bool(findings), footer=footer)
    shown = folded(findings)
    if len(shown) < len(findings):
        footer += f", {len(findings) - len(shown)} of them consequences of others"
    return invocation.report(shown, failed=bool(findings), footer=footer)


def _plugin_line(findings: list[Finding]) -> int:
    critical = sum(one.severity == "critical" for one in findings)
    code = NAGIOS_CRITICAL if critical else NAGIOS_WARNING if findings else NAGIOS_OK
    said = "; ".join(f"{one.what}: {one.found}" for one in findings) or "no findings"
    said = " ".join(said.replace("|", "/").split())  # what follows the bar is numbers
    state = ("OK", "WARNING", "CRITICAL")[code]
    line = f"KLOG {state} - {said} | critical={critical} warning={len(findings) - critical}\n"
    sys.stdout.write(for_stream(line, sys.stdout))
    return code
