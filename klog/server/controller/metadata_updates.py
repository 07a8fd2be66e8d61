"""UpdateMetadata for all brokers of a term: changes are kept once, and encoded once for all brokers that need the same.

Strategy
    Every change has a number. A channel remembers the number up to which its broker has been sent everything; the next
    request has the changes since, in their current state. Channels at the same number share the encoded bytes: with
    1,000 brokers, a thousand requests cost one encoding.

    A broker that has just connected gets everything. Each topic's bytes are cached until the topic changes, so the next
    broker costs only the changes in between.

The request begins with the controller, its epoch and the receiver's incarnation, 16 bytes, of which only the last
differs per broker. Event loop only.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from uuid import UUID

from klog.names import TopicPartition
from klog.protocol import codec
from klog.protocol.apis import ApiKey
from klog.protocol.codec import EncodedRequest
from klog.protocol.interbroker import GroupSlot
from klog.server.controller import requests
from klog.server.controller.context import Context

_HEAD = struct.Struct(">iiq")
_NO_TAGS = b"\0"
UNDER_WAY_MAX = 32
"""Full requests under way, so that brokers' reactions to them do not come all at once either."""
UNDER_WAY_BYTES_MAX = 256 << 20
"""Bytes of full requests under way; one is always allowed, whatever its size."""
ENCODED_AT_ONCE = 2000
"""Partitions encoded without yielding to the event loop: some 25 ms."""
GONE_MAX = 10_000
"""Deleted topics that are remembered; a broker that has missed more is sent everything."""


@dataclass(slots=True)
class _Changes:
    """The numbers of a topic's last changes."""

    last: int = 0
    whole: int = 0
    partitions: dict[int, int] = field(default_factory=dict)


