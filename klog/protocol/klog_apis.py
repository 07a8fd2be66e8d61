"""klog's own requests, beyond Kafka's protocol: keys from 10000, declared by `klog.protocol.schema`.

A broker lists them in ApiVersions only to clients with the software name ``klog`` (KIP-511): others have no use for
them.

In positions, -2 is the partition's start and -1 its end, as in ListOffsets; a count of -1 is *not known yet*.
"""

from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import f64, i32, i64

from klog.protocol.apis import ApiKey
from klog.protocol.schema import Request, Response, Structure, tagged

SOFTWARE_NAME = "klog"
"""Software name of klog's own tools in ApiVersions."""

# --- CountMessages: how many messages lie in [from, to) of a partition ----------------------------------------------


class CountMessagesRange(Structure):
    partition_index: i32
    from_offset: i64
    to_offset: i64


class CountMessagesTopic(Structure):
    name: str
    ranges: tuple[CountMessagesRange, ...]


class CountMessagesRequest(Request, key=ApiKey.COUNT_MESSAGES):
    topics: tuple[CountMessagesTopic, ...]


class CountedRange(Structure):
    """One per requested range, in order; ``from_offset`` and ``to_offset`` with -2 and -1 resolved."""

    partition_index: i32
    error_code: ErrorCode
    from_offset: i64
    to_offset: i64
    messages: i64
    bytes: i64


class CountedTopic(Structure):
    name: str
    ranges: tuple[CountedRange, ...]


class CountMessagesResponse(Response, key=ApiKey.COUNT_MESSAGES):
    topics: tuple[CountedTopic, ...]


# --- FindMessage: the offset of the message that lies n messages after (or, negative, before) a place ---------------


class FindMessagePartition(Structure):
    """``n`` >= 0: the n-th message from ``from_offset`` on (0 is the first). ``n`` < 0: the -n-th before it.

    Beyond the log's ends the answer is the end offset, or the start offset.
    """

    partition_index: i32
    from_offset: i64
    n: i64


class FindMessageTopic(Structure):
    name: str
    partitions: tuple[FindMessagePartition, ...]


class FindMessageRequest(Request, key=ApiKey.FIND_MESSAGE):
    topics: tuple[FindMessageTopic, ...]


class FoundMessage(Structure):
    partition_index: i32
    error_code: ErrorCode
    offset: i64


class FoundTopic(Structure):
    name: str
    partitions: tuple[FoundMessage, ...]


class FindMessageResponse(Response, key=ApiKey.FIND_MESSAGE):
    topics: tuple[FoundTopic, ...]


# --- StopBroker: controlled shutdown of the broker that gets the request --------------------------------------------


class StopBrokerRequest(Request, key=ApiKey.STOP_BROKER):
    """Refused unless ``broker_id`` is the receiver's: a balancer must not stop the wrong one."""

    broker_id: i32


class StopBrokerResponse(Response, key=ApiKey.STOP_BROKER):
    error_code: ErrorCode
    error_message: str | None


# --- RestartBroker: the same, and the process then serves again -----------------------------------------------------


class RestartBrokerRequest(Request, key=ApiKey.RESTART_BROKER):
    """Refused unless ``broker_id`` is the receiver's."""

    broker_id: i32


class RestartBrokerResponse(Response, key=ApiKey.RESTART_BROKER):
    error_code: ErrorCode
    error_message: str | None


# --- LocateMessage: where a message lies on the leader's disk -------------------------------------------------------


class LocateMessageRequest(Request, key=ApiKey.LOCATE_MESSAGE):
    topic: str
    partition_index: i32
    offset: i64


class LocateMessageResponse(Response, key=ApiKey.LOCATE_MESSAGE):
    """The batch that holds the offset: file, position, and state (``committed`` or ``appended``)."""

    error_code: ErrorCode
    broker_id: i32
    file: str
    position: i64
    length: i32
    batch_offset: i64
    crc: i64
    leader_epoch: i32
    messages: i32
    state: str


# --- DescribeSelf: who this broker is -------------------------------------------------------------------------------


class DescribeSelfRequest(Request, key=ApiKey.DESCRIBE_SELF):
    """No fields."""


class SelfListener(Structure):
    """A listener as advertised. ``ranges``: how ranges of files are sent, ``sendfile`` or ``encrypted``."""

    name: str
    protocol: str
    host: str
    port: i32
    ranges: str


