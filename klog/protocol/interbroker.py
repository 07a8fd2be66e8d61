"""What brokers say to one another, in klog's own keys from 10010, declared by `klog.protocol.schema`.

    LeaderAndIsr        controller -> broker    who leads each of the broker's replicas, and who follows
    StopReplica         controller -> broker    follow no more; with ``delete``, the log goes too
    UpdateMetadata      controller -> broker    what Metadata is answered from
    DescribeReplicas    controller -> broker    what the broker has on its disks (rule R1)
    ControlledShutdown  broker -> controller    lead elsewhere, I am going
    ReportIsr           leader -> controller    these states I have changed in ZooKeeper: tell the others
    ReportOffline       broker -> controller    these replicas of mine are lost with their disk (rule L5)
    ReplicaFetch        follower -> leader      written by hand: `klog.protocol.replica_fetch`

The names are Kafka's. A request of the controller names its epoch, and the incarnation of the broker it is meant for:
the czxid of its registration. One of an earlier controller, or for an earlier incarnation, is refused.
"""

from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i64

from klog.protocol.apis import ApiKey
from klog.protocol.schema import Request, Response, Structure, tagged

# --- LeaderAndIsr ---------------------------------------------------------------------------------------------------


class LeaderAndIsrPartition(Structure):
    """A partition's state in ZooKeeper. ``incarnations`` are those of ``isr``, in its order.

    ``leader`` is -1 if there is none. ``state_version`` is the version of the state's node. ``is_new``: it has never
    held a message; only then may the log be created empty by its leader, who then clears the mark (rule R1).
    ``unclean_epoch``: the leader epoch of the last unclean election, -1 without; what is older is kept when it is cut.
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
    """Of ``/klog/topic_epochs/<name>``: what a leader's ISR change is fenced by (rule Z1)."""
    partitions: tuple[LeaderAndIsrPartition, ...]


class LeaderAndIsrRequest(Request, key=ApiKey.LEADER_AND_ISR):
    """``is_full``: these are all the replicas the broker has; it follows and leads nothing else."""

    controller_id: i32
    controller_epoch: i32
    incarnation: i64
    is_full: bool
    topics: tuple[LeaderAndIsrTopic, ...]


class ReplicaOutcome(Structure):
    topic: str
    partition_index: i32
    error_code: ErrorCode


class LeaderAndIsrResponse(Response, key=ApiKey.LEADER_AND_ISR):
    """``failed`` names only the replicas that could not do what was asked."""

    error_code: ErrorCode
    failed: tuple[ReplicaOutcome, ...]


# --- StopReplica ----------------------------------------------------------------------------------------------------


class StopReplicaPartition(Structure):
    """``leader_epoch``: refused where the replica is in a later one; -2 when the topic is being deleted (KIP-570)."""

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


class StopReplicaResponse(Response, key=ApiKey.STOP_REPLICA):
    error_code: ErrorCode
    failed: tuple[ReplicaOutcome, ...]


# --- UpdateMetadata -------------------------------------------------------------------------------------------------


class MetadataPartition(Structure):
    partition_index: i32
    leader: i32
    leader_epoch: i32
    isr: tuple[i32, ...]
    replicas: tuple[i32, ...]
    offline: tuple[i32, ...]
    """Replicas whose broker is not alive, or whose disk is lost."""
    adding: tuple[i32, ...]
    removing: tuple[i32, ...]
    throttle: i64
    """Bytes a second that a broker may take in for the partitions it is being added to; 0 without."""


class MetadataSetting(Structure):
    name: str
    value: str


class MetadataTopic(Structure):
    """The partitions named replace those known; the others stay. ``settings`` is all that the topic overrides."""

    name: str
    topic_id: UUID | None
    is_deleted: bool
    settings: tuple[MetadataSetting, ...]
    partitions: tuple[MetadataPartition, ...]


class MetadataEndpoint(Structure):
    """Where clients of one listener reach a broker."""

    listener: str
    host: str
    port: i32


class MetadataBroker(Structure):
    """A live broker: where clients reach it that know of one address, where brokers do, and all its endpoints."""

    broker_id: i32
    host: str
    port: i32
    rack: str | None
    incarnation: i64
    inter_host: str
    inter_port: i32
    endpoints: tuple[MetadataEndpoint, ...] = tagged(0, ())


class GroupSlot(Structure):
    """Who coordinates the groups of a slot, as ZooKeeper has it (rule G1); ``version`` is that of the node."""

    slot: i32
    broker_id: i32
    incarnation: i64
    term: i32
    version: i32


class UpdateMetadataRequest(Request, key=ApiKey.UPDATE_METADATA):
    """``brokers`` is always all that live. ``is_full``: ``topics`` too is all there is.

    ``slots``: all of them where one has changed or ``is_full``, else none, and then what is known stays.
    """

    controller_id: i32
    controller_epoch: i32
    incarnation: i64
    is_full: bool
    brokers: tuple[MetadataBroker, ...]
    topics: tuple[MetadataTopic, ...]
    slots: tuple[GroupSlot, ...]


class UpdateMetadataResponse(Response, key=ApiKey.UPDATE_METADATA):
    error_code: ErrorCode


# --- DescribeReplicas -----------------------------------------------------------------------------------------------


class DescribeReplicasRequest(Request, key=ApiKey.DESCRIBE_REPLICAS):
    controller_epoch: i32
    incarnation: i64


class ReplicaFacts(Structure):
    """A log on the broker's disks. ``end_address`` is its log end.

    ``is_whole``: it lacks nothing below the high watermark that its own checkpoint names, and is not damaged there.
    ``was_safe``: the broker stopped cleanly before, or flushes this topic's every append.
    ``is_online``: its log dir serves.
    """

    topic: str
    partition_index: i32
    topic_id: UUID | None
    last_epoch: i32
    end_address: i64
    is_whole: bool
    was_safe: bool
    is_online: bool


class DescribeReplicasResponse(Response, key=ApiKey.DESCRIBE_REPLICAS):
    error_code: ErrorCode
    replicas: tuple[ReplicaFacts, ...]


# --- ControlledShutdown ---------------------------------------------------------------------------------------------


class ControlledShutdownRequest(Request, key=ApiKey.CONTROLLED_SHUTDOWN):
    broker_id: i32
    incarnation: i64


class ControlledShutdownResponse(Response, key=ApiKey.CONTROLLED_SHUTDOWN):
    """``remaining``: partitions that the broker still leads, because no other replica may."""

    error_code: ErrorCode
    remaining: i32


# --- ReportIsr, ReportOffline ---------------------------------------------------------------------------------------


class ReportedTopic(Structure):
    name: str
    partitions: tuple[i32, ...]


class ReportIsrRequest(Request, key=ApiKey.REPORT_ISR):
    broker_id: i32
    incarnation: i64
    topics: tuple[ReportedTopic, ...]


class ReportIsrResponse(Response, key=ApiKey.REPORT_ISR):
    error_code: ErrorCode


class ReportOfflineRequest(Request, key=ApiKey.REPORT_OFFLINE):
    """``may_follow``: only leadership is given up (a flush is overdue, rule R4), the replica goes on."""

    broker_id: i32
    incarnation: i64
    may_follow: bool
    topics: tuple[ReportedTopic, ...]


class ReportOfflineResponse(Response, key=ApiKey.REPORT_OFFLINE):
    error_code: ErrorCode