class MetadataUpdates:
    """See the module. ``number``: that of the last change."""

    def __init__(self, context: Context, controller_id: int, epoch: int) -> None:
        self.number = 1
        self._context = context
        self._controller_id = controller_id
        self._epoch = epoch
        self._changed: dict[str, _Changes] = {}
        """In the order of their last changes."""
        self._gone: dict[str, tuple[int, UUID | None]] = {}
        self._forgotten = 0
        """The number of the last deletion that is no longer remembered."""
        self._slots = 0
        self._since: dict[int, bytes] = {}
        """The number before -> the request with the changes since."""
        self._everything: bytes | None = None
        self._topics: dict[str, bytes] = {}
        """Encoded topics that have not changed since."""
        self._size_bytes = 0
        """Size of the last full request."""
        self._under_way = 0
        self._asked: deque[asyncio.Future[None]] = deque()
        self._encoding = asyncio.Lock()
        self._live: dict[int, int] = {}
        self._lost: dict[int, set[TopicPartition]] = {}

    # --- changes ------------------------------------------------------------------------------------------------------

    def changed(
        self,
        names: Iterable[TopicPartition] = (),
        topics_whole: Iterable[str] = (),
        gone: Mapping[str, UUID | None] = {},
    ) -> None:
        """Note that the live brokers may have changed, and these partitions, whole topics, deleted topics have."""
        number = self._next()
        for name in names:
            self._of(name.topic).partitions[name.partition] = number
        for topic in topics_whole:
            self._of(topic).whole = number
        for topic, topic_id in gone.items():
            self._changed.pop(topic, None)
            self._topics.pop(topic, None)
            self._gone[topic] = number, topic_id
            while len(self._gone) > GONE_MAX:
                self._forgotten = self._gone.pop(next(iter(self._gone)))[0]

    def slots_changed(self) -> None:
        """Note that the coordinators of groups have changed."""
        self._slots = self._next()

    def _next(self) -> int:
        self.number += 1
        self._since.clear()
        self._everything = None
        return self.number

    def _of(self, topic: str) -> _Changes:
        changes = self._changed.get(topic)
        if changes is None or changes.last != self.number:
            changes = self._changed.pop(topic, None) or _Changes()
            changes.last = self.number
            self._changed[topic] = changes
            self._gone.pop(topic, None)
            self._topics.pop(topic, None)
        return changes

    # --- full requests ----------------------------------------------------------------------------------------------

    def turn(self) -> asyncio.Future[None]:
        """Done when one more full request may be sent; `give_back` must follow.

        A connection copies what it cannot send at once, so a thousand full requests would take a thousand times their
        size.
        """
        asked = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        self._pass_on()
        return asked

    def give_back(self, turn: asyncio.Future[None]) -> None:
        """The request is answered, or will not be made."""
        if turn.done():
            self._under_way -= 1
            self._pass_on()
        else:
            self._asked.remove(turn)

    def _pass_on(self) -> None:
        while self._asked and self._is_room:
            self._under_way += 1
            self._asked.popleft().set_result(None)

    @property
    def _is_room(self) -> bool:
        if self._under_way >= UNDER_WAY_MAX:
            return False
        return not self._under_way or (self._under_way + 1) * self._size_bytes <= UNDER_WAY_BYTES_MAX

    async def encode(self) -> None:
        """Prepare a full request: encode the topics that are not cached, some at a time."""
        async with self._encoding:
            self._forget_stale()
            partitions = 0
            for topic in list(self._context.topics):
                if topic in self._topics or topic not in self._context.topics:
                    continue
                self._topics[topic] = self._encode_topic(topic)
                partitions += len(self._context.topics[topic].partitions)
                if partitions >= ENCODED_AT_ONCE:
                    partitions = 0
                    await asyncio.sleep(0)
            self._size_bytes = max(self._size_bytes, sum(map(len, self._topics.values())))

    def _encode_topic(self, topic: str) -> bytes:
        return codec.encode_part(requests.metadata_topic(self._context, topic, None))

    # --- requests -----------------------------------------------------------------------------------------------------

    def request(self, told: int, incarnation: int) -> EncodedRequest:
        """For a broker that has been sent everything up to number ``told`` (0: nothing); brings it to ``number``."""
        if told < self._forgotten:
            told = 0
        if told:
            rest = self._since.get(told)
            if rest is None:
                rest = self._since[told] = self._encode_since(told)
        else:
            if self._everything is None:
                self._everything = self._encode_everything()
                self._size_bytes = len(self._everything)
            rest = self._everything
        head = _HEAD.pack(self._controller_id, self._epoch, incarnation)
        return EncodedRequest(ApiKey.UPDATE_METADATA, 0, (head, rest))

    def _encode_since(self, told: int) -> bytes:
        context, topics = self._context, []
        for topic, changes in reversed(self._changed.items()):
            if changes.last <= told:
                break
            if topic in context.topics and topic not in context.deleting:
                numbers = {number for number, at in changes.partitions.items() if at > told}
                whole = changes.whole > told
                topics.append(requests.metadata_topic(context, topic, None if whole else numbers))
        topics += [requests.deleted_topic(topic, topic_id) for topic, (at, topic_id) in self._gone.items() if at > told]
        return self._encode(map(codec.encode_part, topics), is_full=False, with_slots=self._slots > told)

    def _encode_everything(self) -> bytes:
        self._forget_stale()
        context = self._context
        listed = [topic for topic in context.topics if topic not in context.deleting]
        for topic in listed:
            if topic not in self._topics:
                self._topics[topic] = self._encode_topic(topic)
        return self._encode((self._topics[topic] for topic in listed), is_full=True, with_slots=True)

    def _encode(self, topics: Iterable[bytes], *, is_full: bool, with_slots: bool) -> bytes:
        """UpdateMetadata behind its head, with the coordinators of groups if ``with_slots``."""
        slots = [codec.build(GroupSlot, asdict(holder)) for holder in self._context.group_slots.values() if with_slots]
        brokers = map(codec.encode_part, requests.metadata_brokers(self._context))
        flag = b"\1" if is_full else b"\0"
        return b"".join([flag, _array(brokers), _array(topics), _array(map(codec.encode_part, slots)), _NO_TAGS])

    def _forget_stale(self) -> None:
        """Drop the bytes of topics with new states, or with replicas lost or back, with a broker or a disk."""
        context = self._context
        live = {one: found.incarnation for one, found in context.live.items()}
        lost = {one: set(known.lost) for one, known in context.brokers.items() if known.lost}
        moved = live.keys() ^ self._live.keys() if self._topics else ()
        stale = {name.topic for one in moved for name in context.hosted(one)}
        for one in lost.keys() | self._lost.keys():
            stale |= {name.topic for name in lost.get(one, set()) ^ self._lost.get(one, set())}
        stale |= context.reread
        for topic in stale:
            self._topics.pop(topic, None)
        context.reread.clear()
        if stale or (live, lost) != (self._live, self._lost):
            self._everything = None
        self._live, self._lost = live, lost


def _array(elements: Iterable[bytes]) -> bytes:
    parts = list(elements)
    return b"".join([codec.uvarint(len(parts) + 1), *parts])
