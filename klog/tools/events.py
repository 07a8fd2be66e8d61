"""The cluster's events, read from ``klog.events`` and told in sentences.

``klog.server.events`` writes them and has the kinds. What a newer broker writes, or a stranger, is shown as it is.
An act whose event is there twice, because a controller died in between, is shown once.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from klog.client.cluster import Cluster
from klog.client.positions import Position, Range, parse_position
from klog.coordination.acts import Actor
from klog.coordination.groups import check_known
from klog.coordination.zookeeper import ZooKeeper
from klog.errors import BrokerNotAvailable, KlogError, NoSuchThing, UnknownTopicOrPartition, UsageError
from klog.names import EVENTS_TOPIC, counted, host_port
from klog.render.value_texts import clock_text
from klog.security.quotas import QuotaKey, told_value
from klog.tools.options import TailOptions
from klog.tools.tail import tail

Event = Mapping[str, Any]

NO_LEADER: Final = -1
SUBJECT_KINDS: Final = ("topic", "partition", "group", "broker")
ADDRESSES_WITHIN_S: Final = 5.0
ACTS_REMEMBERED: Final = 5_000
"""As many as ZooKeeper keeps: the next controller sends no older act again."""
_SENDER: Final = frozenset({"ts", "broker"})
_HEAD: Final = frozenset({"ts", "broker", "kind", "topic", "partition", "group", "id", "reason"})
"""What the other columns have."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event. ``subject``: the partition, topic, group or broker that it concerns. ``act``: its id, of an act."""

    time: datetime | None
    kind: str
    subject: str
    what: str
    reason: str | None
    act: str | None = field(default=None, metadata={"wide": True})


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events; None: any."""

    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    broker: int | None = None
    kinds: tuple[str, ...] = ()
    by: str | None = None
    """Of acts: a part of the principal or of the client id."""

    def takes(self, event: Event) -> bool:
        return (
            self.topic in (None, event.get("topic"))
            and self.partition in (None, event.get("partition"))
            and self.group in (None, event.get("group"))
            and (self.broker is None or self.broker in brokers_of(event))
            and (not self.kinds or event.get("kind") in self.kinds)
            and (self.by is None or any(self.by in str(event.get(name) or "") for name in ("principal", "client")))
        )


def filter_of(words: Sequence[str], topics: Collection[str]) -> EventFilter:
    """The events of a subject: ``topic T``, ``partition T-P``, ``group G``, ``broker ID``; or alone a topic that there
    is, ``T-P``, a broker's id, or the name of a topic that is gone. UsageError."""
    kind, name = (None, words[0]) if len(words) == 1 else (words[0], words[1])
    if len(words) > 2 or kind not in (None, *SUBJECT_KINDS):
        hint = "topic T, partition T-P, group G, broker ID, act ID, or a name"
        raise UsageError(f"expected a subject, got {' '.join(words)!r}", hint=hint)
    check_subject(kind, name)
    topic, _, number = name.rpartition("-")
    if kind == "group":
        return EventFilter(group=name)
    if kind == "topic" or (kind is None and name in topics):
        return EventFilter(topic=name)
    if kind != "partition" and number_of(name) >= 0:
        return EventFilter(broker=number_of(name))
    if topic and number_of(number) >= 0:
        return EventFilter(topic=topic, partition=number_of(number))
    return EventFilter(topic=name)


def check_subject(kind: str | None, name: str) -> None:
    """UsageError for what cannot be a partition's name, or a broker's id."""
    topic, _, number = name.rpartition("-")
    if kind == "broker" and number_of(name) < 0:
        raise UsageError(
            f"a broker's id must be an integer of at least 0, got {name!r}", hint="`klog broker list` shows the brokers"
        )
    if kind == "partition" and not (topic and number_of(number) >= 0):
        raise UsageError(f"a partition must be TOPIC-N, got {name!r}", hint="for example partition orders-0")


