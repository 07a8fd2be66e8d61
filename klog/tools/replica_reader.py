"""The thread that reads the replicas of one broker: `ops.reader`, but for where the messages come from."""

from __future__ import annotations

from typing import Any

from klog.client.blocking import BlockingChannel
from klog.client.metadata import BrokerNode
from klog.tools.reader import Reader
from klog.tools.replica_consumer import ReplicaConsumer


class ReplicaReader(Reader):
    around_damage = (
        "another ID reads another replica; on this broker `klog log verify` tells all that is damaged, "
        "`klog log dump` shows it"
    )

    def __init__(self, node: BrokerNode, *arguments: Any, **keywords: Any) -> None:
        """As `Reader`, of that broker's replicas. Raises CannotConnect."""
        self._node = node
        super().__init__(*arguments, **keywords)

    def _connected(self, bootstrap: str) -> Any:
        node = self._node
        channel = BlockingChannel.connect(node.host, node.port, timeout_s=self._timeout_s, client_id="klog-tail")
        return ReplicaConsumer(channel, node.broker_id)
