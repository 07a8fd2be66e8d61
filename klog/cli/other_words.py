"""Words of other tools (Kafka's own, rpk, kcat) for commands, flags and values, and klog's words for the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

COMMANDS = {
    **dict.fromkeys(("consume", "cat", "kcat", "kafka-console-consumer"), "tail"),
    "kafka-console-producer": "produce",
    "start": "up",
    "stop": "down",
    **dict.fromkeys(("info", "health"), "status"),
    "kafka-topics": "topic",
    "kafka-consumer-groups": "group",
    "kafka-configs": "topic config",
    "kafka-reassign-partitions": "reassign",
    "kafka-acls": "acl",
    "kafka-dump-log": "log dump",
    "zookeeper-shell": "zk",
    "verify": "topic verify",
    "election": "topic elect",
    "partition": "topic describe",
    "registry": "zookeeper rebuild",
}
"""For a word in a noun's place."""

VERBS = {
    **dict.fromkeys(("info", "show"), ("describe", "show", "get", "list")),
    "add": ("create", "register"),
    **dict.fromkeys(("remove", "delete"), ("delete", "remove", "rm")),
    **dict.fromkeys(("reset", "reset-offsets"), ("rewind",)),
}
"""For a word in a verb's place, those that a noun may have; the first that it has."""


class OtherFlag(NamedTuple):
    """What klog writes for a flag of another tool, where the command has the flag ``needs``."""

    needs: str
    written: str


FLAGS = {
    "--from-beginning": OtherFlag("--offset", "-o start"),
    "--to-earliest": OtherFlag("--to", "--to start"),
    "--shift-by": OtherFlag("--by", "--by -N"),
    "--max-messages": OtherFlag("--count", "-c N"),
    **dict.fromkeys(("--config", "--add-config"), OtherFlag("--property", "-X NAME=VALUE")),
    "--command-config": OtherFlag("--client-config", "--client-config FILE"),
    "--time": OtherFlag("--at", "--at POSITION"),
    "-b": OtherFlag("--bootstrap-server", "-B HOST:PORT,..."),
}

ARGUMENTS = {"-t": "TOPIC", "-g": "GROUP", "--broker": "ID"}
"""Flags for what klog takes without a flag, by the argument's name."""

VALUES = {"earliest": "start", "latest": "end", "-1": "all"}
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
}
"""Commands of the version before, which are still taken, and today's words for them."""
GONE = {
    "export report": "`klog export status`",
    "zk grep": "`klog zk tree PATH -o wide | grep REGEX`",
    "zk diff": "`klog zk tree PATH -o wide` of each, and `diff`",
    "zk watch": "`watch klog zk tree PATH`",
    "group rename": "`klog group copy GROUP NEW-GROUP`, then `klog group delete GROUP`",
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
        rest = ["--html" + one.removeprefix("--to") if one.partition("=")[0] == "--to" else one for one in rest]
    words_now = now.split()
    if now.startswith("zk tree ") and rest and not rest[0].startswith("-"):
        words_now[-1] += f"/{rest.pop(0)}"  # of one group
    return [*words_now, *rest]
