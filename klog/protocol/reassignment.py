"""klog's own requests for reassignments, beyond Kafka's: with a throttle, and the reason of a stall.

    AlterReassignments     begin, replace, cancel: AlterPartitionReassignments with a throttle
    DescribeReassignments  those under way: ListPartitionReassignments with origin, throttle, state and reason

Declared by `klog.protocol.schema`.
"""

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i64

from klog.protocol.apis import ApiKey
from klog.protocol.klog_apis import PartitionOutcome
from klog.protocol.schema import Request, Response, Structure

COPYING = "copying"
STALLED = "stalled"


class ReassignedPartition(Structure):
    """``replicas`` None: cancel."""

    partition_index: i32
    replicas: tuple[i32, ...] | None


class ReassignedTopic(Structure):
    name: str
    partitions: tuple[ReassignedPartition, ...]


class AlterReassignmentsRequest(Request, key=ApiKey.ALTER_REASSIGNMENTS):
    """``throttle``: bytes per second that each broker may fetch for them; 0: no limit."""

    throttle: i64
    topics: tuple[ReassignedTopic, ...]


class AlterReassignmentsResponse(Response, key=ApiKey.ALTER_REASSIGNMENTS):
    """``error_code`` of the whole: NOT_CONTROLLER, or 0 and an outcome per requested partition."""

    error_code: ErrorCode
    error_message: str | None
    outcomes: tuple[PartitionOutcome, ...]


class DescribeReassignmentsRequest(Request, key=ApiKey.DESCRIBE_REASSIGNMENTS):
    """No fields."""


class DescribedReassignment(Structure):
    """``state``: copying or stalled; then ``reason`` is half a sentence. ``missing``: targets that are not in sync."""

    topic: str
    partition_index: i32
    origin: tuple[i32, ...]
    target: tuple[i32, ...]
    missing: tuple[i32, ...]
    leader: i32
    throttle: i64
    state: str
    reason: str


class DescribeReassignmentsResponse(Response, key=ApiKey.DESCRIBE_REASSIGNMENTS):
    error_code: ErrorCode
    error_message: str | None
    reassignments: tuple[DescribedReassignment, ...]
