"""The cluster's events: messages of the topic ``klog.events``.

`Events.record` records an event, from anywhere on the loop, and never waits. The topic has one partition; an event is
JSON, its kind (`klog.event_kinds`) the key, so that ``klog events --follow`` shows each failover as it happens::

    {"ts": "2026-02-01T10:00:00.000Z", "broker": 1, "kind": "leader-elected", "topic": "t", "partition": 0, ...}

Rules
    * Each broker reports its own actions, and sends its events to the topic's leader over another connection, with
      acks=all and as an idempotent producer: each event is there once, in this broker's order. Between brokers the
      order is that of arrival; ``ts`` is the reporting broker's clock, less what it knows to be wrong with it.
    * Recording never waits and never fails. Events that cannot be sent are kept and retried; beyond `KEPT_MAX` the
      oldest are dropped, and an event reports their number.
    * The controller creates the topic once no broker has come or gone for `SETTLE_S`, on up to three brokers; earlier
      events are in it. When brokers join a cluster that has fewer replicas of it, the controller adds some.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from klog.client import partition_requests
from klog.errors import KlogError
from klog.names import EVENTS_TOPIC, TopicPartition
from klog.net.channel import Channel
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.record.records import Record, encode_batch
from klog.secret import Secret
from klog.server.image import ClusterImage
from klog.server.peer_probe import connect
from klog.server.producer_ids import ProducerIds
from klog.server.runtime import Identity, Runtime

log = logging.getLogger(__name__)

TOPIC: Final = EVENTS_TOPIC
REPLICAS_MAX: Final = 3
SETTINGS: Final = {
    "retention.ms": str(7 * 24 * 3_600_000),
    "cleanup.policy": "delete",
    "flush.messages": "1",
    "min.insync.replicas": "1",
    "message.timestamp.after.max.ms": str((1 << 63) - 1),  # a leader whose clock is behind takes them, too
}
"""Whatever the brokers' own settings."""

KEPT_MAX: Final = 10_000
"""Some three megabytes: the elections of one failover of a large cluster, and a margin."""
BATCH_EVENTS_MAX: Final = 200
"""Encoded in about a millisecond on the loop."""
BATCH_BYTES_MAX: Final = 256 * 1024
"""Of their values; a longer event is alone in its batch."""
TEXT_CHARS_MAX: Final = 300
ITEMS_MAX: Final = 100
"""Per list or dict among an event's facts. Clients choose settings and member ids, as many as they want."""
SETTLE_S: Final = 2.0
"""Long enough that brokers that start together are counted together."""
LOOK_AGAIN_S: Final = 1.0
RETRY_S_MIN: Final = 0.1
RETRY_S_MAX: Final = 5.0
ANSWER_WITHIN_S: Final = 10.0
LAST_WORDS_S: Final = 1.0
"""How long a broker that stops tries to send its last events."""

_MESSAGE_TOO_LARGE: Final = 10
_PRODUCER_FORGOTTEN: Final = frozenset({45, 46, 47, 59})
"""OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID."""

_JSON: Final = json.JSONEncoder(separators=(", ", ": "), default=str, ensure_ascii=False)
"""Shared: `json.dumps` would make an encoder per event."""

_SHORT: Final = frozenset({int, bool, float, type(None)})


