"""What ``klog --help`` lists: every noun and every top command, and the module that has it.

The help lines are here and not in the modules, so that ``klog --help`` and completion need not import those.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """One word after ``klog``. ``attribute`` is the ``Noun`` or ``TopCommand`` in ``module``."""

    name: str
    module: str
    attribute: str
    help: str
    section: str
    aliases: tuple[str, ...] = ()


EVERY_DAY = "Every day"
CLUSTER = "Cluster"
TOOLS = "Tools"

ENTRIES: tuple[Entry, ...] = (
    Entry("up", "klog.cli.up", "up", "Run ZooKeeper and brokers on this machine.", EVERY_DAY),
    Entry("down", "klog.cli.up", "down", "Shut down everything that `klog up` started.", EVERY_DAY),
    Entry("status", "klog.cli.status", "status", "Show how the cluster is: problems, causes, what helps.", EVERY_DAY),
    Entry("lag", "klog.cli.group", "lag", "Show how far groups are behind.", EVERY_DAY),
    Entry("events", "klog.cli.events", "events", "Show what has happened to the cluster.", EVERY_DAY),
    Entry("top", "klog.cli.top", "top", "Show the cluster live.", EVERY_DAY),
    Entry("metrics", "klog.cli.metrics", "metrics", "Show the metrics of brokers.", EVERY_DAY),
    Entry("undo", "klog.cli.undo", "undo", "Take an act back.", EVERY_DAY),
    Entry("produce", "klog.cli.produce", "produce", "Write messages from stdin or files to a topic.", EVERY_DAY),
    Entry("tail", "klog.cli.tail", "tail", "Show the messages of topics, from any position.", EVERY_DAY),
    Entry("replay", "klog.cli.replay", "replay", "Copy a range of a topic into another topic, once.", EVERY_DAY),
    Entry("where", "klog.cli.where", "where", "Locate a message: broker, file, byte position.", EVERY_DAY),
    Entry("topic", "klog.cli.topic", "topic", "Topics and partitions: create, describe, alter.", CLUSTER, ("topics",)),
    Entry("group", "klog.cli.group", "group", "Consumer groups: members, rewind, copy, delete.", CLUSTER, ("groups",)),
    Entry(
        "offset", "klog.cli.offset", "offset", "Show offsets; export and import those of groups.", CLUSTER, ("offsets",)
    ),
    Entry("broker", "klog.cli.broker", "broker", "Start, stop, list and configure brokers.", CLUSTER, ("brokers",)),
    Entry("client", "klog.cli.client", "client", "Clients that are connected.", CLUSTER, ("clients",)),
    Entry("reassign", "klog.cli.reassign", "reassign", "Move replicas; change the replication factor.", CLUSTER),
    Entry("acl", "klog.cli.acl", "acl", "Permissions: list, add, remove, check.", CLUSTER, ("acls",)),
    Entry(
        "quota", "klog.cli.quota", "quota", "Quotas of users and client ids: list, set, remove.", CLUSTER, ("quotas",)
    ),
    Entry(
        "zookeeper", "klog.cli.zookeeper", "zookeeper", "Run the embedded ZooKeeper; rebuild lost registries.", CLUSTER
    ),
    Entry("zk", "klog.cli.zk", "zk", "Show the content of ZooKeeper.", CLUSTER),
    Entry("security", "klog.cli.security", "security", "Close a cluster: certificates, users, permissions.", CLUSTER),
    Entry("user", "klog.cli.user", "user", "Users: names and passwords (SCRAM).", CLUSTER, ("users",)),
    Entry("lost", "klog.cli.lost", "lost", "Messages that truncation and recovery have set aside.", TOOLS),
    Entry("mirror", "klog.cli.mirror", "mirror", "Mirror topics of clusters into another.", TOOLS),
    Entry("export", "klog.cli.export", "export", "Export messages to files with Spark.", TOOLS, ("exports",)),
    Entry(
        "stream", "klog.cli.stream", "stream", "Compute on topics as messages come, with Spark.", TOOLS, ("streams",)
    ),
    Entry("sql", "klog.cli.sql", "sql", "Ask topics and exports by Spark SQL.", TOOLS),
    Entry("schema", "klog.cli.schema", "schema", "Avro schemas by id: register, check, serve.", TOOLS, ("schemas",)),
    Entry("audit", "klog.cli.audit", "audit", "Compare what producers sent with what arrived.", TOOLS),
    Entry("perf", "klog.cli.perf", "perf", "Measure throughput and latency.", TOOLS),
    Entry("log", "klog.cli.log", "log", "Segment files; needs no broker.", TOOLS, ("logs",)),
    Entry(
        "profile",
        "klog.cli.profile",
        "profile",
        "Clusters by name: addresses, colour, protection.",
        TOOLS,
        ("profiles",),
    ),
    Entry("shell", "klog.cli.shell.command", "shell", "Run commands interactively.", TOOLS),
    Entry("man", "klog.cli.man", "man", "Show the man page of a command.", TOOLS),
    Entry("completion", "klog.cli.completion", "completion", "Print completion scripts for bash, zsh and fish.", TOOLS),
)


def entry_named(word: str) -> Entry | None:
    """The entry of a name or alias."""
    for entry in ENTRIES:
        if word == entry.name or word in entry.aliases:
            return entry
    return None
