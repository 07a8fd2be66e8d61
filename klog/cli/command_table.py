"""What ``klog --help`` lists: every noun and every top command.

The help lines are here and not in the modules, so that ``klog --help`` and completion need not import those.
"""

from __future__ import annotations

from typing import NamedTuple

EVERY_DAY = "Every day"

_HELP = {
    EVERY_DAY: {
        "up": "Run ZooKeeper and brokers on this machine.",
        "down": "Shut down everything that `klog up` started.",
        "status": "Show how the cluster is: problems, causes, what helps.",
        "lag": "Show how far groups are behind.",
        "events": "Show what has happened to the cluster.",
        "top": "Show the cluster live.",
        "metrics": "Show the metrics of brokers.",
        "undo": "Take an act back.",
        "produce": "Write messages from stdin or files to a topic.",
        "tail": "Show the messages of topics, from any position.",
        "replay": "Copy a range of a topic into another topic, once.",
        "where": "Locate a message: broker, file, byte position.",
    },
    "Cluster": {
        "topic": "Topics and partitions: create, describe, alter.",
        "group": "Consumer groups: members, rewind, copy, delete.",
        "offset": "Show offsets; export and import those of groups.",
        "broker": "Start, stop, list and configure brokers.",
        "client": "Clients that are connected.",
        "reassign": "Move replicas; change the replication factor.",
        "acl": "Permissions: list, add, remove, check.",
        "quota": "Quotas of users and client ids: list, set, remove.",
        "zookeeper": "Run the embedded ZooKeeper; rebuild lost registries.",
        "zk": "Show the content of ZooKeeper.",
        "security": "Close a cluster: certificates, users, permissions.",
        "user": "Users: names and passwords (SCRAM).",
    },
    "Tools": {
        "lost": "Messages that truncation and recovery have set aside.",
        "mirror": "Mirror topics of clusters into another.",
        "export": "Export messages to files with Spark.",
        "stream": "Compute on topics as messages come, with Spark.",
        "sql": "Ask topics and exports by Spark SQL.",
        "schema": "Avro schemas by id: register, check, serve.",
        "audit": "Compare what producers sent with what arrived.",
        "perf": "Measure throughput and latency.",
        "log": "Segment files; needs no broker.",
        "profile": "Clusters by name: addresses, colour, protection.",
        "shell": "Run commands interactively.",
        "man": "Show the man page of a command.",
        "completion": "Print completion scripts for bash, zsh and fish.",
    },
}
_MODULES = {"down": "klog.cli.up", "lag": "klog.cli.group", "shell": "klog.cli.shell.command", "top": "klog.cli.status"}
"""Of commands that are not in a module of their name."""


class Entry(NamedTuple):
    """One word after ``klog``, the name of the ``Noun`` or command in its module."""

    name: str
    help: str
    section: str

    @property
    def module(self) -> str:
        """Where it is declared."""
        return _MODULES.get(self.name, f"klog.cli.{self.name}")


ENTRIES = tuple(Entry(name, help, section) for section, lines in _HELP.items() for name, help in lines.items())


def entry_named(word: str) -> Entry | None:
    """The entry of a name, or of a noun's plural."""
    for entry in ENTRIES:
        if word == entry.name or (word == f"{entry.name}s" and entry.section != EVERY_DAY):
            return entry
    return None