def number_of(text: str) -> int:
    """The number that it is; -1 where it is not a number that ids and partitions can have."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


async def check_there(cluster: Cluster, zookeeper: Callable[[], Awaitable[ZooKeeper]], of: EventFilter) -> None:
    """UnknownTopicOrPartition, GroupIdNotFound or BrokerNotAvailable for what the events are of, and is not there.

    The error names what is similar. A broker is there while it lives, and while it has replicas.
    """
    if of.topic is not None:
        (await cluster.topic(of.topic)).check([] if of.partition is None else [of.partition])
    if of.group is not None:
        await asyncio.to_thread(check_known, await zookeeper(), [of.group])
    if of.broker is not None:
        metadata = await cluster.metadata()
        there = {*metadata.brokers, *metadata.dead}
        if of.broker not in there:
            raise BrokerNotAvailable(
                f"the cluster does not have a broker {of.broker}", hint=f"brokers: {', '.join(map(str, sorted(there)))}"
            )


async def read_events(
    cluster: Cluster,
    chosen: EventFilter,
    since: Position,
    show: Callable[[Event], None],
    *,
    follow: bool = False,
    note: Callable[[str], None] = lambda text: None,
) -> None:
    """Show the events from a position on, in the topic's order; with ``follow`` until the task is cancelled.

    ``show`` is called on the event loop; what it raises ends the reading, and comes through. NoSuchThing where the
    cluster keeps no events.
    """
    loop = asyncio.get_running_loop()
    once = Once()

    async def take(messages: list[Any]) -> None:
        for event in (parse(message.value() or b"") for message in messages):
            if chosen.takes(event) and once.is_new(event):
                show(event)

    def sink(messages: list[Any]) -> None:
        asyncio.run_coroutine_threadsafe(take(messages), loop).result()

    options = TailOptions(offset=Range(since, None), until_end=not follow)
    try:
        await tail(cluster, [EVENTS_TOPIC], options, sink, note=note)
    except UnknownTopicOrPartition:
        raise NoSuchThing(
            f"the cluster has no topic {EVENTS_TOPIC}: it is created some seconds after the start",
            hint="with klog.events.enable=false it is not: `klog broker config 1`",
        ) from None


async def events_since(
    cluster: Cluster, chosen: EventFilter, since: Position, *, most: int | None = None, within_s: float
) -> tuple[list[Event], str | None]:
    """The last so many events from a position on, in the topic's order; and why some may be missing, or all."""
    found: deque[Event] = deque(maxlen=most)
    why: str | None = None
    try:
        async with asyncio.timeout(within_s):
            await read_events(cluster, chosen, since, found.append)
    except KlogError as error:
        why = error.message
    except TimeoutError:
        why = f"no end after {within_s:g} s"
    return list(found), why


async def last_addresses(cluster: Cluster) -> dict[int, str]:
    """Broker -> HOST:PORT where it was last registered: one that lost its entry in ZooKeeper may hang there.

    Without those whose registration is older than the events that are kept.
    """
    chosen = EventFilter(kinds=("broker-up", "broker-down"))
    events, _ = await events_since(cluster, chosen, parse_position("start"), within_s=ADDRESSES_WITHIN_S)
    found: dict[int, str] = {}
    for event in events:
        broker, host, port = event.get("id"), event.get("host"), event.get("port")
        if type(broker) is int and isinstance(host, str) and type(port) is int:
            found[broker] = host_port(host, port)
    return found


class Once:
    """Tells an act's second event from its first: a controller that died had sent it, and the next one sent it again.

    They differ in the broker that sends them and its clock. Whatever else differs is another event: any client can
    write one with the id of an act.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        """An act's id -> the hash of its event; the last `ACTS_REMEMBERED`."""

    def is_new(self, event: Event) -> bool:
        act = event.get("act")
        if event.get("kind") != "act" or not isinstance(act, str):
            return True
        same = hash(json.dumps({name: value for name, value in event.items() if name not in _SENDER}, sort_keys=True))
        if self._seen.get(act) == same:
            return False
        self._seen.setdefault(act, same)
        if len(self._seen) > ACTS_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        return True


