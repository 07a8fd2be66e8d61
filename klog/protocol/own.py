"""klog's own requests, for what Kafka's protocol has no words: keys from 10000, version 0, flexible encoding.

Written in the style of kio's generated classes, so that the same readers and writers serve them. A broker lists them in
ApiVersions only to a client that calls itself ``klog`` (KIP-511's software name): a stock client has no use for them.

Annotations are evaluated here on purpose: kio reads the types of the fields.

In positions, -2 means the partition's start and -1 its end, as in ListOffsets; a count of -1 means *not known yet*.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i64

COUNT_MESSAGES = 10000
FIND_MESSAGE = 10001
STOP_BROKER = 10002
LOCATE_MESSAGE = 10003
DESCRIBE_SELF = 10004
CHECKSUM_RANGES = 10005
LIST_LOST = 10006
READ_LOST = 10007
PRODUCE_AT = 10030
MESSAGE_TIMES = 10008

SOFTWARE_NAME = "klog"
"""What klog's own tools call themselves in ApiVersions."""


def _of(kafka_type: str) -> Any:
    return field(metadata={"kafka_type": kafka_type})


class _Own:
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True


class _Request(_Own):
    __type__: ClassVar = EntityType.request
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader


class _Response(_Own):
    __type__: ClassVar = EntityType.response
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader


# --- CountMessages: how many messages lie in [from, to) of a partition ----------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CountMessagesRange(_Request):
    __api_key__: ClassVar[i16] = i16(COUNT_MESSAGES)
    partition_index: i32 = _of("int32")
    from_offset: i64 = _of("int64")
    to_offset: i64 = _of("int64")


@dataclass(frozen=True, kw_only=True)
class CountMessagesTopic(_Request):
    __api_key__: ClassVar[i16] = i16(COUNT_MESSAGES)
    name: str = _of("string")
    ranges: tuple[CountMessagesRange, ...]


@dataclass(frozen=True, kw_only=True)
class CountMessagesRequest(_Request):
    __api_key__: ClassVar[i16] = i16(COUNT_MESSAGES)
    topics: tuple[CountMessagesTopic, ...]


@dataclass(frozen=True, kw_only=True)
class CountedRange(_Response):
    """One answer a range asked, in the order asked; ``from_offset`` and ``to_offset`` with -2 and -1 resolved."""

    __api_key__: ClassVar[i16] = i16(COUNT_MESSAGES)
    partition_index: i32 = _of("int32")
    error_code: ErrorCode = _of("error_code")
    from_offset: i64 = _of("int64")
    to_offset: i64 = _of("int64")
    messages: i64 = _of("int64")
    bytes: i64 = _of("int64")


@dataclass(frozen=True, kw_only=True)
class CountedTopic(_Response):
    __api_key__: ClassVar[i16] = i16(COUNT_MESSAGES)
    name: str = _of("string")
    ranges: tuple[CountedRange, ...]


@dataclass(frozen=True, kw_only=True)
class CountMessagesResponse(_Response):
    __api_key__: ClassVar[i16] = i16(COUNT_MESSAGES)
    topics: tuple[CountedTopic, ...]


# --- FindMessage: the offset of the message that lies n messages after (or, negative, before) a place ---------------


@dataclass(frozen=True, kw_only=True)
class FindMessagePartition(_Request):
    """``n`` >= 0: the n-th message from ``from_offset`` on (0 is the first). ``n`` < 0: the -n-th before it.

    Beyond the log's ends the answer is clamped: the end offset, or the start offset.
    """

    __api_key__: ClassVar[i16] = i16(FIND_MESSAGE)
    partition_index: i32 = _of("int32")
    from_offset: i64 = _of("int64")
    n: i64 = _of("int64")


@dataclass(frozen=True, kw_only=True)
class FindMessageTopic(_Request):
    __api_key__: ClassVar[i16] = i16(FIND_MESSAGE)
    name: str = _of("string")
    partitions: tuple[FindMessagePartition, ...]


@dataclass(frozen=True, kw_only=True)
class FindMessageRequest(_Request):
    __api_key__: ClassVar[i16] = i16(FIND_MESSAGE)
    topics: tuple[FindMessageTopic, ...]


@dataclass(frozen=True, kw_only=True)
class FoundMessage(_Response):
    __api_key__: ClassVar[i16] = i16(FIND_MESSAGE)
    partition_index: i32 = _of("int32")
    error_code: ErrorCode = _of("error_code")
    offset: i64 = _of("int64")


