"""Where brokers were last registered, by the events: one that lost its entry in ZooKeeper may hang there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from klog.errors import KlogError
from klog.names import host_port
from klog.tools.events import Event, EventFilter, read_events

if TYPE_CHECKING:
    from klog.client.cluster import Cluster

WITHIN_S: Final = 5.0


async def last_addresses(cluster: Cluster) -> dict[int, str]:
    """Broker -> HOST:PORT; without those whose registration is older than the events that are kept."""
    from klog.client.positions import parse_position

    found: dict[int, str] = {}

    def note(event: Event) -> None:
        broker, host, port = event.get("id"), event.get("host"), event.get("port")
        if type(broker) is int and isinstance(host, str) and type(port) is int:
            found[broker] = host_port(host, port)

    try:
        async with asyncio.timeout(WITHIN_S):
            chosen, since = EventFilter(kinds=("broker-up", "broker-down")), parse_position("start")
            await read_events(cluster, chosen, since, note, follow=False, note=lambda text: None)
    except (KlogError, TimeoutError):
        pass  # what is known by then
    return found
