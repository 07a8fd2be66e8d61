"""Every ZooKeeper path klog uses, in one place: 0.8.2's layout first, then klog's own under ``/klog``.

All paths are relative to the chroot of the connect string. Nodes marked (e) are ephemeral.
What 0.8 has no node for stays out of its folders: a ZooKeeper-era tool that lists ``/brokers/ids`` or
``/brokers/topics`` finds brokers and topics there and nothing else.
"""

from __future__ import annotations

# --- Kafka 0.8.2 ------------------------------------------------------------------------------------------------------

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"  # (e)
CONTROLLER_EPOCH = "/controller_epoch"
TOPIC_CONFIGS = "/config/topics"
CONFIG_CHANGES = "/config/changes"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
CONSUMERS = "/consumers"
CLUSTER_ID = "/cluster/id"  # Kafka 0.10.1 and later
PRODUCER_IDS = "/latest_producer_id_block"  # Kafka 0.11 and later

# --- klog's own -------------------------------------------------------------------------------------------------------

REGISTRATIONS = "/klog/registrations"
TOPIC_EPOCHS = "/klog/topic_epochs"


PERSISTENT = (
    BROKER_IDS,
    TOPICS,
    TOPIC_CONFIGS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    CONSUMERS,
    "/cluster",
    REGISTRATIONS,
    TOPIC_EPOCHS,
)
"""The folders every cluster has from its first broker's start on."""


def broker(broker_id: int) -> str:
    """(e) One live broker."""
    return f"{BROKER_IDS}/{broker_id}"


def registration(broker_id: int) -> str:
    """The persistent node beside a broker's ephemeral one; its version is what fences a take-over (rule Z1)."""
    return f"{REGISTRATIONS}/{broker_id}"


def topic(name: str) -> str:
    """Which brokers hold which partition."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """Parent of a topic's partition nodes; appears when the controller has first elected leaders."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, partition_id: int) -> str:
    """Parent of a partition's state."""
    return f"{TOPICS}/{name}/partitions/{partition_id}"


def partition_state(name: str, partition_id: int) -> str:
    """Leader, leader epoch, ISR."""
    return f"{TOPICS}/{name}/partitions/{partition_id}/state"


def topic_config(name: str) -> str:
    """The settings a topic overrides."""
    return f"{TOPIC_CONFIGS}/{name}"


def topic_epoch(name: str) -> str:
    """The first leader epoch that nobody has ever used under this name (rule L10); outlives the topic."""
    return f"{TOPIC_EPOCHS}/{name}"


def delete_topic(name: str) -> str:
    """Present while a topic's deletion is under way."""
    return f"{DELETE_TOPICS}/{name}"


def ancestors(path: str) -> list[str]:
    """The folders above a path, top first: ``/a/b/c`` gives ``/a`` and ``/a/b``."""
    parts = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]