@dataclass(frozen=True, kw_only=True)
class FoundTopic(_Response):
    __api_key__: ClassVar[i16] = i16(FIND_MESSAGE)
    name: str = _of("string")
    partitions: tuple[FoundMessage, ...]


@dataclass(frozen=True, kw_only=True)
class FindMessageResponse(_Response):
    __api_key__: ClassVar[i16] = i16(FIND_MESSAGE)
    topics: tuple[FoundTopic, ...]


# --- StopBroker: controlled shutdown of the broker that gets the request --------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StopBrokerRequest(_Request):
    """Refused unless ``broker_id`` is the receiver's: a balancer must not stop the wrong one."""

    __api_key__: ClassVar[i16] = i16(STOP_BROKER)
    broker_id: i32 = _of("int32")


@dataclass(frozen=True, kw_only=True)
class StopBrokerResponse(_Response):
    __api_key__: ClassVar[i16] = i16(STOP_BROKER)
    error_code: ErrorCode = _of("error_code")
    error_message: str | None = _of("string")


# --- LocateMessage: where a message lies on the leader's disk -------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LocateMessageRequest(_Request):
    __api_key__: ClassVar[i16] = i16(LOCATE_MESSAGE)
    topic: str = _of("string")
    partition_index: i32 = _of("int32")
    offset: i64 = _of("int64")


@dataclass(frozen=True, kw_only=True)
class LocateMessageResponse(_Response):
    """The batch that holds the offset: its file, where in it, and its state, ``committed`` or ``appended``."""

    __api_key__: ClassVar[i16] = i16(LOCATE_MESSAGE)
    error_code: ErrorCode = _of("error_code")
    broker_id: i32 = _of("int32")
    file: str = _of("string")
    position: i64 = _of("int64")
    length: i32 = _of("int32")
    batch_offset: i64 = _of("int64")
    crc: i64 = _of("int64")
    leader_epoch: i32 = _of("int32")
    messages: i32 = _of("int32")
    state: str = _of("string")


# --- DescribeSelf: who this broker is -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DescribeSelfRequest(_Request):
    __api_key__: ClassVar[i16] = i16(DESCRIBE_SELF)


@dataclass(frozen=True, kw_only=True)
class DescribeSelfResponse(_Response):
    """``incarnation`` is the czxid of the broker's registration, -1 while it has none; ``now_ms`` is its clock."""

    __api_key__: ClassVar[i16] = i16(DESCRIBE_SELF)
    error_code: ErrorCode = _of("error_code")
    broker_id: i32 = _of("int32")
    incarnation: i64 = _of("int64")
    cluster_id: str = _of("string")
    zookeeper: str = _of("string")
    started_at_ms: i64 = _of("int64")
    now_ms: i64 = _of("int64")
    state: str = _of("string")
    version: str = _of("string")
    leaders: i32 = _of("int32")
    replicas: i32 = _of("int32")


# --- ChecksumRanges: what a replica, leading or following, has in ranges of addresses --------------------------------


@dataclass(frozen=True, kw_only=True)
class ChecksumRange(_Request):
    """Addresses [from, to). ``seed`` is the CRC of what came before, so that it goes on from piece to piece."""

    __api_key__: ClassVar[i16] = i16(CHECKSUM_RANGES)
    from_address: i64 = _of("int64")
    to_address: i64 = _of("int64")
    seed: i64 = _of("int64")


@dataclass(frozen=True, kw_only=True)
class ChecksumPartition(_Request):
    """Without ranges only the replica's ends and holes are asked. ``probe_address`` -1: no batch is to be checked."""

    __api_key__: ClassVar[i16] = i16(CHECKSUM_RANGES)
    partition_index: i32 = _of("int32")
    probe_address: i64 = _of("int64")
    ranges: tuple[ChecksumRange, ...]


@dataclass(frozen=True, kw_only=True)
class ChecksumTopic(_Request):
    __api_key__: ClassVar[i16] = i16(CHECKSUM_RANGES)
    name: str = _of("string")
    partitions: tuple[ChecksumPartition, ...]


@dataclass(frozen=True, kw_only=True)
class ChecksumRangesRequest(_Request):
    __api_key__: ClassVar[i16] = i16(CHECKSUM_RANGES)
    topics: tuple[ChecksumTopic, ...]


@dataclass(frozen=True, kw_only=True)
class AddressHole(_Response):
    """Addresses [from, to) between two segments that hold no batch and are recorded as damage (rule L2)."""

    __api_key__: ClassVar[i16] = i16(CHECKSUM_RANGES)
    from_address: i64 = _of("int64")
    to_address: i64 = _of("int64")