class Events:
    """One per broker. Event loop only; `told` and `dropped` may be read from any thread."""

    def __init__(self, identity: Identity, *, to_topic: bool) -> None:
        """``to_topic``: klog.events.enable."""
        self.told: Counter[str] = Counter()
        """Events by kind, sent or not."""
        self.dropped = 0
        """Events that never reached the topic."""
        self._identity = identity
        self._to_topic = to_topic
        self._kept: deque[dict[str, Any]] = deque()
        self._underway = 0
        """The first so many are being sent, perhaps for the second time."""
        self._dropped_now = 0
        self._woken = asyncio.Event()
        self._all_sent = asyncio.Event()
        self._all_sent.set()
        self._sending: asyncio.Task[None] | None = None
        self._topic: EventsTopic | None = None

    def record(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Record an event. The facts are JSON values: numbers, texts, lists, dicts."""
        self.told[kind] += 1
        if self._to_topic:
            self._keep(self._event(kind, facts))

    def _event(self, kind: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        return {"ts": self._now_text(), "broker": self._identity.broker_id, "kind": kind, **_bounded(facts)}

    def _now_text(self) -> str:
        now_ms = time.time_ns() // 1_000_000 - self._identity.clock_ahead_ms
        return datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _keep(self, event: dict[str, Any]) -> None:
        if len(self._kept) >= KEPT_MAX + self._underway:
            del self._kept[self._underway]
            self.dropped += 1
            self._dropped_now += 1
        self._kept.append(event)
        self._all_sent.clear()
        self._woken.set()

    # --- to the topic -------------------------------------------------------------------------------------------------

    def start(self, runtime: Runtime, topic: EventsTopic) -> None:
        """Send the events to the topic from now on, the waiting ones first. A controller that sends none keeps the
        topic's replicas all the same."""
        if self._to_topic:
            self._topic = topic
            self._sending = runtime.spawn(self._send(topic))
        runtime.spawn(topic.keep(may_create=self._to_topic))

    async def sent(self) -> None:
        """Wait until no event waits to be sent."""
        await self._all_sent.wait()

    async def close(self) -> None:
        """Send the last events, if that succeeds soon, and stop."""
        if self._sending is None or self._topic is None:
            return
        if self._topic.is_connected:
            try:
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._all_sent.wait()
            except TimeoutError:
                log.debug("%d events are not sent any more", len(self._kept))
        self._sending.cancel()
        await asyncio.gather(self._sending, return_exceptions=True)
        await self._topic.close()

    async def _send(self, topic: EventsTopic) -> None:
        retry_s, warned = RETRY_S_MIN, ""
        while True:
            if not self._kept:
                self._woken.clear()
                self._all_sent.set()
                await self._woken.wait()
            try:
                if not topic.is_there:
                    await asyncio.sleep(LOOK_AGAIN_S)
                    continue
                await self._send_some(topic)
                retry_s, warned = RETRY_S_MIN, ""
            except KlogError as error:
                lasts = retry_s == RETRY_S_MAX and error.message != warned
                warned = error.message if lasts else warned
                level = logging.WARNING if lasts else logging.DEBUG
                log.log(level, "%d events wait: %s", len(self._kept), error.message)
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, RETRY_S_MAX)
            except Exception:
                log.exception("internal error: events could not be sent")
                await asyncio.sleep(RETRY_S_MAX)

    async def _send_some(self, topic: EventsTopic) -> None:
        """Send the oldest events. After an error the same batch is sent again, so that no event arrives twice."""
        kept = self._kept
        if not self._underway:
            if self._dropped_now:
                kept.appendleft(self._event("events-dropped", {"events": self._dropped_now}))
                self._dropped_now = 0
            self._underway = min(len(kept), BATCH_EVENTS_MAX)
        sent = list(islice(kept, self._underway))
        now = self._now_text()
        for event in sent:  # from ahead of now: told before this clock was known to be wrong
            event["ts"] = min(event["ts"], now)
        records = [_record(event) for event in sent]
        self._underway = _how_many_fit(records)
        if not await topic.produce(records[: self._underway]):
            if self._underway > 1:  # the topic's max.message.bytes is less than the default
                self._underway //= 2
                return
            self.dropped += 1
            log.warning("an event of %d bytes is too large for the topic %s", len(records[0].value or b""), TOPIC)
        for _ in range(self._underway):
            kept.popleft()
        self._underway = 0