class DescribeSelfResponse(Response, key=ApiKey.DESCRIBE_SELF):
    """``incarnation``: czxid of the broker's registration, -1 without one; ``now_ms``: its clock.

    ``listeners``: none without a registration, nor from a broker before 0.3.
    """

    error_code: ErrorCode
    broker_id: i32
    incarnation: i64
    cluster_id: str
    zookeeper: str
    started_at_ms: i64
    now_ms: i64
    state: str
    version: str
    leaders: i32
    replicas: i32
    listeners: tuple[SelfListener, ...] = tagged(0, ())


# --- ChecksumRanges: what a replica, leading or following, has in ranges of addresses --------------------------------


class ChecksumRange(Structure):
    """Addresses [from, to). ``seed``: CRC of the bytes before, to continue from piece to piece."""

    from_address: i64
    to_address: i64
    seed: i64


class ChecksumPartition(Structure):
    """Without ranges: only the replica's ends and holes. ``probe_address`` -1: no batch is to be checked."""

    partition_index: i32
    probe_address: i64
    ranges: tuple[ChecksumRange, ...]


class ChecksumTopic(Structure):
    name: str
    partitions: tuple[ChecksumPartition, ...]


class ChecksumRangesRequest(Request, key=ApiKey.CHECKSUM_RANGES):
    topics: tuple[ChecksumTopic, ...]


class AddressHole(Structure):
    """Addresses [from, to) between two segments: no batch, recorded as damage (rule L2)."""

    from_address: i64
    to_address: i64


class ChecksummedRange(Structure):
    """``from_address``: later than requested if the log starts later by now. ``bytes``: addresses less holes."""

    from_address: i64
    to_address: i64
    crc: i64
    bytes: i64


class ChecksummedPartition(Structure):
    """``high_watermark``: an address; the last known one if the broker neither leads nor follows at the moment.

    ``probe``: whether the batch around the byte at ``probe_address`` is valid: 1 yes, 0 no, -1 not asked.
    """

    partition_index: i32
    error_code: ErrorCode
    leads: bool
    start_address: i64
    high_watermark: i64
    end_address: i64
    probe: i32
    holes: tuple[AddressHole, ...]
    ranges: tuple[ChecksummedRange, ...]


class ChecksummedTopic(Structure):
    name: str
    partitions: tuple[ChecksummedPartition, ...]


class ChecksumRangesResponse(Response, key=ApiKey.CHECKSUM_RANGES):
    error_code: ErrorCode
    topics: tuple[ChecksummedTopic, ...]


# --- ListLost, ReadLost: what truncation and recovery have set aside on this broker ----------------------------------


class ListLostRequest(Request, key=ApiKey.LIST_LOST):
    """``topics`` None: all."""

    topics: tuple[str, ...] | None


class LostStretch(Structure):
    """Addresses [from, to) that the log no longer has. ``file``: its name in the partition's folder.

    ``messages`` -1: not known. ``bytes``: those kept, which may be fewer than there were.
    """

    topic: str
    partition_index: i32
    from_address: i64
    to_address: i64
    messages: i64
    bytes: i64
    reason: str
    time_ms: i64
    file: str


class ListLostResponse(Response, key=ApiKey.LIST_LOST):
    error_code: ErrorCode
    broker_id: i32
    stretches: tuple[LostStretch, ...]


class ReadLostRequest(Request, key=ApiKey.READ_LOST):
    """``file``: its name from ListLost; ``position``: in the kept bytes, from 0."""

    topic: str
    partition_index: i32
    file: str
    position: i64
    max_bytes: i32


class ReadLostResponse(Response, key=ApiKey.READ_LOST):
    """Empty ``data``: the end."""

    error_code: ErrorCode
    data: bytes


# --- MessageTimes: when the first message at or after an offset was written -----------------------------------------


class MessageTimesPartition(Structure):
    partition_index: i32
    offsets: tuple[i64, ...]


class MessageTimesTopic(Structure):
    name: str
    partitions: tuple[MessageTimesPartition, ...]


class MessageTimesRequest(Request, key=ApiKey.MESSAGE_TIMES):
    topics: tuple[MessageTimesTopic, ...]


class TimedPartition(Structure):
    """``timestamps`` in ms, one per requested offset, in order; -1: no such message, or one without a timestamp."""

    partition_index: i32
    error_code: ErrorCode
    timestamps: tuple[i64, ...]


class TimedTopic(Structure):
    name: str
    partitions: tuple[TimedPartition, ...]


