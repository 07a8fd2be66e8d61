"""Requests among brokers, with klog's own keys from 10010 on, declared by `klog.protocol.schema`.

    LeaderAndIsr        controller -> broker    leader and ISR of each of the broker's replicas
    StopReplica         controller -> broker    stop following; with ``delete``, delete the log
    UpdateMetadata      controller -> broker    what Metadata is answered from
    DescribeReplicas    controller -> broker    the logs on the broker's disks (rule R1)
    ControlledShutdown  broker -> controller    elect other leaders, this broker is leaving
    ReportIsr           leader -> controller    ISRs changed in ZooKeeper, for the other brokers
    ReportOffline       broker -> controller    replicas lost with their disk (rule L5)
    ReplicaFetch        follower -> leader      written by hand: `klog.protocol.replica_fetch`

The names are Kafka's. A request of the controller has its epoch, and the incarnation of the addressed broker: the czxid
of its registration. One of an earlier controller, or for an earlier incarnation, is refused.
"""

from typing import Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i64

from klog.protocol.apis import ApiKey
from klog.protocol.schema import Request, Structure, request, response, tagged

# --- LeaderAndIsr ---------------------------------------------------------------------------------------------------


class LeaderAndIsrPartition(Structure):
    """A partition's state in ZooKeeper. ``incarnations`` are those of ``isr``, in its order.

    ``leader``: -1 for none. ``state_version``: version of the state's node. ``is_new``: never held a message; only then
    may its leader create an empty log, and then clears the mark (rule R1). ``unclean_epoch``: leader epoch of the last
    unclean election, -1 without; older batches are kept in files when they are truncated.
    """

    partition_index: i32
    controller_epoch: i32
    leader: i32
    leader_epoch: i32
    isr: tuple[i32, ...]
    incarnations: tuple[i64, ...]
    state_version: i32
    replicas: tuple[i32, ...]
    is_new: bool
    unclean_epoch: i32


class LeaderAndIsrTopic(Structure):
    name: str
    topic_id: UUID | None
    fence_version: i32
    """Version of ``/klog/topic_epochs/<name>``, which fences a leader's ISR change (rule Z1)."""
    partitions: tuple[LeaderAndIsrPartition, ...]


class LeaderAndIsrRequest(Request, key=ApiKey.LEADER_AND_ISR):
    """``is_full``: these are all of the broker's replicas; it leads and follows no others."""

    controller_id: i32
    controller_epoch: i32
    incarnation: i64
    is_full: bool
    topics: tuple[LeaderAndIsrTopic, ...]


_FAILED: Final = [{"topic": str, "partition_index": i32, "error_code": ErrorCode}]
response(ApiKey.LEADER_AND_ISR, "``failed``: only the replicas that failed.", error_code=ErrorCode, failed=_FAILED)

# --- StopReplica ----------------------------------------------------------------------------------------------------

DELETED_TOPIC_EPOCH = -2
"""KIP-570: a replica of a topic that is being deleted stops, whatever its epoch."""


class StopReplicaPartition(Structure):
    """``leader_epoch``: refused by a replica in a later one; -2 when the topic is being deleted (KIP-570)."""

    partition_index: i32
    leader_epoch: i32
    delete: bool


class StopReplicaTopic(Structure):
    name: str
    topic_id: UUID | None
    partitions: tuple[StopReplicaPartition, ...]


class StopReplicaRequest(Request, key=ApiKey.STOP_REPLICA):
    controller_id: i32
    controller_epoch: i32
    incarnation: i64
    topics: tuple[StopReplicaTopic, ...]


response(ApiKey.STOP_REPLICA, error_code=ErrorCode, failed=_FAILED)

# --- UpdateMetadata -------------------------------------------------------------------------------------------------


class MetadataPartition(Structure):
    partition_index: i32
    leader: i32
    leader_epoch: i32
    isr: tuple[i32, ...]
    replicas: tuple[i32, ...]
    offline: tuple[i32, ...]
    """Replicas whose broker is dead or whose disk is offline."""
    adding: tuple[i32, ...]
    removing: tuple[i32, ...]
    throttle: i64
    """Bytes per second that a broker may fetch for the partitions that it is being added to; 0: no limit."""


class MetadataSetting(Structure):
    name: str
    value: str


class MetadataTopic(Structure):
    """These partitions replace known ones; the others stay. ``settings``: all of the topic's overrides."""

    name: str
    topic_id: UUID | None
    is_deleted: bool
    settings: tuple[MetadataSetting, ...]
    partitions: tuple[MetadataPartition, ...]


class MetadataEndpoint(Structure):
    """A broker's address on one listener."""

    listener: str
    host: str
    port: i32


class MetadataBroker(Structure):
    """A live broker: its address for clients that know one only, its address for brokers, and all endpoints."""

    broker_id: i32
    host: str
    port: i32
    rack: str | None
    incarnation: i64
    inter_host: str
    inter_port: i32
    endpoints: tuple[MetadataEndpoint, ...] = tagged(0, ())


class GroupSlot(Structure):
    """The coordinator of a slot's groups, as in ZooKeeper (rule G1); ``version``: that of the node."""

    slot: i32
    broker_id: i32
    incarnation: i64
    term: i32
    version: i32


request(
    ApiKey.UPDATE_METADATA,
    """``brokers``: always all live ones. ``is_full``: ``topics`` is complete, too.

    ``slots``: all of them if one has changed or ``is_full``, else none, and the known ones stay.
    """,
    controller_id=i32,
    controller_epoch=i32,
    incarnation=i64,
    is_full=bool,
    brokers=[MetadataBroker],
    topics=[MetadataTopic],
    slots=[GroupSlot],
)
response(ApiKey.UPDATE_METADATA, error_code=ErrorCode)

# --- DescribeReplicas -----------------------------------------------------------------------------------------------


class ReplicaFacts(Structure):
    """A log on the broker's disks. ``end_address``: its log end.

    ``is_whole``: it lacks nothing below the high watermark in its own checkpoint, and has no damage there.
    ``was_safe``: the broker's last shutdown was clean, or it flushes this topic's every append. ``is_online``: its log
    dir serves.
    """

    topic: str
    partition_index: i32
    topic_id: UUID | None
    last_epoch: i32
    end_address: i64
    is_whole: bool
    was_safe: bool
    is_online: bool


request(ApiKey.DESCRIBE_REPLICAS, controller_epoch=i32, incarnation=i64)
response(ApiKey.DESCRIBE_REPLICAS, error_code=ErrorCode, replicas=[ReplicaFacts])

# --- ControlledShutdown, ReportIsr, ReportOffline -------------------------------------------------------------------

_TOPICS: Final = [{"name": str, "partitions": [i32]}]
request(ApiKey.CONTROLLED_SHUTDOWN, broker_id=i32, incarnation=i64)
response(
    ApiKey.CONTROLLED_SHUTDOWN,
    "``remaining``: partitions that the broker still leads, because no other replica may.",
    error_code=ErrorCode,
    remaining=i32,
)
request(ApiKey.REPORT_ISR, broker_id=i32, incarnation=i64, topics=_TOPICS)
response(ApiKey.REPORT_ISR, error_code=ErrorCode)
request(
    ApiKey.REPORT_OFFLINE,
    "``may_follow``: give up leadership only (a flush is overdue, rule R4); the replica goes on as a follower.",
    broker_id=i32,
    incarnation=i64,
    may_follow=bool,
    topics=_TOPICS,
)
response(ApiKey.REPORT_OFFLINE, error_code=ErrorCode)