@dataclass(frozen=True, kw_only=True)
class ChecksummedRange(_Response):
    """``from_address`` is later than asked where the log starts later by now. ``bytes``: addresses less holes."""

    __api_key__: ClassVar[i16] = i16(CHECKSUM_RANGES)
    from_address: i64 = _of("int64")
    to_address: i64 = _of("int64")
    crc: i64 = _of("int64")
    bytes: i64 = _of("int64")


@dataclass(frozen=True, kw_only=True)
class ChecksummedPartition(_Response):
    """``high_watermark`` is an address: the last one known where the broker neither leads nor follows at the moment.

    ``probe``: whether the batch that has the byte at ``probe_address`` checks: 1 yes, 0 no, -1 not asked.
    """

    __api_key__: ClassVar[i16] = i16(CHECKSUM_RANGES)
    partition_index: i32 = _of("int32")
    error_code: ErrorCode = _of("error_code")
    leads: bool = _of("bool")
    start_address: i64 = _of("int64")
    high_watermark: i64 = _of("int64")
    end_address: i64 = _of("int64")
    probe: i32 = _of("int32")
    holes: tuple[AddressHole, ...]
    ranges: tuple[ChecksummedRange, ...]


@dataclass(frozen=True, kw_only=True)
class ChecksummedTopic(_Response):
    __api_key__: ClassVar[i16] = i16(CHECKSUM_RANGES)
    name: str = _of("string")
    partitions: tuple[ChecksummedPartition, ...]


@dataclass(frozen=True, kw_only=True)
class ChecksumRangesResponse(_Response):
    __api_key__: ClassVar[i16] = i16(CHECKSUM_RANGES)
    error_code: ErrorCode = _of("error_code")
    topics: tuple[ChecksummedTopic, ...]


# --- ListLost, ReadLost: what truncation and recovery have set aside on this broker ----------------------------------


@dataclass(frozen=True, kw_only=True)
class ListLostRequest(_Request):
    """``topics`` None: all."""

    __api_key__: ClassVar[i16] = i16(LIST_LOST)
    topics: tuple[str, ...] | None = _of("string")


@dataclass(frozen=True, kw_only=True)
class LostStretch(_Response):
    """Addresses [from, to) that the log no longer had. ``file``: its name in the partition's folder.

    ``messages`` -1: not known. ``bytes`` are those kept, which may be fewer than were there.
    """

    __api_key__: ClassVar[i16] = i16(LIST_LOST)
    topic: str = _of("string")
    partition_index: i32 = _of("int32")
    from_address: i64 = _of("int64")
    to_address: i64 = _of("int64")
    messages: i64 = _of("int64")
    bytes: i64 = _of("int64")
    reason: str = _of("string")
    time_ms: i64 = _of("int64")
    file: str = _of("string")


@dataclass(frozen=True, kw_only=True)
class ListLostResponse(_Response):
    __api_key__: ClassVar[i16] = i16(LIST_LOST)
    error_code: ErrorCode = _of("error_code")
    broker_id: i32 = _of("int32")
    stretches: tuple[LostStretch, ...]


@dataclass(frozen=True, kw_only=True)
class ReadLostRequest(_Request):
    """``file``: its name, as ListLost tells it; ``position`` counts the bytes kept, from 0."""

    __api_key__: ClassVar[i16] = i16(READ_LOST)
    topic: str = _of("string")
    partition_index: i32 = _of("int32")
    file: str = _of("string")
    position: i64 = _of("int64")
    max_bytes: i32 = _of("int32")


@dataclass(frozen=True, kw_only=True)
class ReadLostResponse(_Response):
    """Empty ``data``: there is no more."""

    __api_key__: ClassVar[i16] = i16(READ_LOST)
    error_code: ErrorCode = _of("error_code")
    data: bytes = _of("bytes")


# --- MessageTimes: when the first message at or after an offset was written -----------------------------------------


@dataclass(frozen=True, kw_only=True)
class MessageTimesPartition(_Request):
    __api_key__: ClassVar[i16] = i16(MESSAGE_TIMES)
    partition_index: i32 = _of("int32")
    offsets: tuple[i64, ...] = _of("int64")


@dataclass(frozen=True, kw_only=True)
class MessageTimesTopic(_Request):
    __api_key__: ClassVar[i16] = i16(MESSAGE_TIMES)
    name: str = _of("string")
    partitions: tuple[MessageTimesPartition, ...]


