"""klog's own requests about reassignments, for what Kafka's have no words: a throttle, and why one stands still.

    AlterReassignments     begin, replace, cancel: AlterPartitionReassignments with a throttle
    DescribeReassignments  what is under way: ListPartitionReassignments with origin, throttle, state and reason

In the style of `own`: version 0, flexible. Annotations are evaluated here on purpose: kio reads the fields' types.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from kio.schema.errors import ErrorCode
from kio.static.primitive import i16, i32, i64

from klog.protocol.own import _of, _Request, _Response

ALTER_REASSIGNMENTS = 10020
DESCRIBE_REASSIGNMENTS = 10021

COPYING = "copying"
STALLED = "stalled"


@dataclass(frozen=True, kw_only=True)
class ReassignedPartition(_Request):
    """``replicas`` None: go back to where it was."""

    __api_key__: ClassVar[i16] = i16(ALTER_REASSIGNMENTS)
    partition_index: i32 = _of("int32")
    replicas: tuple[i32, ...] | None = _of("int32")


@dataclass(frozen=True, kw_only=True)
class ReassignedTopic(_Request):
    __api_key__: ClassVar[i16] = i16(ALTER_REASSIGNMENTS)
    name: str = _of("string")
    partitions: tuple[ReassignedPartition, ...]


@dataclass(frozen=True, kw_only=True)
class AlterReassignmentsRequest(_Request):
    """``throttle``: bytes a second that each broker may take in for them; 0 without."""

    __api_key__: ClassVar[i16] = i16(ALTER_REASSIGNMENTS)
    throttle: i64 = _of("int64")
    topics: tuple[ReassignedTopic, ...]


@dataclass(frozen=True, kw_only=True)
class ReassignedOutcome(_Response):
    __api_key__: ClassVar[i16] = i16(ALTER_REASSIGNMENTS)
    topic: str = _of("string")
    partition_index: i32 = _of("int32")
    error_code: ErrorCode = _of("error_code")
    error_message: str | None = _of("string")


@dataclass(frozen=True, kw_only=True)
class AlterReassignmentsResponse(_Response):
    """``error_code`` of the whole: NOT_CONTROLLER, or 0 and an outcome for each partition asked."""

    __api_key__: ClassVar[i16] = i16(ALTER_REASSIGNMENTS)
    error_code: ErrorCode = _of("error_code")
    error_message: str | None = _of("string")
    outcomes: tuple[ReassignedOutcome, ...]


@dataclass(frozen=True, kw_only=True)
class DescribeReassignmentsRequest(_Request):
    __api_key__: ClassVar[i16] = i16(DESCRIBE_REASSIGNMENTS)


@dataclass(frozen=True, kw_only=True)
class DescribedReassignment(_Response):
    """``state``: copying or stalled; then ``reason`` is half a sentence. ``missing``: targets that are not in sync."""

    __api_key__: ClassVar[i16] = i16(DESCRIBE_REASSIGNMENTS)
    topic: str = _of("string")
    partition_index: i32 = _of("int32")
    origin: tuple[i32, ...] = _of("int32")
    target: tuple[i32, ...] = _of("int32")
    missing: tuple[i32, ...] = _of("int32")
    leader: i32 = _of("int32")
    throttle: i64 = _of("int64")
    state: str = _of("string")
    reason: str = _of("string")


@dataclass(frozen=True, kw_only=True)
class DescribeReassignmentsResponse(_Response):
    __api_key__: ClassVar[i16] = i16(DESCRIBE_REASSIGNMENTS)
    error_code: ErrorCode = _of("error_code")
    error_message: str | None = _of("string")
    reassignments: tuple[DescribedReassignment, ...]


REQUESTS: dict[int, Any] = {
    ALTER_REASSIGNMENTS: AlterReassignmentsRequest,
    DESCRIBE_REASSIGNMENTS: DescribeReassignmentsRequest,
}
RESPONSES: dict[int, Any] = {
    ALTER_REASSIGNMENTS: AlterReassignmentsResponse,
    DESCRIBE_REASSIGNMENTS: DescribeReassignmentsResponse,
}
