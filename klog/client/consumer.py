"""The paper's consumer: streams of messages, and a group that ZooKeeper alone coordinates (paper, section 3.2).

    with klog.Consumer(zookeeper="127.0.0.1:2181", group="indexer") as consumer:
        (stream,) = consumer.create_message_streams({"pages": 1})["pages"]
        for message in stream:
            index(message.payload())

The consumers of a group have no master, and no broker coordinates them: each reads the registries and computes its
partitions by the same algorithm. Offsets, owners and ids are in the nodes where Kafka 0.8 has them.
"""

from __future__ import annotations

import atexit
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any, overload

from klog.client.answers import or_raise
from klog.client.consumer_settings import LARGEST, SMALLEST, check_librdkafka, read_settings
from klog.client.log_ends import ask_ends
from klog.client.positions import EARLIEST, LATEST
from klog.client.rebalancer import Rebalancer
from klog.client.streams import Lease, MessageStream
from klog.client.subscription import Subscription
from klog.coordination.connect_string import ConnectString
from klog.errors import NotOwned, OffsetOutOfRange, Refused, UsageError
from klog.names import TopicPartition

SEEK_TIMEOUT_S = 10.0


class Consumer:
    """One member of a group. Thread-safe; each of its streams belongs to one thread at a time.

    It does nothing before its streams are created, which is possible once. `shutdown` ends it; as a context manager it
    shuts itself down.
    """

    def __init__(self, zookeeper: str, group: str = "default", **settings: Any) -> None:
        """``zookeeper``: ``host:port,.../chroot``, the string that the brokers have. Settings: docs/library.md.

        Raises UsageError for an invalid address, InvalidConfig for an unknown or invalid setting.
        """
        ConnectString.parse(zookeeper)
        if not group:
            raise UsageError("the group's name is empty", hint="leave it out for the group 'default'")
        self.group = group
        self._address = zookeeper
        self._settings = read_settings(group, settings)
        check_librdkafka(self._settings)
        self._lease = Lease()
        self._rebalancer: Rebalancer | None = None
        self._is_shut = False

    # --- streams ------------------------------------------------------------------------------------------------------

    @overload
    def create_message_streams(self, topics: Mapping[str, int]) -> dict[str, list[MessageStream]]: ...
    @overload
    def create_message_streams(self, topics: str, streams: int = 1) -> list[MessageStream]: ...

    def create_message_streams(
        self, topics: Mapping[str, int] | str, streams: int = 1
    ) -> dict[str, list[MessageStream]] | list[MessageStream]:
        """Enter the group and read: ``{"topic": n}`` gives ``{"topic": [n streams]}``, ``("topic", n)`` the n streams.

        The group's partitions of a topic are spread over all streams that its consumers have for it; if there are more
        streams than partitions, the rest are idle until they are needed. A topic may be created later. Returns after
        the first rebalance.

        CannotConnect; NoNode for a chroot that does not exist; GroupIsHeld while members of the brokers' protocol use
        the group; RebalanceFailed; Refused when the streams already exist.
        """
        wanted = {topics: streams} if isinstance(topics, str) else dict(topics)
        subscription = Subscription.of_topics(wanted)
        made = {
            topic: [MessageStream(topic, number, self._lease, self._settings.timeout_s) for number in range(count)]
            for topic, count in wanted.items()
        }
        self._start(subscription, [stream for some in made.values() for stream in some])
        return made[topics] if isinstance(topics, str) else made

    def create_message_streams_by_filter(
        self, whitelist: str | None = None, blacklist: str | None = None, streams: int = 1
    ) -> list[MessageStream]:
        """Enter the group and read every topic whose name matches (or does not), including topics created later.

        A list is a regular expression that matches the whole name, or several separated by commas. Errors: as
        `create_message_streams`, and UsageError for an invalid expression.
        """
        subscription = Subscription.of_filter(whitelist, blacklist, streams)
        made = [MessageStream(None, number, self._lease, self._settings.timeout_s) for number in range(streams)]
        self._start(subscription, made)
        return made

    def _start(self, subscription: Subscription, streams: Collection[MessageStream]) -> None:
        if self._is_shut:
            raise Refused("the consumer was shut down", hint="make another one")
        if self._rebalancer is not None:
            raise Refused(
                "a consumer makes its streams once", hint="name all topics in one call, or make another consumer"
            )
        self._rebalancer = Rebalancer(self._address, self.group, subscription, streams, self._lease, self._settings)
        try:
            self._rebalancer.start()
        except BaseException:
            self._rebalancer = None
            raise
        atexit.register(self._at_exit)

    @property
    def consumer_id(self) -> str:
        """Its id in the registry; a new one after a lost session, empty before its streams are created."""
        return self._rebalancer.membership.consumer_id if self._rebalancer is not None else ""

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that it owns at the moment."""
        return sorted(self._rebalancer.membership.owned) if self._rebalancer is not None else []

    # --- positions ----------------------------------------------------------------------------------------------------

    def commit_offsets(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Commit what the streams have delivered, or these: ``{("topic", 0): offset of the next message to read}``.

        Without offsets, the last message that each stream has delivered counts as done, and partitions that another
        consumer has taken over are left to it. A given offset may lie before the last delivered message: an indexer
        commits the smallest offset that it has not flushed (with ``auto_commit_enable=False``).

        Raises NotOwned if a partition is not, or no longer, this consumer's. SessionLost when it is unknown whether
        ZooKeeper has written the offsets; commit them again.
        """
        rebalancer = self._started()
        if offsets is None:
            rebalancer.commit(None)
            return
        wanted = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        for partition, offset in wanted.items():
            if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset < 2**63:
                raise UsageError(f"{partition}: {offset!r} is not an offset")
        lost = rebalancer.commit(wanted)
        if lost:
            raise NotOwned(
                f"group {self.group!r}: {', '.join(map(str, sorted(lost)))} was taken over by another consumer, "
                "or its topic has gone, and nothing was committed there"
            )

    def seek(self, topic: str, partition: int, offset: int | str) -> None:
        """Continue at this offset, or at ``"smallest"`` or ``"largest"`` (``"earliest"``, ``"latest"``).

        NotOwned if this consumer does not read the partition; OffsetOutOfRange, which names the log's offsets;
        UsageError; the leader's error, or a KlogError if it does not answer.
        """
        one = TopicPartition(topic, partition)
        stream = self._started().stream_reading(one)
        if stream is None:
            raise NotOwned(f"group {self.group!r}: {one} is not read by this consumer")
        if not (offset in SMALLEST or offset in LARGEST or (isinstance(offset, int) and not isinstance(offset, bool))):
            raise UsageError(f"{offset!r} is not an offset", hint="give a number, smallest or largest")
        first, behind = (self._end(one, which) for which in (EARLIEST, LATEST))
        if isinstance(offset, str):
            offset = first if offset in SMALLEST else behind
        if not first <= offset <= behind:
            raise OffsetOutOfRange(f"{one} has offsets {first} to {behind}, not {offset}")
        stream.seek(one, offset)

    def _end(self, partition: TopicPartition, which: int) -> int:
        return or_raise(ask_ends(self._started().bootstrap, {partition: which}, SEEK_TIMEOUT_S)[partition])

    def _started(self) -> Rebalancer:
        if self._rebalancer is None or self._is_shut:
            raise Refused("the consumer was shut down" if self._is_shut else "the consumer has no streams yet")
        return self._rebalancer

    # --- the end ------------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Commit what was delivered (with automatic commits), leave the group, end the streams. May be called twice."""
        self._shut(in_hand=True)

    def _shut(self, *, in_hand: bool) -> None:
        self._is_shut = True
        atexit.unregister(self._at_exit)
        if self._rebalancer is not None:
            self._rebalancer.stop(in_hand=in_hand)

    def _at_exit(self) -> None:
        """A program that ends without `shutdown` may not have finished the message in hand."""
        self._shut(in_hand=False)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """After an exception the message in hand counts as not done, and is delivered again."""
        self._shut(in_hand=kind is None)
