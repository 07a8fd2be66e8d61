"""What brokers say to one another, in klog's own keys from 10010: version 0, flexible, in the style of `own`.

    LeaderAndIsr        controller -> broker    who leads each of the broker's replicas, and who follows
    StopReplica         controller -> broker    follow no more; with ``delete``, the log goes too
    UpdateMetadata      controller -> broker    what Metadata is answered from
    DescribeReplicas    controller -> broker    what the broker has on its disks (rule R1)
    ControlledShutdown  broker -> controller    lead elsewhere, I am going
    ReportIsr           leader -> controller    these states I have changed in ZooKeeper: tell the others
    ReportOffline       broker -> controller    these replicas of mine are lost with their disk (rule L5)

The names are Kafka's. A request of the controller names its epoch, and the incarnation of the broker it is meant for:
the czxid of its registration. One of an earlier controller, or for an earlier incarnation, is refused.
Annotations are evaluated here on purpose: kio reads the types of the fields.
"""

from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import i16, i32, i64

from klog.protocol.own import _of, _Request, _Response

LEADER_AND_ISR = 10010
STOP_REPLICA = 10011
UPDATE_METADATA = 10012
DESCRIBE_REPLICAS = 10013
CONTROLLED_SHUTDOWN = 10014
REPORT_ISR = 10015
REPORT_OFFLINE = 10016
REPLICA_FETCH = 10017
"""Written by hand: `klog.protocol.replica_fetch`."""


# --- LeaderAndIsr ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LeaderAndIsrPartition(_Request):
    """A partition's state as it stands in ZooKeeper. ``incarnations`` are those of ``isr``, in its order.

    ``leader`` is -1 where nobody leads. ``state_version`` is the version of the state's node. ``is_new``: it has never
    held a message; only then may the log be created empty by its leader, who then clears the mark (rule R1).
    ``unclean_epoch``: the leader epoch of the last unclean election, -1 without; what is older is kept when it is cut.
    """

    __api_key__: ClassVar[i16] = i16(LEADER_AND_ISR)
    partition_index: i32 = _of("int32")
    controller_epoch: i32 = _of("int32")
    leader: i32 = _of("int32")
    leader_epoch: i32 = _of("int32")
    isr: tuple[i32, ...] = _of("int32")
    incarnations: tuple[i64, ...] = _of("int64")
    state_version: i32 = _of("int32")
    replicas: tuple[i32, ...] = _of("int32")
    is_new: bool = _of("bool")
    unclean_epoch: i32 = _of("int32")


@dataclass(frozen=True, kw_only=True)
class LeaderAndIsrTopic(_Request):
    __api_key__: ClassVar[i16] = i16(LEADER_AND_ISR)
    name: str = _of("string")
    topic_id: UUID | None = _of("uuid")
    fence_version: i32 = _of("int32")
    """Of ``/klog/topic_epochs/<name>``: what a leader's ISR change is fenced by (rule Z1)."""
    partitions: tuple[LeaderAndIsrPartition, ...]


@dataclass(frozen=True, kw_only=True)
class LeaderAndIsrRequest(_Request):
    """``is_full``: these are all the replicas the broker has; it follows and leads nothing else."""

    __api_key__: ClassVar[i16] = i16(LEADER_AND_ISR)
    controller_id: i32 = _of("int32")
    controller_epoch: i32 = _of("int32")
    incarnation: i64 = _of("int64")
    is_full: bool = _of("bool")
    topics: tuple[LeaderAndIsrTopic, ...]


@dataclass(frozen=True, kw_only=True)
class ReplicaOutcome(_Response):
    __api_key__: ClassVar[i16] = i16(LEADER_AND_ISR)
    topic: str = _of("string")
    partition_index: i32 = _of("int32")
    error_code: ErrorCode = _of("error_code")


@dataclass(frozen=True, kw_only=True)
class LeaderAndIsrResponse(_Response):
    """``failed`` names only the replicas that could not do what was asked."""

    __api_key__: ClassVar[i16] = i16(LEADER_AND_ISR)
    error_code: ErrorCode = _of("error_code")
    failed: tuple[ReplicaOutcome, ...]


# --- StopReplica ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class StopReplicaPartition(_Request):
    """``leader_epoch``: refused where the replica is in a later one; -2 when the topic is being deleted (KIP-570)."""

    __api_key__: ClassVar[i16] = i16(STOP_REPLICA)
    partition_index: i32 = _of("int32")
    leader_epoch: i32 = _of("int32")
    delete: bool = _of("bool")