class MessageTimesResponse(Response, key=ApiKey.MESSAGE_TIMES):
    topics: tuple[TimedTopic, ...]


# --- ProduceAt: an append that is made only where the log ends at the offset that its writer has seen ----------------


class ProduceAtPartition(Structure):
    """``expected_end``: the offset of the last record in the leader's log + 1, committed or not.

    ``source``: where these messages are copied from; unless it is "", appends behind the expected end for other
    sources, or by Produce, do not matter. ``writer`` identifies the copier, for the next one that finds the end moved.
    ``topic_id`` None: not checked.
    """

    topic: str
    topic_id: UUID | None
    partition_index: i32
    leader_epoch: i32
    expected_end: i64
    source: str
    writer: str
    records: bytes


class ProduceAtRequest(Request, key=ApiKey.PRODUCE_AT):
    timeout_ms: i32
    partitions: tuple[ProduceAtPartition, ...]


class ProducedAt(Structure):
    """One per append, in order: the offset of its first record, and of its last one + 1.

    With an error ``base_offset`` is -1, ``end_offset`` the current log end (-1 if this broker does not lead the
    partition), and ``writer`` that of the last append for this source under this leader, "" without one.
    """

    topic: str
    partition_index: i32
    error_code: ErrorCode
    error_message: str | None
    base_offset: i64
    end_offset: i64
    writer: str


class ProduceAtResponse(Response, key=ApiKey.PRODUCE_AT):
    partitions: tuple[ProducedAt, ...]


# --- ReadMetrics: a broker's metrics, page by page ------------------------------------------------------------------


class ReadMetricsRequest(Request, key=ApiKey.READ_METRICS):
    """``patterns``: globs, of which a metric's name must match one; (): all.

    ``after_name`` and ``after_labels``: the end of the page before; "" and () at the beginning.
    """

    patterns: tuple[str, ...]
    after_name: str
    after_labels: tuple[str, ...]


class MetricLabel(Structure):
    name: str
    value: str


class MetricSample(Structure):
    """A number, as in a scrape by Prometheus. ``kind``: counter, gauge or summary."""

    name: str
    kind: str
    labels: tuple[MetricLabel, ...]
    value: f64


class ReadMetricsResponse(Response, key=ApiKey.READ_METRICS):
    """``next_name`` and ``next_labels``: the next request's ``after_name`` and ``after_labels``; None at the end."""

    error_code: ErrorCode
    broker_id: i32
    now_ms: i64
    samples: tuple[MetricSample, ...]
    next_name: str | None
    next_labels: tuple[str, ...]


# --- ReadHistory: what a broker remembers of itself ------------------------------------------------------------------


class ReadHistoryRequest(Request, key=ApiKey.READ_HISTORY):
    since_ms: i64


class HistoryPoint(Structure):
    """``values``: of the time up to ``time_ms``, in the order of ``names``."""

    time_ms: i64
    values: tuple[f64, ...]


class ReadHistoryResponse(Response, key=ApiKey.READ_HISTORY):
    """The points are ``every_ms`` apart; the last one has the time since the one before it."""

    error_code: ErrorCode
    broker_id: i32
    now_ms: i64
    every_ms: i32
    names: tuple[str, ...]
    points: tuple[HistoryPoint, ...]


# --- ReadLagHistory: what the lag of groups is made of ---------------------------------------------------------------


class ReadLagHistoryRequest(Request, key=ApiKey.READ_LAG_HISTORY):
    """No fields."""


class OffsetCurve(Structure):
    """``number``: its id in minutes. ``base``: the offset at the beginning, -1: unknown. ``group``: empty where the
    offset is a log end."""

    number: i32
    group: str
    topic: str
    partition_index: i32
    base: i64


class OffsetMinute(Structure):
    """Offsets that had changed by ``time_ms``, by their curves; -1: unknown from here on."""

    time_ms: i64
    curves: tuple[i32, ...]
    offsets: tuple[i64, ...]


class ReadLagHistoryResponse(Response, key=ApiKey.READ_LAG_HISTORY):
    """``ends``: log ends of the partitions that this broker leads. ``commits``: commits of the groups that it
    coordinates. Both have the beginning. ``is_full``: there are more than it keeps. The last minute is not over yet."""

    error_code: ErrorCode
    broker_id: i32
    now_ms: i64
    is_full: bool
    end_since_ms: i64
    end_curves: tuple[OffsetCurve, ...]
    end_minutes: tuple[OffsetMinute, ...]
    commit_since_ms: i64
    commit_curves: tuple[OffsetCurve, ...]
    commit_minutes: tuple[OffsetMinute, ...]


