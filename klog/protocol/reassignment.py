"""klog's own requests about reassignments, for what Kafka's have no words: a throttle, and why one stands still.

    AlterReassignments     begin, replace, cancel: AlterPartitionReassignments with a throttle
    DescribeReassignments  what is under way: ListPartitionReassignments with origin, throttle, state and reason

Declared by `klog.protocol.schema`.
"""

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i64

from klog.protocol.apis import ApiKey
from klog.protocol.schema import Request, Response, Structure

COPYING = "copying"
STALLED = "stalled"


class ReassignedPartition(Structure):
    """``replicas`` None: go back to where it was."""

    partition_index: i32
    replicas: tuple[i32, ...] | None


class ReassignedTopic(Structure):
    name: str
    partitions: tuple[ReassignedPartition, ...]


class AlterReassignmentsRequest(Request, key=ApiKey.ALTER_REASSIGNMENTS):
    """``throttle``: bytes a second that each broker may take in for them; 0 without."""

    throttle: i64
    topics: tuple[ReassignedTopic, ...]


class ReassignedOutcome(Structure):
    topic: str
    partition_index: i32
    error_code: ErrorCode
    error_message: str | None


class AlterReassignmentsResponse(Response, key=ApiKey.ALTER_REASSIGNMENTS):
    """``error_code`` of the whole: NOT_CONTROLLER, or 0 and an outcome for each partition asked."""

    error_code: ErrorCode
    error_message: str | None
    outcomes: tuple[ReassignedOutcome, ...]


class DescribeReassignmentsRequest(Request, key=ApiKey.DESCRIBE_REASSIGNMENTS):
    """Nothing is asked."""


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
