"""Where brokers were last registered, by the events: one that lost its entry in ZooKeeper may hang there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klog.names import host_port
from klog.tools.events import EventFilter, events_since

if TYPE_CHECKING:
    from klog.client.cluster import Cluster

WITHIN_S: Final = 5.0


async def last_addresses(cluster: Cluster) -> dict[int, str]:
    """Broker -> HOST:PORT; without those whose registration is older than the events that are kept."""
    from klog.client.positions import parse_position

    chosen = EventFilter(kinds=("broker-up", "broker-down"))
    events, _ = await events_since(cluster, chosen, parse_position("start"), within_s=WITHIN_S)
    found: dict[int, str] = {}
    for event in events:
        broker, host, port = event.get("id"), event.get("host"), event.get("port")
        if type(broker) is int and isinstance(host, str) and type(port) is int:
            found[broker] = host_port(host, port)
    return found