@dataclass(frozen=True, kw_only=True)
class StopReplicaTopic(_Request):
    __api_key__: ClassVar[i16] = i16(STOP_REPLICA)
    name: str = _of("string")
    topic_id: UUID | None = _of("uuid")
    partitions: tuple[StopReplicaPartition, ...]


@dataclass(frozen=True, kw_only=True)
class StopReplicaRequest(_Request):
    __api_key__: ClassVar[i16] = i16(STOP_REPLICA)
    controller_id: i32 = _of("int32")
    controller_epoch: i32 = _of("int32")
    incarnation: i64 = _of("int64")
    topics: tuple[StopReplicaTopic, ...]


@dataclass(frozen=True, kw_only=True)
class StopOutcome(_Response):
    __api_key__: ClassVar[i16] = i16(STOP_REPLICA)
    topic: str = _of("string")
    partition_index: i32 = _of("int32")
    error_code: ErrorCode = _of("error_code")


@dataclass(frozen=True, kw_only=True)
class StopReplicaResponse(_Response):
    __api_key__: ClassVar[i16] = i16(STOP_REPLICA)
    error_code: ErrorCode = _of("error_code")
    failed: tuple[StopOutcome, ...]


# --- UpdateMetadata -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class MetadataPartition(_Request):
    __api_key__: ClassVar[i16] = i16(UPDATE_METADATA)
    partition_index: i32 = _of("int32")
    leader: i32 = _of("int32")
    leader_epoch: i32 = _of("int32")
    isr: tuple[i32, ...] = _of("int32")
    replicas: tuple[i32, ...] = _of("int32")
    offline: tuple[i32, ...] = _of("int32")
    """Replicas whose broker is not alive, or whose disk is lost."""
    adding: tuple[i32, ...] = _of("int32")
    removing: tuple[i32, ...] = _of("int32")
    throttle: i64 = _of("int64")
    """Bytes a second that a broker may take in for the partitions it is being added to; 0 without."""


@dataclass(frozen=True, kw_only=True)
class MetadataSetting(_Request):
    __api_key__: ClassVar[i16] = i16(UPDATE_METADATA)
    name: str = _of("string")
    value: str = _of("string")


@dataclass(frozen=True, kw_only=True)
class MetadataTopic(_Request):
    """The partitions named replace those known; the others stay. ``settings`` is all that the topic overrides."""

    __api_key__: ClassVar[i16] = i16(UPDATE_METADATA)
    name: str = _of("string")
    topic_id: UUID | None = _of("uuid")
    is_deleted: bool = _of("bool")
    settings: tuple[MetadataSetting, ...]
    partitions: tuple[MetadataPartition, ...]


@dataclass(frozen=True, kw_only=True)
class MetadataBroker(_Request):
    """A live broker: where clients reach it, and where brokers do."""

    __api_key__: ClassVar[i16] = i16(UPDATE_METADATA)
    broker_id: i32 = _of("int32")
    host: str = _of("string")
    port: i32 = _of("int32")
    rack: str | None = _of("string")
    incarnation: i64 = _of("int64")
    inter_host: str = _of("string")
    inter_port: i32 = _of("int32")


@dataclass(frozen=True, kw_only=True)
class GroupSlot(_Request):
    """Who coordinates the groups of a slot, as it stands in ZooKeeper (rule G1); ``version`` is that of the node."""

    __api_key__: ClassVar[i16] = i16(UPDATE_METADATA)
    slot: i32 = _of("int32")
    broker_id: i32 = _of("int32")
    incarnation: i64 = _of("int64")
    term: i32 = _of("int32")
    version: i32 = _of("int32")


@dataclass(frozen=True, kw_only=True)
class UpdateMetadataRequest(_Request):
    """``brokers`` is always all that live. ``is_full``: ``topics`` too is all there is.

    ``slots``: all of them where one has changed or ``is_full``, else none, and then what is known stays.
    """

    __api_key__: ClassVar[i16] = i16(UPDATE_METADATA)
    controller_id: i32 = _of("int32")
    controller_epoch: i32 = _of("int32")
    incarnation: i64 = _of("int64")
    is_full: bool = _of("bool")
    brokers: tuple[MetadataBroker, ...]
    topics: tuple[MetadataTopic, ...]
    slots: tuple[GroupSlot, ...]


@dataclass(frozen=True, kw_only=True)
class UpdateMetadataResponse(_Response):
    __api_key__: ClassVar[i16] = i16(UPDATE_METADATA)
    error_code: ErrorCode = _of("error_code")


