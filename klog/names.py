"""Names of things: topics, and one partition of a topic; numbers with their nouns."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import AnyStr, NamedTuple, TypeVar
from uuid import UUID

from klog.errors import InvalidTopic, UsageError

TOPIC_NAME_CHARS_MAX = 249
"""0.8 allowed 255, which with `-<partition>` behind it is too long for a file name; 249 leaves room for five digits."""

EVENTS_TOPIC = "klog.events"
"""The cluster's own story; brokers alone write it."""
AUDIT_TOPIC = "klog.audit"
"""What producers say they have sent; their klog writes it beside their messages."""
RESERVED_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})
"""Kafka's own: klog keeps offsets in ZooKeeper and has no transactions, so no topic of these names is ever made."""
CLOSED_TOPICS = frozenset({EVENTS_TOPIC, *RESERVED_TOPICS})
"""What no client writes. A reserved one that an older klog made can be read and deleted."""
INTERNAL_TOPICS = frozenset({AUDIT_TOPIC, *CLOSED_TOPICS})
"""Topics that clients do not use: Metadata says so, and consumers of `.*` leave them out."""

TAIL_GROUP = "klog-tail"
"""The group that librdkafka wants to be given for `klog tail`. Nothing is committed for it."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

T = TypeVar("T")


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as its folder's name, ``<topic>-<partition>``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def nested(partitions: Mapping[TopicPartition, T]) -> dict[str, dict[str, T]]:
    """``{"topic": {"0": value}}``, as JSON has partitions; in their order."""
    found: dict[str, dict[str, T]] = {}
    for one in sorted(partitions):
        found.setdefault(one.topic, {})[str(one.partition)] = partitions[one]
    return found


def unnested(topics: Mapping[str, Mapping[str, T]]) -> dict[TopicPartition, T]:
    """And back. ValueError, TypeError or AttributeError for anything else."""
    return {
        TopicPartition(topic, int(partition)): value
        for topic, partitions in topics.items()
        for partition, value in partitions.items()
    }


def host_port(host: str, port: int) -> str:
    """``HOST:PORT``, an IPv6 address in brackets: as flags and settings take it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """``1 topic``, ``3 topics``; ``plural`` where that is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def uuid_text(value: UUID) -> str:
    """Kafka's form of a UUID: 22 characters of base64url."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> UUID | None:
    """None where the text is none."""
    try:
        return UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except ValueError:
        return None


def name_in_program(topic: str) -> str:
    """A topic as Python and SQL can name it."""
    return re.sub(r"[.-]", "_", topic)


def near_hint(name: str, known: Iterable[str], otherwise: str) -> str:
    """``did you mean this or that?`` of the names that are there; ``otherwise`` where none is similar."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=2)
    return f"did you mean {' or '.join(near)}?" if near else otherwise


def regular_expression(text: AnyStr, what: str) -> re.Pattern[AnyStr]:
    """Compiled; UsageError names ``what`` was given."""
    try:
        return re.compile(text)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        shown = text.decode("utf-8", "surrogateescape") if isinstance(text, bytes) else text
        raise UsageError(
            f"{what} {shown!r} is not a regular expression: {error}", hint=r".* is any text, \ escapes a character"
        ) from None


def is_topic_name(name: str) -> bool:
    """Whether there can be a topic of this name, and it can be part of a path."""
    return 0 < len(name) <= TOPIC_NAME_CHARS_MAX and name not in (".", "..") and _LEGAL.fullmatch(name) is not None


def check_topic_name(name: str) -> str:
    """The name itself if it is legal; InvalidTopic with the reason otherwise."""
    if not name:
        raise InvalidTopic("a topic name must not be empty", hint="use letters, digits, '.', '_' and '-'")
    if name in (".", ".."):
        raise InvalidTopic(f"topic name {name!r} is not allowed: it means a folder to the file system")
    if len(name) > TOPIC_NAME_CHARS_MAX:
        raise InvalidTopic(f"topic name of {len(name)} characters; at most {TOPIC_NAME_CHARS_MAX} are allowed")
    if not _LEGAL.fullmatch(name):
        raise InvalidTopic(
            f"topic name {name!r} has a character outside [a-zA-Z0-9._-]",
            hint="use letters, digits, '.', '_' and '-'",
        )
    return name


def check_new_topic_name(name: str) -> str:
    """As `check_topic_name`, for a topic that is to be made: InvalidTopic for Kafka's own ones, too."""
    if name in RESERVED_TOPICS:
        raise InvalidTopic(
            f"topic name {name!r} is reserved: Kafka's brokers keep there what klog has in ZooKeeper",
            hint="choose another name; `klog group` and `klog offset` show what groups have committed",
        )
    return check_topic_name(name)


def first_few(names: Iterable[object], most: int, between: str = ", ") -> str:
    """``a, b and 3 more``."""
    every = [str(one) for one in names]
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return between.join(every[:most]) + more
