"""The kinds of event that brokers write to ``klog.events``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Fate(StrEnum):
    """How a broker went, in the words that follow its name in the reasons of events."""

    SHUTTING_DOWN = "is shutting down"
    SHUT_DOWN = "shut down"
    SILENT = "stopped answering"

    @property
    def is_orderly(self) -> bool:
        return self is not Fate.SILENT


EVENT_KINDS: Final[Mapping[str, str]] = {
    "act": "a client changed the cluster",
    "broker-down": "a broker died, or shut down",
    "broker-up": "a broker registered, or answers again",
    "clock-skew": "a broker's clock differs from most others'",
    "commit-refused": "a group's coordinator refused a commit: the client is not a member of the group",
    "connections-full": "a listener has as many connections as it may; further ones wait",
    "controller-elected": "a broker became the controller",
    "damage-found": "bytes of a log failed their check",
    "denied": "a broker denied what a principal asked for",
    "events-dropped": "a broker dropped this many events that it could not send in time",
    "group-empty": "a group lost its last member",
    "isr-changed": "the controller changed the in-sync set",
    "isr-expanded": "a leader added a follower that caught up to the in-sync set",
    "isr-shrunk": "a leader removed a follower that fell behind from the in-sync set",
    "leader-elected": "a partition has a new leader",
    "log-dir-offline": "a disk failed; the broker no longer serves its replicas",
    "messages-lost": "a log was cut below what had been acknowledged; the cut bytes are kept beside it",
    "partition-offline": "a partition has no leader",
    "partitions-added": "a topic got more partitions",
    "reassignment-begun": "a partition's replicas started to move",
    "reassignment-cancelled": "the replicas move back",
    "reassignment-done": "the replicas have moved",
    "reassignment-stalled": "the move is stalled, with the reason",
    "rebalance": "a group completed a rebalance",
    "replicas-offline": "a broker cannot serve some replicas",
    "session-expired": "a broker's ZooKeeper session expired; it registers again",
    "settings-changed": "a topic's own settings changed",
    "throttled": "a client has taken more than its quota, and has to wait",
    "topic-created": "a topic was created",
    "topic-deleted": "a topic was deleted",
    "topic-purged": "a deleted topic was purged: it is deleted for good",
    "topic-restored": "a deleted topic was restored",
    "unclean-election": "a replica that was not in sync became leader; messages that it lacks are lost",
    "zookeeper-full": "ZooKeeper would keep so much that brokers refuse what clients make it grow by",
}
"""Each kind with its meaning."""