# --- ElectReplicas: in-sync replicas of one's choice become leaders ---------------------------------------------------


class ChosenReplica(Structure):
    topic: str
    partition_index: i32
    broker_id: i32


class ElectReplicasRequest(Request, key=ApiKey.ELECT_REPLICAS):
    """Each replica must be in sync and alive."""

    replicas: tuple[ChosenReplica, ...]


class PartitionOutcome(Structure):
    topic: str
    partition_index: i32
    error_code: ErrorCode
    error_message: str | None


class ElectReplicasResponse(Response, key=ApiKey.ELECT_REPLICAS):
    error_code: ErrorCode
    error_message: str | None
    outcomes: tuple[PartitionOutcome, ...]


# --- DescribeTrash: the logs of deleted topics on a broker's disks ---------------------------------------------------


class DescribeTrashRequest(Request, key=ApiKey.DESCRIBE_TRASH):
    topic_ids: tuple[UUID, ...]


class TrashedLog(Structure):
    """``messages``: -1 while they are not counted."""

    topic: str
    partition_index: i32
    topic_id: UUID | None
    end_address: i64
    messages: i64
    bytes: i64


class DescribeTrashResponse(Response, key=ApiKey.DESCRIBE_TRASH):
    error_code: ErrorCode
    broker_id: i32
    logs: tuple[TrashedLog, ...]


# --- RestoreTopic: a deleted topic exists again ----------------------------------------------------------------------


class RestoreTopicRequest(Request, key=ApiKey.RESTORE_TOPIC):
    topic_id: UUID | None


class RestoreTopicResponse(Response, key=ApiKey.RESTORE_TOPIC):
    error_code: ErrorCode
    error_message: str | None


# --- PurgeTopic: a deleted topic is deleted for good ------------------------------------------------------------------


class PurgeTopicRequest(Request, key=ApiKey.PURGE_TOPIC):
    topic_id: UUID | None


class PurgeTopicResponse(Response, key=ApiKey.PURGE_TOPIC):
    error_code: ErrorCode
    error_message: str | None


# --- DescribeMembers: when the members of a group sent their last heartbeats ------------------------------------------


class DescribeMembersRequest(Request, key=ApiKey.DESCRIBE_MEMBERS):
    group: str


class MemberHeartbeat(Structure):
    """``heartbeat_ms``: time since then; -1 while the member waits for a rebalance, when it sends none."""

    member_id: str
    heartbeat_ms: i64


class DescribeMembersResponse(Response, key=ApiKey.DESCRIBE_MEMBERS):
    error_code: ErrorCode
    error_message: str | None
    members: tuple[MemberHeartbeat, ...]


# --- DescribeClients: who is connected to a broker, and what for ------------------------------------------------------


class DescribeClientsRequest(Request, key=ApiKey.DESCRIBE_CLIENTS):
    """No fields."""


class ConnectedClient(Structure):
    """``address``: host and port. ``software``: name and version (KIP-511), or "". ``reads``: topics of its last Fetch.
    ``writes``: topic of its last Produce. ``idle_ms``: time since it last sent or took bytes."""

    address: str
    listener: str
    principal: str
    client_id: str | None
    software: str
    reads: tuple[str, ...]
    writes: str | None
    idle_ms: i64


class DescribeClientsResponse(Response, key=ApiKey.DESCRIBE_CLIENTS):
    """``left_out``: connections for which the answer has no room. Other brokers are not among them."""

    error_code: ErrorCode
    clients: tuple[ConnectedClient, ...]
    left_out: i64


# --- CheckPermission: whether a principal may do something, and which rule decides; the numbers are Kafka's -----------


class CheckPermissionRequest(Request, key=ApiKey.CHECK_PERMISSION):
    """``principal``: ``User:alice``; ``host``: its address. ``*``: ACLs on hosts do not count."""

    principal: str
    host: str
    operation: i32
    resource_type: i32
    resource_name: str


class CheckPermissionResponse(Response, key=ApiKey.CHECK_PERMISSION):
    """``rule``: what decides: an ACL, ``super.users``, ``allow.everyone.if.no.acl.found``, or that no ACL allows it."""

    error_code: ErrorCode
    error_message: str | None
    is_allowed: bool
    rule: str
