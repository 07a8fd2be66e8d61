"""Who is connected to a cluster's brokers, and what they do there (DescribeClients)."""

from __future__ import annotations

from dataclasses import dataclass, field

from klog.client.cluster import Cluster
from klog.errors import KlogError
from klog.protocol.apis import ApiKey
from klog.render.columns import MayFail


@dataclass(frozen=True, slots=True)
class ClientRow(MayFail):
    """A connection of a client to a broker. ``reads``: the topics of its last Fetch; ``writes``: the topic that it
    produced to last. ``idle_ms``: since something has come from it or was taken by it. Of a broker that does not answer
    there is a row with ``error`` and ``message``."""

    broker: int
    client: str | None
    address: str | None
    principal: str | None = field(metadata={"rank": 1})
    library: str | None = field(metadata={"rank": 2})
    reads: tuple[str, ...] = ()
    writes: str | None = None
    idle_ms: int | None = field(default=None, metadata={"rank": 3})
    listener: str | None = field(default=None, metadata={"wide": True})


async def list_clients(cluster: Cluster, topic: str | None = None) -> tuple[list[ClientRow], int]:
    """Every client's connections, by broker and client id, and how many more there are than brokers tell of.

    ``topic``: only of clients that read or write it.
    """
    rows, more = [], 0
    for broker, answer in (await cluster.to_each(ApiKey.DESCRIBE_CLIENTS, 0)).items():
        if isinstance(answer, KlogError):
            rows.append(ClientRow(broker, None, None, None, None).failed_by(answer))
            continue
        more += int(answer.left_out)
        rows += [
            ClientRow(
                broker,
                one.client_id,
                one.address,
                one.principal,
                one.software or None,
                tuple(one.reads),
                one.writes,
                int(one.idle_ms),
                one.listener,
            )
            for one in answer.clients
            if topic is None or topic in (*one.reads, one.writes)
        ]
    return sorted(rows, key=lambda one: (one.broker, one.client or "", one.address or "")), more
