"""``klog metrics``: the numbers of brokers, over their own port."""

from __future__ import annotations

from klog.cli import watching
from klog.cli.command import top_command
from klog.cli.flags import argument, flag
from klog.cli.invocation import Invocation
from klog.cli.watching import Every, Watch
from klog.names import counted
from klog.render import Report


@top_command("metrics", rows="klog.admin.metrics:MetricRow")
async def metrics(
    invocation: Invocation,
    pattern: str | None = argument("PATTERN", "Only metrics whose name matches this glob pattern."),
    broker: int | None = flag("--broker ID", "Only the metrics of this broker.", min=0),
    watch: Watch = False,
    every: Every = None,
) -> Report | int:
    """Show the metrics of brokers over their own port; no metrics port is needed.

    The names are those that Prometheus sees. The lag of groups is among them: `klog_group_lag_messages`, `_bytes` and
    `_ms`, from each partition's leader. Without a pattern it shows all.
    """
    from klog.admin import metrics as reading

    watching.check_watchable(invocation, watch=watch, every=every)
    patterns = [pattern] if pattern is not None else []
    cluster = await invocation.cluster()

    async def look() -> Report:
        rows = await reading.read_metrics(cluster, patterns, broker=broker)
        if pattern is None or rows:
            return invocation.report(rows, footer=counted(len(rows), "metric"))
        footer = f"no metric matches {pattern!r}" + ("" if set(pattern) & set("*?[") else f"; try '*{pattern}*'")
        return invocation.report(rows, footer=footer, failed=True)

    if watch:
        return await watching.watch(invocation, look, every)
    return await look()