# --- DescribeReplicas -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DescribeReplicasRequest(_Request):
    __api_key__: ClassVar[i16] = i16(DESCRIBE_REPLICAS)
    controller_epoch: i32 = _of("int32")
    incarnation: i64 = _of("int64")


@dataclass(frozen=True, kw_only=True)
class ReplicaFacts(_Response):
    """A log on the broker's disks. ``end_address`` is its log end.

    ``is_whole``: it lacks nothing below the high watermark that its own checkpoint names, and is not damaged there.
    ``was_safe``: the broker stopped cleanly before, or flushes this topic's every append.
    ``is_online``: its log dir serves.
    """

    __api_key__: ClassVar[i16] = i16(DESCRIBE_REPLICAS)
    topic: str = _of("string")
    partition_index: i32 = _of("int32")
    topic_id: UUID | None = _of("uuid")
    last_epoch: i32 = _of("int32")
    end_address: i64 = _of("int64")
    is_whole: bool = _of("bool")
    was_safe: bool = _of("bool")
    is_online: bool = _of("bool")


@dataclass(frozen=True, kw_only=True)
class DescribeReplicasResponse(_Response):
    __api_key__: ClassVar[i16] = i16(DESCRIBE_REPLICAS)
    error_code: ErrorCode = _of("error_code")
    replicas: tuple[ReplicaFacts, ...]


# --- ControlledShutdown ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ControlledShutdownRequest(_Request):
    __api_key__: ClassVar[i16] = i16(CONTROLLED_SHUTDOWN)
    broker_id: i32 = _of("int32")
    incarnation: i64 = _of("int64")


@dataclass(frozen=True, kw_only=True)
class ControlledShutdownResponse(_Response):
    """``remaining``: partitions that the broker still leads, since nobody else may."""

    __api_key__: ClassVar[i16] = i16(CONTROLLED_SHUTDOWN)
    error_code: ErrorCode = _of("error_code")
    remaining: i32 = _of("int32")


# --- ReportIsr, ReportOffline ---------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ReportedTopic(_Request):
    __api_key__: ClassVar[i16] = i16(REPORT_ISR)
    name: str = _of("string")
    partitions: tuple[i32, ...] = _of("int32")


@dataclass(frozen=True, kw_only=True)
class ReportIsrRequest(_Request):
    __api_key__: ClassVar[i16] = i16(REPORT_ISR)
    broker_id: i32 = _of("int32")
    incarnation: i64 = _of("int64")
    topics: tuple[ReportedTopic, ...]


@dataclass(frozen=True, kw_only=True)
class ReportIsrResponse(_Response):
    __api_key__: ClassVar[i16] = i16(REPORT_ISR)
    error_code: ErrorCode = _of("error_code")


@dataclass(frozen=True, kw_only=True)
class OfflineTopic(_Request):
    __api_key__: ClassVar[i16] = i16(REPORT_OFFLINE)
    name: str = _of("string")
    partitions: tuple[i32, ...] = _of("int32")


@dataclass(frozen=True, kw_only=True)
class ReportOfflineRequest(_Request):
    """``may_follow``: only leadership is given up (a flush is overdue, rule R4), the replica goes on."""

    __api_key__: ClassVar[i16] = i16(REPORT_OFFLINE)
    broker_id: i32 = _of("int32")
    incarnation: i64 = _of("int64")
    may_follow: bool = _of("bool")
    topics: tuple[OfflineTopic, ...]


@dataclass(frozen=True, kw_only=True)
class ReportOfflineResponse(_Response):
    __api_key__: ClassVar[i16] = i16(REPORT_OFFLINE)
    error_code: ErrorCode = _of("error_code")


REQUESTS: dict[int, Any] = {
    LEADER_AND_ISR: LeaderAndIsrRequest,
    STOP_REPLICA: StopReplicaRequest,
    UPDATE_METADATA: UpdateMetadataRequest,
    DESCRIBE_REPLICAS: DescribeReplicasRequest,
    CONTROLLED_SHUTDOWN: ControlledShutdownRequest,
    REPORT_ISR: ReportIsrRequest,
    REPORT_OFFLINE: ReportOfflineRequest,
}
RESPONSES: dict[int, Any] = {
    LEADER_AND_ISR: LeaderAndIsrResponse,
    STOP_REPLICA: StopReplicaResponse,
    UPDATE_METADATA: UpdateMetadataResponse,
    DESCRIBE_REPLICAS: DescribeReplicasResponse,
    CONTROLLED_SHUTDOWN: ControlledShutdownResponse,
    REPORT_ISR: ReportIsrResponse,
    REPORT_OFFLINE: ReportOfflineResponse,
}