def parse(line: bytes) -> Event:
    """An event; one of the kind ``?`` for what is not one."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        event = None
    if isinstance(event, dict) and isinstance(event.get("kind"), str):
        return event
    return {"kind": "?", "text": line.decode("utf-8", "replace")}


def brokers_of(event: Event) -> set[int]:
    """The brokers that an event concerns: the one that came or went, old and new leaders, who entered or left the
    in-sync replicas; and where it names none, the one that reports it."""
    found = set(_numbers([event.get(name) for name in ("id", "controller", "leader", "old_leader")]))
    found |= set(_numbers(event.get("isr"))) ^ set(_numbers(event.get("old_isr", event.get("isr"))))
    found |= set(_numbers(event.get("replicas"))) | set(_numbers(event.get("target")))
    return found - {NO_LEADER} or set(_numbers([event.get("broker")]))


def row(event: Event) -> EventRow:
    """The event as a row. It may come from anyone who can write to the topic: nothing of it is taken for granted."""
    reason, act = event.get("reason"), event.get("act")
    return EventRow(
        _time(event.get("ts")),
        str(event["kind"]),
        _subject(event),
        _what(event),
        str(reason) if reason else None,
        act if isinstance(act, str) else None,
    )


def in_turn(events: Iterable[Event]) -> list[Event]:
    """Events by their times, as their brokers give them; those without one as they came."""
    latest, timed = datetime.min.replace(tzinfo=UTC), []
    for event in events:
        latest = _time(event.get("ts")) or latest
        timed.append((latest, event))
    return [event for _, event in sorted(timed, key=lambda one: one[0])]


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _subject(event: Event) -> str:
    if "topic" in event:
        return f"{event['topic']}-{event['partition']}" if "partition" in event else str(event["topic"])
    if "group" in event:
        return f"group {event['group']}"
    if "controller" in event:
        return "controller"
    if event.get("kind") == "act":
        for name in ("schema", "acl", "user", "path", "quota"):
            if name in event:
                return f"{'znode' if name == 'path' else name} {event[name]}"
    return f"broker {event.get('id', event.get('broker', '?'))}"


def _what(event: Event) -> str:
    tell = _SENTENCES.get(str(event["kind"]))
    if tell is not None:
        try:
            return tell.format_map(event) if isinstance(tell, str) else tell(event)
        except (KeyError, TypeError, ValueError, AttributeError):
            pass  # of another version of klog, or not of klog at all
    return ", ".join(f"{name} {_plain(value)}" for name, value in event.items() if name not in _HEAD)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _numbers(value: object) -> list[int]:
    return [one for one in value if type(one) is int] if isinstance(value, list) else []


def numbers_text(numbers: Any) -> str:
    """``1,2``, or ``none``."""
    return ",".join(str(int(one)) for one in numbers) or "none"


def _led(event: Event) -> str:
    old = event["old_leader"]
    before = "before: no leader" if old == NO_LEADER else f"before: {old}"
    in_sync = numbers_text(event["isr"])
    return f"broker {event['leader']} leads, epoch {event['leader_epoch']} ({before}); in-sync {in_sync}"


def _in_sync(event: Event) -> str:
    return f"in-sync replicas {numbers_text(event['isr'])} (before: {numbers_text(event['old_isr'])})"


def _moved(event: Event) -> str:
    throttle = event.get("throttle")
    limit = f", at {throttle:,} bytes/s at most" if isinstance(throttle, int) and throttle > 0 else ""
    return f"replicas {numbers_text(event['replicas'])} move to {numbers_text(event['target'])}{limit}"


_SENTENCES: Final[Mapping[str, str | Callable[[Event], str]]] = {
    "act": lambda event: f"{event['what']} by {_actor(event)}, act {event['act']}",
    "broker-down": "down",
    "broker-up": lambda event: f"up at {host_port(event['host'], event['port'])}" if "host" in event else "up",
    "clock-skew": lambda event: f"its clock is {clock_text(event['ahead_ms'])} most other brokers'",
    "commit-refused": lambda event: (
        f"commit of {event['member'] or event['client']} at {event['host']} refused: {event['error']}"
    ),
    "connections-full": lambda event: (
        f"listener {event['listener']} takes no further connections: there are {event['connections']}, most of them "
        f"from {event['most_of'] or 'no address'}"
    ),
    "controller-elected": "broker {controller} is the controller, epoch {controller_epoch}",
    "damage-found": "damaged bytes from {first_address} to {end_address}, found by the {found_by}",
    "denied": "{principal} at {host} was denied {operation} {resource} ({request}): {rule}",
    "events-dropped": lambda event: f"{counted(event['events'], 'event')} could not be sent in time",
    "group-empty": "no members, generation {generation}",
    "isr-changed": _in_sync,
    "isr-expanded": _in_sync,
    "isr-shrunk": _in_sync,
    "leader-elected": _led,
    "log-dir-offline": "log dir {dir} is offline",
    "messages-lost": lambda event: (
        f"cut from {event['cut_at']} to {event['ended_at']}; the bytes are kept in {', '.join(event['files'])}"
    ),
    "partition-offline": lambda event: (
        f"no leader, epoch {event['leader_epoch']}; in-sync {numbers_text(event['isr'])}"
    ),
    "partitions-added": lambda event: f"{counted(event['partitions'], 'partition')} now",
    "reassignment-begun": _moved,
    "reassignment-cancelled": _moved,
    "reassignment-done": lambda event: f"replicas {numbers_text(event.get('target', event['replicas']))}",
    "reassignment-stalled": "stalled",
    "rebalance": lambda event: f"generation {event['generation']}: {counted(len(event['members']), 'member')}",
    "replicas-offline": lambda event: f"cannot serve {', '.join(event['partitions'])}",
    "session-expired": "its ZooKeeper session expired",
    "settings-changed": lambda event: (
        "settings: " + (", ".join(f"{name}={value}" for name, value in event["settings"].items()) or "none of its own")
    ),
    "throttled": lambda event: (
        f"{_taker(event)} to wait "
        f"{event['throttle_ms']} ms for {event['quota']} {told_value(QuotaKey(event['quota']), event['limit'])}"
    ),
    "topic-created": lambda event: (
        f"created: {counted(event['partitions'], 'partition')}, replication factor {event['replication_factor']}"
    ),
    "topic-deleted": "deleted",
    "topic-purged": "deleted for good",
    "topic-restored": lambda event: f"restored: {counted(event['partitions'], 'partition')}",
    "unclean-election": _led,
    "zookeeper-full": ("ZooKeeper would keep {share:.0%} of its heap of {heap_mib} MiB: brokers refuse {refused}"),
}
"""By the kind of an event; a text has its values in braces."""


def _actor(event: Event) -> str:
    return Actor(event["client"], event["host"], event.get("principal") or "").name


def _taker(event: Event) -> str:
    """Who takes more than a quota, and has."""
    if QuotaKey(event["quota"]).is_of_addresses:
        return f"connections from {event['host']} have"
    return f"client {event['client']!r} of user {event['user']!r} at {event['host']} has"
