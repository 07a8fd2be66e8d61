"""What the parts of the controller that have tasks of their own work with."""

from __future__ import annotations

from typing import NamedTuple

from klog.server.controller.broker_channels import BrokerChannels
from klog.server.controller.controller_state import ControllerState
from klog.server.controller.partition_writer import PartitionWriter
from klog.server.runtime import Runtime


class Tools(NamedTuple):
    runtime: Runtime
    state: ControllerState
    channels: BrokerChannels
    partitions: PartitionWriter


class ControllerPart:
    """Event loop only; ZooKeeper is called in threads."""

    def __init__(self, tools: Tools) -> None:
        self._runtime, self._state, self._channels, self._partitions = tools
        self._zookeeper = tools.runtime.zookeeper