@dataclass(eq=False, repr=False)
class EventsTopic:
    """Creates the topic, and is an idempotent producer to its leader, whichever broker that is. Event loop only."""

    runtime: Runtime
    image: ClusterImage
    secret: Secret
    producer_ids: ProducerIds
    is_controller: Callable[[], bool]
    answer_locally: Callable[[Any], Awaitable[Any]]
    """This broker's answer to its own request."""
    _channel: Channel | None = None
    _leader = -1
    _producer_id: int | None = None
    _sequence = 0

    @property
    def is_connected(self) -> bool:
        return self._channel is not None and not self._channel.is_closed

    @property
    def is_there(self) -> bool:
        return TOPIC in self.image.topics

    # --- as the controller --------------------------------------------------------------------------------------------

    async def keep(self, *, may_create: bool) -> None:
        """Create the topic, and add replicas if there were fewer brokers then: also where this broker's own events do
        not go there, since others' do.

        Only after brokers have joined, or at the beginning of a controller's term: a plan that empties a broker may
        leave fewer replicas on purpose.
        """
        considered: frozenset[int] = frozenset()
        refusal = None
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            brokers, was_there = frozenset(self.image.brokers), self.is_there
            if not self.is_controller() or not brokers or (was_there and brokers <= considered):
                continue
            await asyncio.sleep(SETTLE_S)
            try:
                if was_there:
                    considered |= brokers
                    await self._add_replicas()
                elif may_create and brokers == self.image.brokers.keys() and self.is_controller():
                    before, refusal = refusal, await self._create(len(brokers))
                    if refusal is not None and refusal != before:
                        log.warning("the topic %s cannot be made yet: %s", TOPIC, refusal)
            except Exception:  # or no later controller's term here would make it
                log.exception("internal error: the topic %s is looked at again", TOPIC)

    async def _create(self, brokers: int) -> str | None:
        """Why the topic cannot be created; None where it is, or will be in the image in a moment."""
        topic = {
            "name": TOPIC,
            "num_partitions": 1,
            "replication_factor": min(REPLICAS_MAX, brokers),
            "assignments": [],
            "configs": [{"name": name, "value": value} for name, value in SETTINGS.items()],
        }
        asked = codec.request(ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout=30_000, validate_only=False)
        answer = (await self.answer_locally(asked)).topics[0]
        return answer.error_message if answer.error_code.value else None

    async def _add_replicas(self) -> None:
        topic = self.image.topics.get(TOPIC)
        if topic is None or not self.is_controller():
            return
        there = list(topic.partitions[0].replicas)
        others = [one for one in sorted(self.image.brokers) if one not in there]
        wanted = (there + others)[: max(REPLICAS_MAX, len(there))]
        if wanted == there:
            return
        asked = codec.request(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            0,
            timeout=30_000,
            topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": wanted}]}],
        )
        answer = await self.answer_locally(asked)
        for one in [answer, *(outcome for asked_topic in answer.responses for outcome in asked_topic.partitions)]:
            if one.error_code.value:
                log.warning("the topic %s gets no further replicas: %s", TOPIC, one.error_message)

    # --- the producer -------------------------------------------------------------------------------------------------

    async def produce(self, records: list[Record]) -> bool:
        """Have the records committed, in order; False if they never will be. KlogError: retry the same later."""
        channel = await self._to_leader()
        if self._producer_id is None:
            self._producer_id, self._sequence = await self.producer_ids.next(), 0
        batch = encode_batch(
            records, producer_id=self._producer_id, producer_epoch=0, base_sequence=self._sequence & 0x7FFFFFFF
        )
        place, timeout_ms = TopicPartition(TOPIC, 0), int(ANSWER_WITHIN_S * 1000)
        asked = partition_requests.produce(channel, place, bytes(batch), timeout_ms=timeout_ms)
        answer = (await channel.request(asked, timeout_s=ANSWER_WITHIN_S)).responses[0].partition_responses[0]
        code = answer.error_code.value
        if code == 0:
            self._sequence += len(records)
            return True
        if code == _MESSAGE_TOO_LARGE:
            return False
        if code in _PRODUCER_FORGOTTEN:
            self._producer_id = None
        raise KlogError(f"the leader of {TOPIC}, broker {self._leader}, answers {answer.error_code.name}")

    async def _to_leader(self) -> Channel:
        image = self.image
        leader = image.topics[TOPIC].partitions[0].leader
        if self._channel is not None and (leader != self._leader or self._channel.is_closed):
            await self.close()
        if self._channel is None:
            where = image.brokers.get(leader)
            if where is None:
                raise KlogError(f"the leader of {TOPIC} is not known")
            client_id = f"klog-events-{self.runtime.broker_id}"
            self._channel = await connect(
                self.runtime.identity, self.secret, where, timeout_s=ANSWER_WITHIN_S, client_id=client_id
            )
            self._leader = leader
        return self._channel

    async def close(self) -> None:
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()


def _bounded(value: Any) -> Any:
    """The value with long texts, lists and dicts cut short."""
    if type(value) in _SHORT:  # most facts; a check for Mapping takes longer than all the rest
        return value
    if isinstance(value, str):
        return value if len(value) <= TEXT_CHARS_MAX else value[:TEXT_CHARS_MAX] + "..."
    if isinstance(value, dict | Mapping):
        return {_bounded(name): _bounded(one) for name, one in islice(value.items(), ITEMS_MAX)}
    if isinstance(value, list | tuple):
        return [_bounded(one) for one in islice(value, ITEMS_MAX)]
    return value


def _how_many_fit(records: list[Record]) -> int:
    """The number of first records that fit into a batch; at least one."""
    size = 0
    for number, record in enumerate(records):
        size += len(record.value or b"")
        if number and size > BATCH_BYTES_MAX:
            return number
    return len(records)


def _record(event: dict[str, Any]) -> Record:
    moment = datetime.fromisoformat(event["ts"])
    value = _JSON.encode(event)
    return Record(0, round(moment.timestamp() * 1000), str(event["kind"]).encode(), value.encode(), ())
