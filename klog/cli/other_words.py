"""Words of other tools (Kafka's own, rpk, kcat) for commands, flags and values, and klog's words for the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

COMMANDS = {
    **dict.fromkeys(("consume", "consumer", "cat", "read", "kafka-console-consumer", "kcat", "kafkacat"), "tail"),
    **dict.fromkeys(("producer", "publish", "send", "write", "kafka-console-producer"), "produce"),
    **dict.fromkeys(("start", "run", "server"), "up"),
    **dict.fromkeys(("stop", "shutdown"), "down"),
    **dict.fromkeys(("info", "cluster", "cluster-info", "health", "doctor", "lint"), "status"),
    **dict.fromkeys(("kafka-topics", "kafka-create-topic", "kafka-list-topic", "kafka-add-partitions"), "topic"),
    **dict.fromkeys(("kafka-consumer-groups", "consumer-group", "consumer-groups"), "group"),
    "kafka-configs": "topic config",
    "kafka-get-offsets": "offset list",
    "kafka-reassign-partitions": "reassign",
    "kafka-check-reassignment-status": "reassign status",
    **dict.fromkeys(("kafka-leader-election", "kafka-preferred-replica-election"), "topic elect"),
    "kafka-acls": "acl",
    "kafka-replica-verification": "topic verify",
    "kafka-dump-log": "log dump",
    "kafka-log-dirs": "broker describe",
    "kafka-server-start": "broker start",
    "kafka-server-stop": "broker stop",
    "zookeeper-server-start": "zookeeper start",
    "zookeeper-server-stop": "zookeeper stop",
    "zookeeper-shell": "zk",
    **dict.fromkeys(("kafka-mirror-maker", "connect-mirror-maker"), "mirror"),
    "kafka-producer-perf-test": "perf produce",
    "kafka-consumer-perf-test": "perf consume",
    **dict.fromkeys(("history", "acts"), "events"),
    "verify": "topic verify",
    "election": "topic elect",
    "partition": "topic describe",
    "registry": "zookeeper rebuild",
    "version": "--version",
}
"""For a word in a noun's place."""

NOUNS = {
    **dict.fromkeys(("list", "describe"), ("topic", "group", "broker")),
    "create": ("topic", "zk"),
    "delete": ("topic", "group"),
    **dict.fromkeys(("alter", "restore", "elect"), ("topic",)),
    "config": ("topic", "broker"),
    **dict.fromkeys(("rewind", "peek", "copy"), ("group",)),
    "import": ("offset",),
    **dict.fromkeys(("plan", "execute", "cancel"), ("reassign",)),
    **dict.fromkeys(("get", "ls", "tree", "find"), ("zk",)),
    **dict.fromkeys(("dump", "repair"), ("log",)),
    "rebuild": ("zookeeper",),
    "register": ("schema",),
}
"""For a verb without its noun."""

VERBS = {
    **dict.fromkeys(("info", "show", "view"), ("describe", "show", "get", "list")),
    **dict.fromkeys(("add", "new", "make"), ("create", "add", "register")),
    **dict.fromkeys(("remove", "del", "drop", "destroy", "rmr", "deleteall", "delete"), ("delete", "remove", "rm")),
    **dict.fromkeys(("update", "modify", "configure", "edit"), ("config", "set", "alter")),
    **dict.fromkeys(("reset", "reset-offsets", "seek"), ("rewind",)),
    **dict.fromkeys(("restore", "undelete"), ("restore",)),
    "add-partitions": ("alter",),
    "verify": ("status", "verify"),
    "list": ("ls",),
    "generate": ("plan",),
    "validate": ("check", "verify"),
}
"""For a word in a verb's place, those that a noun may have; the first that it has."""


class OtherFlag(NamedTuple):
    """What klog writes for a flag of another tool, where the command has the flag ``needs``."""

    needs: str
    written: str


