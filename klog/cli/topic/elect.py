"""``klog topic elect``: leaders, elected on request."""

from __future__ import annotations

from klog.cli.flags import argument
from klog.cli.invocation import Invocation
from klog.cli.topic.noun import topic
from klog.names import counted
from klog.render import Report


@topic.command("elect", rows="klog.admin.elections:ElectionRow", changes=True, dry_run=True, acts=True)
async def elect(
    invocation: Invocation,
    names: list[str] | None = argument("TOPIC|TOPIC-P", "Only these topics and partitions; all topics if not given."),
) -> Report:
    """Elect the preferred leader of each partition, the first of its replicas, if it is in sync."""
    from klog.admin import elections

    cluster = await invocation.cluster()
    if invocation.shared.dry_run:
        planned = await elections.preview_preferred(cluster, names or ())
        moved = sum(row.old != row.new for row in planned)
        what = f"elect the preferred leader in {counted(moved, 'partition')}"
        return invocation.report(planned, footer=f"dry run, nothing changed: {what}")
    rows = await elections.elect_preferred(cluster, names or ())
    changed = sum(row.old != row.new for row in rows)
    failed = sum(row.error is not None for row in rows)
    if not changed and not failed:
        return invocation.report(rows, footer="the preferred replica already leads every partition")
    unable = f"; {counted(failed, 'preferred replica')} cannot lead now" if failed else ""
    return invocation.report(rows, footer=f"{counted(changed, 'partition')} with a new leader{unable}")
