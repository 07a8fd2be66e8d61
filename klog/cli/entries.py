"""What ``klog --help`` lists: every noun and every command at the top, and the module that has it.

The help line stands here and not in the module, so that ``klog --help`` and completion import none of them.
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
    Entry("down", "klog.cli.up", "down", "Stop what `klog up` started, in order.", EVERY_DAY),
    Entry("status", "klog.cli.status", "status", "Is it up? ZooKeeper, brokers, controller, partitions.", EVERY_DAY),
    Entry("check", "klog.cli.check", "check", "Is anything wrong? A row a finding, and what to do.", EVERY_DAY),
    Entry("produce", "klog.cli.produce", "produce", "Write messages from stdin or files to a topic.", EVERY_DAY),
    Entry("tail", "klog.cli.tail", "tail", "Show the messages of topics, from any position.", EVERY_DAY),
    Entry("replay", "klog.cli.replay", "replay", "Copy a range of a topic into another one, once.", EVERY_DAY),
    Entry("where", "klog.cli.where", "where", "Where a message is: broker, file, byte position.", EVERY_DAY),
    Entry("topic", "klog.cli.topic", "topic", "Create, list, describe, alter and delete topics.", CLUSTER, ("topics",)),
    Entry("partition", "klog.cli.partition", "partition", "Partitions and their health.", CLUSTER, ("partitions",)),
    Entry("group", "klog.cli.group", "group", "Consumer groups: members, lag, rewind, delete.", CLUSTER, ("groups",)),
    Entry("offset", "klog.cli.offset", "offset", "Offsets: at a position; of groups, to files.", CLUSTER, ("offsets",)),
    Entry("broker", "klog.cli.broker", "broker", "Start, stop, list and configure brokers.", CLUSTER, ("brokers",)),
    Entry("reassign", "klog.cli.reassign", "reassign", "Move replicas between brokers; change how many.", CLUSTER),
    Entry("election", "klog.cli.election", "election", "Elect leaders on request.", CLUSTER, ("elections",)),
    Entry("zookeeper", "klog.cli.zookeeper", "zookeeper", "The embedded ZooKeeper server.", CLUSTER),
    Entry("zk", "klog.cli.zk", "zk", "What stands in ZooKeeper: registries and raw znodes.", CLUSTER),
    Entry("registry", "klog.cli.registry", "registry", "Rebuild the registries from brokers' disks.", CLUSTER),
    Entry("verify", "klog.cli.verify", "verify", "Prove that all replicas hold the same bytes.", TOOLS),
    Entry("lost", "klog.cli.lost", "lost", "What truncation and recovery have set aside.", TOOLS),
    Entry("mirror", "klog.cli.mirror", "mirror", "Copy topics of clusters into another, as they grow.", TOOLS),
    Entry("export", "klog.cli.export", "export", "Messages to Parquet files, with Spark.", TOOLS, ("exports",)),
    Entry(
        "schema", "klog.cli.schema", "schema", "Avro schemas under ids: register, check, serve.", TOOLS, ("schemas",)
    ),
    Entry("audit", "klog.cli.audit", "audit", "What producers sent, held against what each cluster has.", TOOLS),
    Entry("perf", "klog.cli.perf", "perf", "How fast the cluster is: in, out, end to end.", TOOLS),
    Entry("log", "klog.cli.log", "log", "Segment files and state-change logs; no broker needed.", TOOLS, ("logs",)),
    Entry("shell", "klog.cli.shell", "shell", "The same commands, interactively.", TOOLS),
    Entry("completion", "klog.cli.completion", "completion", "Completion for bash, zsh and fish.", TOOLS),
)


def entry_named(word: str) -> Entry | None:
    """The entry of a name or alias."""
    for entry in ENTRIES:
        if word == entry.name or word in entry.aliases:
            return entry
    return None
