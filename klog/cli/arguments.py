"""Arguments and flags that several nouns share, and how they are parsed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from klog.cli.flags import argument, flag
from klog.cli.name_values import settings
from klog.config import units
from klog.errors import UsageError
from klog.render import Format

ID_MAX = 2**31 - 1
"""The protocol's largest number of partitions and largest broker id."""

PARTITIONS_MAX = 100_000
"""More than any cluster has; bounds what ``-p 0-99999999`` would make."""


def all_partitions(words: Sequence[str] | None) -> tuple[int, ...] | None:
    """The partitions of a repeated ``-p``, each once, in order: ``0,2,5-8`` is (0, 2, 5, 6, 7, 8).

    None where none is given.
    """
    found: set[int] = set()
    for word in words or ():
        for part in word.split(","):
            first, dash, last = part.strip().partition("-")
            if not (first.isascii() and first.isdigit()) or (dash and not (last.isascii() and last.isdigit())):
                raise UsageError(f"{word!r} is not a list of partitions", hint="write 0,2,5-8")
            low, high = int(first), int(last) if dash else int(first)
            if low > high or high >= PARTITIONS_MAX:
                raise UsageError(f"{word!r}: {part.strip()} is not a range of partitions", hint="write 0,2,5-8")
            found.update(range(low, high + 1))
    return tuple(sorted(found)) if words else None


Topic = Annotated[str, argument("TOPIC", "The topic.")]
Topics = Annotated[list[str], argument("TOPIC", "The topics.")]
OptionalTopics = Annotated[list[str] | None, argument("TOPIC", "Only these topics.")]
TopicFlag = Annotated[list[str] | None, flag("-t --topic TOPIC", "Only this topic.")]
Group = Annotated[str, argument("GROUP", "The group.")]
OptionalGroups = Annotated[list[str] | None, argument("GROUP", "Only these groups.")]
Partitions = Annotated[list[str] | None, flag("-p --partition --partitions 0,2,5-8", "Only these partitions.")]
Regex = Annotated[bool, flag("-r --regex", "Treat the pattern as a regular expression for the whole name.")]
MostRate = Annotated[
    units.Rate | None, flag("--rate RATE", "At most 500/s (messages) or 20MB/s.", parser=units.parse_rate)
]
Count = Annotated[int | None, flag("-c --count N", "Stop after N messages.", min=0)]
AcksName = Literal["0", "1", "all"]
CodecName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Properties = Annotated[list[str] | None, flag("-X --property NAME=VALUE", "A setting, under Kafka's name.")]


def bytes_rate(text: str) -> int:
    """``20MB/s`` as bytes per second."""
    rate = units.parse_rate(text)
    if rate.what != "bytes":
        raise UsageError(f"expected bytes per second, got {text!r}", hint="write 20MB/s")
    return max(1, int(rate.per_second))


def topic_settings(words: Sequence[str] | None) -> dict[str, str]:
    """`settings` of a topic: durations and sizes may have units, and become plain numbers."""
    from klog.config.topic import TOPIC_SETTINGS

    return {name: _plain(TOPIC_SETTINGS.get(name), text) for name, text in settings(words).items()}


def broker_settings(words: Sequence[str] | None) -> dict[str, str]:
    """`settings` of a broker: durations and sizes may have units, and become plain numbers."""
    return {name: _plain(name, text) for name, text in settings(words, "--config").items()}


def _plain(setting: str | None, text: str) -> str:
    from klog.config.broker import ALIASES, BROKER_SETTINGS
    from klog.config.setting import without_unit

    known = BROKER_SETTINGS.get(ALIASES.get(setting, setting)) if setting is not None else None
    return text if known is None else without_unit(known, text)


def assignment(text: str) -> list[list[int]]:
    """``1:2,2:3`` as the brokers of each partition, ``[[1, 2], [2, 3]]``."""
    try:
        chosen = [[int(broker) for broker in replicas.split(":")] for replicas in text.split(",")]
    except ValueError:
        chosen = []
    if not chosen or not all(abs(broker) <= ID_MAX for replicas in chosen for broker in replicas):
        raise UsageError(
            f"--assignment {text!r}: expected broker ids",
            hint="1:2,2:3 puts partition 0 on brokers 1 and 2, and partition 1 on 2 and 3",
        )
    return chosen


def message_form(output: Format | None, form: str | None, instead: str) -> Literal["value", "format", "jsonl"]:
    """How messages are written, by ``--output`` and ``-f``; ``instead``: the commands that show a table."""
    if output not in (None, Format.JSONL):
        raise UsageError(
            f"--output {output.value} does not apply to messages; use -f FORMAT or --output jsonl", hint=instead
        )
    if form is not None and output is not None:
        raise UsageError("-f and --output jsonl exclude each other")
    return "format" if form is not None else "jsonl" if output is Format.JSONL else "value"
