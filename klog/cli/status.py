"""``klog status``: is it up?"""

from __future__ import annotations

from klog.cli.command import top_command
from klog.cli.invocation import Invocation
from klog.cli.target import NoCluster, klog_home
from klog.render import Report
from klog.security.client_security import OPEN


@top_command("status", rows="klog.admin.status:StatusRow")
async def status(invocation: Invocation) -> Report:
    """Show the state of ZooKeeper, the brokers, the controller and the partitions.

    Exit 1 if anything is down.
    """
    from klog.admin import status as looking
    from klog.admin.local_state import look

    bootstrap = zookeeper = None
    security = OPEN
    try:
        target = invocation.target
        local = look(target.directory) if target.directory is not None else None
        bootstrap, zookeeper, security = target.bootstrap, target.zookeeper, target.security
        source = target.source
    except NoCluster:
        # What ran here last is what is asked about; all of it is down then.
        local = look(klog_home() / "local")
        if local is None:
            raise
        bootstrap, zookeeper = local.bootstrap, local.zookeeper or None
        source = f"the local cluster in {local.directory}"
    rows = await looking.status(
        bootstrap, zookeeper, local, source=source, timeout_s=invocation.timeout_s, security=security
    )
    return invocation.report(rows, failed=looking.anything_down(rows))