@dataclass(frozen=True, kw_only=True)
class MessageTimesRequest(_Request):
    __api_key__: ClassVar[i16] = i16(MESSAGE_TIMES)
    topics: tuple[MessageTimesTopic, ...]


@dataclass(frozen=True, kw_only=True)
class TimedPartition(_Response):
    """``timestamps`` in ms, one an offset asked, in order; -1 where no message is that late, or where it has none."""

    __api_key__: ClassVar[i16] = i16(MESSAGE_TIMES)
    partition_index: i32 = _of("int32")
    error_code: ErrorCode = _of("error_code")
    timestamps: tuple[i64, ...] = _of("int64")


@dataclass(frozen=True, kw_only=True)
class TimedTopic(_Response):
    __api_key__: ClassVar[i16] = i16(MESSAGE_TIMES)
    name: str = _of("string")
    partitions: tuple[TimedPartition, ...]


@dataclass(frozen=True, kw_only=True)
class MessageTimesResponse(_Response):
    __api_key__: ClassVar[i16] = i16(MESSAGE_TIMES)
    topics: tuple[TimedTopic, ...]


# --- ProduceAt: an append that is made only where the log ends at the offset that its writer has seen ----------------


@dataclass(frozen=True, kw_only=True)
class ProduceAtPartition(_Request):
    """``expected_end``: the offset of the last record in the leader's log + 1, committed or not.

    ``source``: whose messages these are; where it is not "", what was appended behind the expected end for other
    sources, or by Produce, is not in the way. ``writer`` names who appends, for the next one that finds the end moved.
    ``topic_id`` None: not asked.
    """

    __api_key__: ClassVar[i16] = i16(PRODUCE_AT)
    topic: str = _of("string")
    topic_id: UUID | None = _of("uuid")
    partition_index: i32 = _of("int32")
    leader_epoch: i32 = _of("int32")
    expected_end: i64 = _of("int64")
    source: str = _of("string")
    writer: str = _of("string")
    records: bytes = _of("bytes")


@dataclass(frozen=True, kw_only=True)
class ProduceAtRequest(_Request):
    __api_key__: ClassVar[i16] = i16(PRODUCE_AT)
    timeout_ms: i32 = _of("int32")
    partitions: tuple[ProduceAtPartition, ...]


@dataclass(frozen=True, kw_only=True)
class ProducedAt(_Response):
    """One answer an append, in the order asked: the offsets of its first record, and of its last one + 1.

    With an error ``base_offset`` is -1, ``end_offset`` the log's end as it is now (-1 where this broker does not lead
    it), and ``writer`` whoever appended for this source last under this leader, "" where nobody did.
    """

    __api_key__: ClassVar[i16] = i16(PRODUCE_AT)
    topic: str = _of("string")
    partition_index: i32 = _of("int32")
    error_code: ErrorCode = _of("error_code")
    error_message: str | None = _of("string")
    base_offset: i64 = _of("int64")
    end_offset: i64 = _of("int64")
    writer: str = _of("string")


@dataclass(frozen=True, kw_only=True)
class ProduceAtResponse(_Response):
    __api_key__: ClassVar[i16] = i16(PRODUCE_AT)
    partitions: tuple[ProducedAt, ...]


REQUESTS: dict[int, Any] = {
    COUNT_MESSAGES: CountMessagesRequest,
    FIND_MESSAGE: FindMessageRequest,
    STOP_BROKER: StopBrokerRequest,
    LOCATE_MESSAGE: LocateMessageRequest,
    DESCRIBE_SELF: DescribeSelfRequest,
    CHECKSUM_RANGES: ChecksumRangesRequest,
    LIST_LOST: ListLostRequest,
    READ_LOST: ReadLostRequest,
    PRODUCE_AT: ProduceAtRequest,
    MESSAGE_TIMES: MessageTimesRequest,
}
RESPONSES: dict[int, Any] = {
    COUNT_MESSAGES: CountMessagesResponse,
    FIND_MESSAGE: FindMessageResponse,
    STOP_BROKER: StopBrokerResponse,
    LOCATE_MESSAGE: LocateMessageResponse,
    DESCRIBE_SELF: DescribeSelfResponse,
    CHECKSUM_RANGES: ChecksumRangesResponse,
    LIST_LOST: ListLostResponse,
    READ_LOST: ReadLostResponse,
    PRODUCE_AT: ProduceAtResponse,
    MESSAGE_TIMES: MessageTimesResponse,
}
