"""What is asked of a cluster's Metadata while it is measured: who leads, who controls, whether all is in sync."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from bench.cluster_systems import Cluster

HEAL_TIMEOUT_S = 90.0
LOOK_S = 0.02


def bootstrap_of(system: Cluster) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in system.ports)


def admin_of(system: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_of(system), "log_level": 0})


def metadata_of(system: Cluster, topic: str | None = None) -> ClusterMetadata:
    return admin_of(system).list_topics(topic, timeout=10)


def controller_of(system: Cluster) -> int:
    return int(metadata_of(system).controller_id)


def port_of_leader(system: Cluster, topic: str) -> int:
    leader: int = metadata_of(system, topic).topics[topic].partitions[0].leader
    return system.ports[leader - 1]


def await_in_sync(system: Cluster, topic: str) -> None:
    """Until every broker says that each partition of the topic has a leader, and all its replicas in sync."""
    deadline = time.monotonic() + HEAL_TIMEOUT_S
    while not all(_says_in_sync(port, topic, len(system.ports)) for port in system.ports):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic}: not all replicas are in sync after {HEAL_TIMEOUT_S:.0f} s")
        time.sleep(LOOK_S)


def _says_in_sync(port: int, topic: str, brokers: int) -> bool:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    try:
        found = admin.list_topics(topic, timeout=5)
    except KafkaException:
        return False
    partitions = found.topics[topic].partitions
    whole = all(one.leader > 0 and len(one.isrs) == len(one.replicas) for one in partitions.values())
    return bool(partitions) and whole and len(found.brokers) == brokers
