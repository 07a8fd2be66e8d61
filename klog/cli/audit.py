"""``klog audit``: what producers say they sent, held against what each tier has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from klog.cli import interrupt
from klog.cli.arguments import OptionalTopics
from klog.cli.command import Noun
from klog.cli.flags import duration, flag, limit
from klog.cli.invocation import Invocation
from klog.cli.progress import counting
from klog.cli.target import OTHER_CLUSTER
from klog.cli.watching import check_watchable, rows_as_they_come
from klog.client.positions import Range, parse_range
from klog.errors import UsageError
from klog.names import AUDIT_TOPIC, counted
from klog.render import Report
from klog.render.values import to_json

if TYPE_CHECKING:
    from klog.client.cluster import Cluster

audit = Noun("audit", "Compare what producers sent with what each cluster has.")

Window = Annotated[float | None, flag("--window DURATION", "Window length; the producers' if not given.", parser=limit)]
AuditTopic = Annotated[str, flag("--audit-topic TOPIC", "Topic with the published counts.")]


@audit.command("run", rows="klog.tools.audit.report:AuditRow")
async def run(
    invocation: Invocation,
    topics: OptionalTopics = None,
    tier: str = flag("--tier NAME", "Name of this cluster in reports.", "live"),
    publish_to: str | None = flag(
        "--publish-to", "The producers' cluster, if it is another one.", metavar=OTHER_CLUSTER
    ),
    no_publish: bool = flag("--no-publish", "Show the counts without publishing them."),
    from_start: bool = flag("--from-start", "Count everything again, not only new messages."),
    every: float | None = flag("--every DURATION", "Repeat at this interval until stopped.", parser=limit),
    window: Window = None,
    audit_topic: AuditTopic = AUDIT_TOPIC,
) -> Report | None:
    """Count the messages of a cluster by reading them, and publish the counts for `audit report`. One row per window.

    The count continues where the last run of this tier ended. Without a topic it counts all topics for which producers
    publish counts. With `--every` each row is shown once it is counted, in a pipe as JSON Lines. SIGINT and SIGTERM end
    the command after the current publication.
    """
    from klog.tools.audit import run as audit_run

    if no_publish and publish_to is not None:
        raise UsageError("--no-publish and --publish-to exclude each other")
    if every is not None:
        if no_publish:
            raise UsageError("--every continues from the published counts, so it excludes --no-publish")
        check_watchable(invocation, watch=True, flag="--every")
    options = audit_run.RunOptions(
        topics or (),
        tier=tier,
        anew=from_start or no_publish,
        publish=not no_publish,
        window_ms=None if window is None else round(window * 1000),
        audit_topic=audit_topic,
    )
    if not no_publish:
        invocation.check_may_change(publish_to)
    cluster = await invocation.cluster()
    home = None if publish_to is None else await _other(invocation, publish_to, "--publish-to")
    if every is not None:
        rounds = audit_run.run_every(
            cluster, options, every, publish_to=home, note=invocation.say, show=rows_as_they_come(invocation)
        )
        if await interrupt.stopped_in_order(rounds):
            invocation.say("stopped; the next run continues from here")
        return None
    with counting(invocation, "bytes" if cluster.is_klog else "messages") as count:
        done = await audit_run.run(cluster, options, publish_to=home, note=invocation.say, count=count)
    told = "" if no_publish else f", published in {audit_topic}"
    return invocation.report(done.rows, footer=f"{counted(done.read, 'message')} read{told}")


@audit.command("report", rows="klog.tools.audit.report:AuditRow")
async def report(
    invocation: Invocation,
    topics: OptionalTopics = None,
    mirror: str | None = flag("--mirror", "A cluster with copies of the topics.", metavar=OTHER_CLUSTER),
    export: str | None = flag("--export ROOT", "An export of the topics."),
    exact: bool = flag("--exact", "Read the stamps of every window, not only of those whose counts differ."),
    times: Range | None = flag(
        "--from RANGE", "Only windows that begin in this range: @-1d, @-2d:@-1d.", parser=parse_range
    ),
    grace: float | None = flag("--grace DURATION", "Skip windows that ended less than this ago (1m).", parser=duration),
    only_gaps: bool = flag("--only-gaps", "Only windows that differ."),
    window: Window = None,
    audit_topic: AuditTopic = AUDIT_TOPIC,
) -> Report:
    """Compare what producers sent with what the cluster, a mirror and an export have. Exit 1 on a gap.

    The brokers' counts are compared first, without reading messages. Where they differ, klog reads the stamps, which
    tell lost messages from duplicates and name the hosts. The notes name windows that are still open or that a producer
    has not finished.
    """
    from klog.tools.audit import report as auditing

    options = auditing.ReportOptions(
        topics or (),
        exact=exact,
        times=times,
        grace_ms=auditing.GRACE_MS if grace is None else round(grace * 1000),
        window_ms=None if window is None else round(window * 1000),
        only_gaps=only_gaps,
        audit_topic=audit_topic,
    )
    cluster = await invocation.cluster()
    other = None if mirror is None else await _other(invocation, mirror, "--mirror")
    with counting(invocation, "windows") as count:
        found = await auditing.report(
            cluster, options, mirror=other, export=export, note=invocation.detail, count=count
        )
    notes = [f"clocks: {said}" for said in found.clocks]
    notes += [
        f"{row.topic}, {row.tier}, {to_json(row.window)}: {row.note}" for row in found.rows if row.is_gap and row.note
    ]
    length_ms = found.rows[0].window_ms if found.rows else None
    if options.window_ms is not None and length_ms not in (None, options.window_ms):
        wanted = f"{options.window_ms / 1000:,g} s"
        notes.append(
            f"windows are {length_ms / 1000:,g} s long, since the producers' windows do not add up to {wanted}"
        )
    if found.strange:
        notes.append(f"{counted(found.strange, 'message')} of {audit_topic} skipped: not audit messages")
    unjudged = f", {found.unjudged} not compared (open, unfinished, expired or earlier)" if found.unjudged else ""
    gaps = f"{found.gaps} differ" if found.gaps else "no differences"
    footer = f"{counted(found.windows, 'window')} compared: {gaps}{unjudged}"
    return invocation.report(found.rows, notes=tuple(notes), footer=footer, failed=found.gaps > 0)


async def _other(invocation: Invocation, given: str, flag: str) -> Cluster:
    """A second cluster, closed when the command ends."""
    from klog.client.cluster import Cluster

    servers = await invocation.other_servers(given, flag)
    cluster = await Cluster.connect(servers, source=flag, timeout_s=invocation.timeout_s)
    invocation.closing.push_async_callback(cluster.close)
    return cluster
