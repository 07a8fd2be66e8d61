"""``klog client``: who is connected."""

from __future__ import annotations

from klog.cli.command import Noun
from klog.cli.flags import flag
from klog.cli.invocation import Invocation
from klog.names import counted
from klog.render import Report

client = Noun("client", "Clients that are connected.")


@client.command("list", rows="klog.admin.clients:ClientRow")
async def list_clients(
    invocation: Invocation, topic: str | None = flag("-t --topic TOPIC", "Only clients that read or write it.")
) -> Report:
    """List the clients that are connected to each broker, with what they read and write.

    READS has the topics of a client's last fetch, WRITES the topic that it produced to last. This command's own
    connections are among them.
    """
    from klog.admin import clients

    rows, more = await clients.list_clients(await invocation.cluster(), topic)
    notes = (f"and {counted(more, 'connection')} more",) if more else ()
    return invocation.report(rows, notes=notes)
