"""Every ZooKeeper path klog uses, in one place: 0.8.2's layout first, then klog's own under ``/klog``.

All paths are relative to the chroot of the connect string. Nodes marked (e) are ephemeral.
klog adds no nodes to 0.8's folders: a ZooKeeper-era tool that lists ``/brokers/ids`` or ``/brokers/topics`` finds
brokers and topics there and nothing else.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

from klog.security.quotas import node_of

# --- Kafka 0.8.2 ------------------------------------------------------------------------------------------------------

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"  # (e)
CONTROLLER_EPOCH = "/controller_epoch"
TOPIC_CONFIGS = "/config/topics"
USER_CONFIGS = "/config/users"  # Kafka 0.10 and later
CLIENT_CONFIGS = "/config/clients"  # Kafka 0.9 and later
IP_CONFIGS = "/config/ips"  # Kafka 2.7 and later
CONFIG_CHANGES = "/config/changes"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
CONSUMERS = "/consumers"
CLUSTER_ID = "/cluster/id"  # Kafka 0.10.1 and later
PRODUCER_IDS = "/latest_producer_id_block"  # Kafka 0.11 and later
ACLS = "/kafka-acl"  # Kafka 0.9 and later
ACL_CHANGES = "/kafka-acl-changes"
PREFIXED_ACLS = "/kafka-acl-extended/prefixed"  # Kafka 2.0 and later
PREFIXED_ACL_CHANGES = "/kafka-acl-extended-changes"

# --- klog's own -------------------------------------------------------------------------------------------------------

REGISTRATIONS = "/klog/registrations"
TOPIC_EPOCHS = "/klog/topic_epochs"
TOPIC_IDS = "/klog/topic_ids"
GROUPS = "/klog/groups"
GROUP_SLOTS = "/klog/group_slots"
COMMITS = "/klog/commits"
CLAIMS = "/klog/claims"
HANDOVERS = "/klog/handovers"
SCHEMAS = "/klog/schemas"
SCHEMA_IDS = "/klog/schemas/ids"
SCHEMA_TEXTS = "/klog/schemas/texts"
SUBJECTS = "/klog/schemas/subjects"
ACTS = "/klog/acts"
SECRET = "/klog/secret"
"""The secret by which the cluster's brokers authenticate each other (rule R10)."""


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
    TOPIC_IDS,
    HANDOVERS,
    GROUPS,
    GROUP_SLOTS,
    COMMITS,
    CLAIMS,
    SCHEMA_IDS,
    SCHEMA_TEXTS,
    SUBJECTS,
    ACTS,
)
"""Folders that every cluster has since its first broker's start."""


def broker(broker_id: int) -> str:
    """(e) A live broker."""
    return f"{BROKER_IDS}/{broker_id}"


def registration(broker_id: int) -> str:
    """The persistent node beside a broker's ephemeral one; its version fences a take-over (rule Z1)."""
    return f"{REGISTRATIONS}/{broker_id}"


def handover(broker_id: int) -> str:
    """(e) Partitions that a leader asks to hand over."""
    return f"{HANDOVERS}/{broker_id}"


def topic(name: str) -> str:
    """A topic's assignment."""
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
    """A topic's overridden settings."""
    return f"{TOPIC_CONFIGS}/{name}"


def user_config(name: str) -> str:
    """A user's credentials and quotas, under the name as Kafka encodes it; `DEFAULT` has quotas only."""
    return f"{USER_CONFIGS}/{node_of(name)}"


def entity_config(entity_path: str) -> str:
    """The quotas of an entity, by its path as notices have it: ``users/alice/clients/app``."""
    return f"/config/{entity_path}"


def topic_epoch(name: str) -> str:
    """The first leader epoch that no topic of this name has used (rule L10); outlives the topic."""
    return f"{TOPIC_EPOCHS}/{name}"


def topic_id(name: str) -> str:
    """The topic's UUID again: 0.8's tools drop it when they write the topic's own node."""
    return f"{TOPIC_IDS}/{name}"


def delete_topic(name: str) -> str:
    """Present while a topic's deletion is under way."""
    return f"{DELETE_TOPICS}/{name}"


def act(act_id: str) -> str:
    """An act: author and change; never changed."""
    return f"{ACTS}/{act_id}"


# --- groups -----------------------------------------------------------------------------------------------------------


def group_node(group: str) -> str:
    """A group's name as a node's name: a group id may contain characters that ZooKeeper's paths may not.

    Percent-encoded are ``/``, ``%``, characters that cannot be printed or that Java writes as two, and names of dots
    only. All that 0.8 allowed is unchanged.
    """
    if group in (".", ".."):
        return group.replace(".", "%2E")
    return "".join(
        one if one.isprintable() and one <= "\uffef" and one not in "/%" else quote(one, safe="", errors="replace")
        for one in group
    )


def group_name(node: str) -> str:
    """The inverse of `group_node`, for the name of a subject, too."""
    return unquote(node)


def consumer_ids(group: str) -> str:
    """Parent of a group's live consumers."""
    return f"{CONSUMERS}/{group_node(group)}/ids"


def consumer_id(group: str, consumer: str) -> str:
    """(e) A live consumer of a group, and its subscription."""
    return f"{consumer_ids(group)}/{group_node(consumer)}"


def consumer_owners(group: str) -> str:
    """Parent of a group's topics, each a parent of owned partitions."""
    return f"{CONSUMERS}/{group_node(group)}/owners"


def consumer_owner(group: str, topic: str, partition_id: int) -> str:
    """(e) The consumer thread that owns a partition."""
    return f"{consumer_owners(group)}/{topic}/{partition_id}"


def consumer_offsets(group: str) -> str:
    """Parent of a group's topics, each a parent of partitions' committed offsets."""
    return f"{CONSUMERS}/{group_node(group)}/offsets"


def consumer_offset(group: str, topic: str, partition_id: int) -> str:
    """A committed offset: a plain number."""
    return f"{consumer_offsets(group)}/{topic}/{partition_id}"


def group(name: str) -> str:
    """A group's holder, generation, members and assignment (rule G2)."""
    return f"{GROUPS}/{group_node(name)}"


def group_slot(slot: int) -> str:
    """The coordinator of a slot's groups (rule G1)."""
    return f"{GROUP_SLOTS}/{slot}"


def commit_note(group: str, topic: str, partition_id: int) -> str:
    """A commit's metadata, beside its number."""
    return f"{COMMITS}/{group_node(group)}/{topic}/{partition_id}"


def commits(group: str) -> str:
    """Parent of a group's commit notes; written, without data, while its consumers live."""
    return f"{COMMITS}/{group_node(group)}"


def ownership_fence(group: str, topic: str, partition_id: int) -> str:
    """The persistent node beside an owner; every claim raises its version (rule Z1)."""
    return f"{CLAIMS}/{group_node(group)}/{topic}/{partition_id}"


def schema(schema_id: int) -> str:
    """A schema by its id; never changed or removed."""
    return f"{SCHEMA_IDS}/{schema_id}"


def schema_text(digest: str) -> str:
    """The id of a text, so that equal texts have one id."""
    return f"{SCHEMA_TEXTS}/{digest}"


def subject(name: str) -> str:
    """A subject's versions and its compatibility level."""
    return f"{SUBJECTS}/{group_node(name)}"


def ancestors(path: str) -> list[str]:
    """The folders above a path, top first: ``/a/b/c`` gives ``/a`` and ``/a/b``."""
    parts = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(parts[: depth + 1]) for depth in range(len(parts))]