FLAGS = {
    **dict.fromkeys(("--from-beginning", "--from-start"), (OtherFlag("--offset", "-o start"),)),
    **dict.fromkeys(("--to-earliest", "--to-start"), (OtherFlag("--to", "--to start"),)),
    **dict.fromkeys(("--to-latest", "--to-end"), (OtherFlag("--to", "--to end"),)),
    "--to-offset": (OtherFlag("--to", "--to N"),),
    "--to-datetime": (OtherFlag("--to", "--to @TIME"),),
    "--by-duration": (OtherFlag("--to", "--to @-DURATION"),),
    "--shift-by": (OtherFlag("--by", "--by -N"),),
    "--execute": (OtherFlag("--yes", "--yes"),),
    **dict.fromkeys(("--max-messages", "--num"), (OtherFlag("--count", "-c N"),)),
    "--num-records": (OtherFlag("--messages", "--messages N"),),
    "--record-size": (OtherFlag("--message-size", "--message-size SIZE"),),
    "--throughput": (OtherFlag("--rate", "--rate RATE"),),
    **dict.fromkeys(
        ("--config", "--topic-config", "--add-config", "--producer-property", "--consumer-property", "--override"),
        (OtherFlag("--property", "-X NAME=VALUE"),),
    ),
    "--delete-config": (OtherFlag("--delete", "--delete NAME"),),
    **dict.fromkeys(
        ("--command-config", "--producer.config", "--consumer.config", "--config-file"),
        (OtherFlag("--client-config", "--client-config FILE"),),
    ),
    "--time": (OtherFlag("--at", "--at POSITION"),),
    "--replicas": (OtherFlag("--replication-factor", "--replication-factor R"),),
    "--under-replicated-partitions": (OtherFlag("--under-replicated", "--under-replicated"),),
    "--unavailable-partitions": (OtherFlag("--offline", "--offline"),),
    "--under-min-isr-partitions": (OtherFlag("--under-min-isr", "--under-min-isr"),),
    "--at-min-isr-partitions": (OtherFlag("--at-min-isr", "--at-min-isr"),),
    "--topics-to-move-json-file": (OtherFlag("--topics", "--topics TOPIC,..."),),
    "--format": (OtherFlag("--output", "-o FORMAT"),),
    "--json": (OtherFlag("--output", "-o json"),),
    "--force": (OtherFlag("--yes", "--yes"),),
    "--brokers": (OtherFlag("--bootstrap-server", "-B HOST:PORT,..."),),
    "-b": (OtherFlag("--bootstrap-server", "-B HOST:PORT,..."),),
}

ARGUMENTS = {
    **dict.fromkeys(("-t", "--topics", "--entity-name"), "TOPIC"),
    **dict.fromkeys(("-g", "-G", "--groups", "--group-id"), "GROUP"),
    **dict.fromkeys(("--broker", "--broker-id"), "ID"),
    **dict.fromkeys(("--reassignment-json-file", "--files"), "FILE"),
    "--offset": "OFFSET",
}
"""Flags for what klog takes without a flag, by the argument's name."""

VALUES = {
    **dict.fromkeys(("earliest", "beginning", "smallest", "oldest", "first"), "start"),
    **dict.fromkeys(("latest", "largest", "newest", "last"), "end"),
    "-1": "all",
    "csv": "tsv",
    "text": "table",
    "plain": "table",
    "uncompressed": "none",
    "gz": "gzip",
    "zst": "zstd",
}
"""For values of which klog takes one of several."""


RENAMED = {
    "check": "status",
    "why": "status",
    "report cluster": "status",
    "acts list": "events --kind act",
    "acts show": "events",
    "partition list": "topic describe",
    "election preferred": "topic elect",
    "verify replicas": "topic verify",
    "registry rebuild": "zookeeper rebuild",
    "group lag": "lag",
    "topic trash": "topic list --deleted",
    "zk brokers": "zk tree /brokers/ids",
    **dict.fromkeys(("zk topics", "zk isr"), "zk tree /brokers/topics"),
    "zk controller": "zk get /controller",
    "zk groups": "zk tree /klog/groups",
    "zk owners": "zk tree /consumers",
    "zk acl": "zk stat",
    "stream submit": "stream run --submit",
    "stream remove": "stream stop --remove",
}
"""Commands of the version before, which are still taken, and today's words for them."""
GONE = {
    "export report": "`klog export status`",
    "zk grep": "`klog zk tree PATH -o wide | grep REGEX`",
    "zk diff": "`klog zk tree PATH -o wide` of each, and `diff`",
    "zk watch": "`watch klog zk tree PATH`",
    "group rename": "`klog group copy GROUP NEW-GROUP`, then `klog group delete GROUP`",
    "demo": "`scripts/figure3`",
    "perf paper": "`scripts/paper --peers klog`",
    "quota check": "`klog quota list --applied --user USER --client CLIENT-ID`",
}
"""Commands of the version before that others do now: what to type."""
ALIASES = {"partitions": "partition", "elections": "election", "groups": "group", "topics": "topic"}
"""Of nouns that went, and of those that lost a verb."""


def renamed(words: Sequence[str]) -> list[str]:
    """A command line with today's words for commands of the version before."""
    first, *others = [ALIASES.get(words[0], words[0]), *words[1:]]
    if first in RENAMED:
        return [RENAMED[first], *others]
    verb = {"ls": "list"}.get(others[0], others[0]) if others else ""
    now = RENAMED.get(f"{first} {verb}")
    if now is None:
        return list(words)
    rest = others[1:]
    if first == "report":
        rest = ["--html" + one.removeprefix("--to") if _is_flag(one, "--to") else one for one in rest]
    words_now = now.split()
    if now.startswith("zk tree ") and rest and not rest[0].startswith("-"):
        words_now[-1] += f"/{rest.pop(0)}"  # of one group
    return [*words_now, *rest]


def _is_flag(word: str, flag: str) -> bool:
    return word == flag or word.startswith(f"{flag}=")
