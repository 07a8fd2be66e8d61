"""klog's own requests, beyond Kafka's protocol: keys from 10000, declared by `klog.protocol.schema`.

A broker lists them in ApiVersions only to clients with the software name ``klog`` (KIP-511): others have no use for
them.

In positions, -2 is the partition's start and -1 its end, as in ListOffsets; a count of -1 is *not known yet*.
"""

from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import f64, i32, i64

from klog.protocol.apis import ApiKey
from klog.protocol.schema import Response, Structure, request, response, tagged

SOFTWARE_NAME = "klog"
"""Software name of klog's own tools in ApiVersions."""


def _of_partitions(inner: str = "partitions", **fields: Any) -> list[dict[str, Any]]:
    """Topics, with these fields for each partition."""
    return [{"name": str, inner: [{"partition_index": i32, **fields}]}]


_ERROR: Final[dict[str, Any]] = {"error_code": ErrorCode, "error_message": str | None}
_OUTCOMES: Final = [{"topic": str, "partition_index": i32, **_ERROR}]

# How many messages lie in [from, to) of a partition.
request(ApiKey.COUNT_MESSAGES, topics=_of_partitions("ranges", from_offset=i64, to_offset=i64))
response(
    ApiKey.COUNT_MESSAGES,
    "One per requested range, in order; ``from_offset`` and ``to_offset`` with -2 and -1 resolved.",
    topics=_of_partitions("ranges", error_code=ErrorCode, from_offset=i64, to_offset=i64, messages=i64, bytes=i64),
)

# The offset of the message that lies n messages after (or, negative, before) a place.
request(
    ApiKey.FIND_MESSAGE,
    """``n`` >= 0: the n-th message from ``from_offset`` on (0 is the first). ``n`` < 0: the -n-th before it.

    Beyond the log's ends the answer is the end offset, or the start offset.
    """,
    topics=_of_partitions(from_offset=i64, n=i64),
)
response(ApiKey.FIND_MESSAGE, topics=_of_partitions(error_code=ErrorCode, offset=i64))

# Controlled shutdown of the broker that gets the request.
request(
    ApiKey.STOP_BROKER,
    "Refused unless ``broker_id`` is the receiver's: a balancer must not stop the wrong one.",
    broker_id=i32,
)
response(ApiKey.STOP_BROKER, **_ERROR)

# The same, and the process then serves again.
request(ApiKey.RESTART_BROKER, "Refused unless ``broker_id`` is the receiver's.", broker_id=i32)
response(ApiKey.RESTART_BROKER, **_ERROR)

# Where a message lies on the leader's disk.
request(ApiKey.LOCATE_MESSAGE, topic=str, partition_index=i32, offset=i64)
response(
    ApiKey.LOCATE_MESSAGE,
    "The batch that holds the offset: file, position, and state (``committed`` or ``appended``).",
    error_code=ErrorCode,
    broker_id=i32,
    file=str,
    position=i64,
    length=i32,
    batch_offset=i64,
    crc=i64,
    leader_epoch=i32,
    messages=i32,
    state=str,
)

# Who this broker is.
request(ApiKey.DESCRIBE_SELF)


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


# What a replica, leading or following, has in ranges of addresses.
request(
    ApiKey.CHECKSUM_RANGES,
    """Without ranges: only the replica's ends and holes. ``probe_address`` -1: no batch is to be checked.

    Addresses [from, to). ``seed``: CRC of the bytes before, to continue from piece to piece.
    """,
    topics=_of_partitions(probe_address=i64, ranges=[{"from_address": i64, "to_address": i64, "seed": i64}]),
)
response(
    ApiKey.CHECKSUM_RANGES,
    """``high_watermark``: an address; the last known one if the broker neither leads nor follows at the moment.

    ``probe``: whether the batch around the byte at ``probe_address`` is valid: 1 yes, 0 no, -1 not asked.

    ``holes``: addresses [from, to) between two segments: no batch, recorded as damage (rule L2).

    ``from_address``: later than requested if the log starts later by now. ``bytes``: addresses less holes.
    """,
    error_code=ErrorCode,
    topics=_of_partitions(
        error_code=ErrorCode,
        leads=bool,
        start_address=i64,
        high_watermark=i64,
        end_address=i64,
        probe=i32,
        holes=[{"from_address": i64, "to_address": i64}],
        ranges=[{"from_address": i64, "to_address": i64, "crc": i64, "bytes": i64}],
    ),
)

# What truncation and recovery have set aside on this broker.
request(ApiKey.LIST_LOST, "``topics`` None: all.", topics=tuple[str, ...] | None)
response(
    ApiKey.LIST_LOST,
    """Addresses [from, to) that the log no longer has. ``file``: its name in the partition's folder.

    ``messages`` -1: not known. ``bytes``: those kept, which may be fewer than there were.
    """,
    error_code=ErrorCode,
    broker_id=i32,
    stretches=[
        {
            "topic": str,
            "partition_index": i32,
            "from_address": i64,
            "to_address": i64,
            "messages": i64,
            "bytes": i64,
            "reason": str,
            "time_ms": i64,
            "file": str,
        }
    ],
)
request(
    ApiKey.READ_LOST,
    "``file``: its name from ListLost; ``position``: in the kept bytes, from 0.",
    topic=str,
    partition_index=i32,
    file=str,
    position=i64,
    max_bytes=i32,
)
response(ApiKey.READ_LOST, "Empty ``data``: the end.", error_code=ErrorCode, data=bytes)

# When the first message at or after an offset was written.
request(ApiKey.MESSAGE_TIMES, topics=_of_partitions(offsets=[i64]))
response(
    ApiKey.MESSAGE_TIMES,
    "``timestamps`` in ms, one per requested offset, in order; -1: no such message, or one without a timestamp.",
    topics=_of_partitions(error_code=ErrorCode, timestamps=[i64]),
)

# An append that is made only where the log ends at the offset that its writer has seen.
request(
    ApiKey.PRODUCE_AT,
    """``expected_end``: the offset of the last record in the leader's log + 1, committed or not.

    ``source``: where these messages are copied from; unless it is "", appends behind the expected end for other
    sources, or by Produce, do not matter. ``writer`` identifies the copier, for the next one that finds the end moved.
    ``topic_id`` None: not checked.
    """,
    timeout_ms=i32,
    partitions=[
        {
            "topic": str,
            "topic_id": UUID | None,
            "partition_index": i32,
            "leader_epoch": i32,
            "expected_end": i64,
            "source": str,
            "writer": str,
            "records": bytes,
        }
    ],
)
response(
    ApiKey.PRODUCE_AT,
    """One per append, in order: the offset of its first record, and of its last one + 1.

    With an error ``base_offset`` is -1, ``end_offset`` the current log end (-1 if this broker does not lead the
    partition), and ``writer`` that of the last append for this source under this leader, "" without one.
    """,
    partitions=[{"topic": str, "partition_index": i32, **_ERROR, "base_offset": i64, "end_offset": i64, "writer": str}],
)

# A broker's metrics, page by page.
request(
    ApiKey.READ_METRICS,
    """``patterns``: globs, of which a metric's name must match one; (): all.

    ``after_name`` and ``after_labels``: the end of the page before; "" and () at the beginning.
    """,
    patterns=[str],
    after_name=str,
    after_labels=[str],
)
response(
    ApiKey.READ_METRICS,
    """``next_name`` and ``next_labels``: the next request's ``after_name`` and ``after_labels``; None at the end.

    A sample is a number, as in a scrape by Prometheus. ``kind``: counter, gauge or summary.
    """,
    error_code=ErrorCode,
    broker_id=i32,
    now_ms=i64,
    samples=[{"name": str, "kind": str, "labels": [{"name": str, "value": str}], "value": f64}],
    next_name=str | None,
    next_labels=[str],
)

# What a broker remembers of itself.
request(ApiKey.READ_HISTORY, since_ms=i64)
response(
    ApiKey.READ_HISTORY,
    """The points are ``every_ms`` apart; the last one has the time since the one before it.

    ``values``: of the time up to ``time_ms``, in the order of ``names``.
    """,
    error_code=ErrorCode,
    broker_id=i32,
    now_ms=i64,
    every_ms=i32,
    names=[str],
    points=[{"time_ms": i64, "values": [f64]}],
)

# What the lag of groups is made of.
_CURVES: Final = [{"number": i32, "group": str, "topic": str, "partition_index": i32, "base": i64}]
_MINUTES: Final = [{"time_ms": i64, "curves": [i32], "offsets": [i64]}]
request(ApiKey.READ_LAG_HISTORY)
response(
    ApiKey.READ_LAG_HISTORY,
    """``ends``: log ends of the partitions that this broker leads. ``commits``: commits of the groups that it
    coordinates. Both have the beginning. ``is_full``: there are more than it keeps. The last minute is not over yet.

    ``number``: a curve's id in minutes. ``base``: the offset at the beginning, -1: unknown. ``group``: empty where the
    offset is a log end.

    A minute has the offsets that had changed by ``time_ms``, by their curves; -1: unknown from here on.
    """,
    error_code=ErrorCode,
    broker_id=i32,
    now_ms=i64,
    is_full=bool,
    end_since_ms=i64,
    end_curves=_CURVES,
    end_minutes=_MINUTES,
    commit_since_ms=i64,
    commit_curves=_CURVES,
    commit_minutes=_MINUTES,
)

# In-sync replicas of one's choice become leaders.
request(
    ApiKey.ELECT_REPLICAS,
    "Each replica must be in sync and alive.",
    replicas=[{"topic": str, "partition_index": i32, "broker_id": i32}],
)
response(ApiKey.ELECT_REPLICAS, **_ERROR, outcomes=_OUTCOMES)

# Reassignments are begun, replaced or cancelled: Kafka's AlterPartitionReassignments with a throttle.
request(
    ApiKey.ALTER_REASSIGNMENTS,
    """``throttle``: bytes per second that each broker may fetch for them; 0: no limit.

    ``replicas`` None: cancel.
    """,
    throttle=i64,
    topics=_of_partitions(replicas=tuple[i32, ...] | None),
)
response(
    ApiKey.ALTER_REASSIGNMENTS,
    "``error_code`` of the whole: NOT_CONTROLLER, or 0 and an outcome per requested partition.",
    **_ERROR,
    outcomes=_OUTCOMES,
)

# Those under way: ListPartitionReassignments with origin, throttle, state and reason.
COPYING: Final = "copying"
STALLED: Final = "stalled"
request(ApiKey.DESCRIBE_REASSIGNMENTS)
response(
    ApiKey.DESCRIBE_REASSIGNMENTS,
    "``state``: copying or stalled; then ``reason`` is half a sentence. ``missing``: targets that are not in sync.",
    **_ERROR,
    reassignments=[
        {
            "topic": str,
            "partition_index": i32,
            "origin": [i32],
            "target": [i32],
            "missing": [i32],
            "leader": i32,
            "throttle": i64,
            "state": str,
            "reason": str,
        }
    ],
)

# The logs of deleted topics on a broker's disks.
request(ApiKey.DESCRIBE_TRASH, topic_ids=[UUID])
response(
    ApiKey.DESCRIBE_TRASH,
    "``messages``: -1 while they are not counted.",
    error_code=ErrorCode,
    broker_id=i32,
    logs=[
        {
            "topic": str,
            "partition_index": i32,
            "topic_id": UUID | None,
            "end_address": i64,
            "messages": i64,
            "bytes": i64,
        }
    ],
)

# A deleted topic exists again; a deleted topic is deleted for good.
request(ApiKey.RESTORE_TOPIC, topic_id=UUID | None)
response(ApiKey.RESTORE_TOPIC, **_ERROR)
request(ApiKey.PURGE_TOPIC, topic_id=UUID | None)
response(ApiKey.PURGE_TOPIC, **_ERROR)

# When the members of a group sent their last heartbeats.
request(ApiKey.DESCRIBE_MEMBERS, group=str)
response(
    ApiKey.DESCRIBE_MEMBERS,
    "``heartbeat_ms``: time since then; -1 while the member waits for a rebalance, when it sends none.",
    **_ERROR,
    members=[{"member_id": str, "heartbeat_ms": i64}],
)

# Who is connected to a broker, and what for.
request(ApiKey.DESCRIBE_CLIENTS)
response(
    ApiKey.DESCRIBE_CLIENTS,
    """``left_out``: connections for which the answer has no room. Other brokers are not among them.

    ``address``: host and port. ``software``: name and version (KIP-511), or "". ``reads``: topics of its last Fetch.
    ``writes``: topic of its last Produce. ``idle_ms``: time since it last sent or took bytes.
    """,
    error_code=ErrorCode,
    clients=[
        {
            "address": str,
            "listener": str,
            "principal": str,
            "client_id": str | None,
            "software": str,
            "reads": [str],
            "writes": str | None,
            "idle_ms": i64,
        }
    ],
    left_out=i64,
)

# Whether a principal may do something, and which rule decides; the numbers are Kafka's.
request(
    ApiKey.CHECK_PERMISSION,
    "``principal``: ``User:alice``; ``host``: its address. ``*``: ACLs on hosts do not count.",
    principal=str,
    host=str,
    operation=i32,
    resource_type=i32,
    resource_name=str,
)
response(
    ApiKey.CHECK_PERMISSION,
    "``rule``: what decides: an ACL, ``super.users``, ``allow.everyone.if.no.acl.found``, or that no ACL allows it.",
    **_ERROR,
    is_allowed=bool,
    rule=str,
)

# The schema registry, which any broker answers from ZooKeeper: schemas by their ids, or by their text; or subjects. An
# ``error`` is 0, or a code of the common registry's HTTP API (`klog.protocol.schema_errors`); a level a text such as
# ``BACKWARD``.
_REGISTRY_ERROR: Final[dict[str, Any]] = {"error": i32, "error_message": str | None}
request(
    ApiKey.READ_SCHEMAS,
    """``ids``, ``text``: only these schemas; a text in the form that the registry stores.

    Without either: ``subjects``; None: all.
    """,
    ids=[i32],
    text=str | None,
    subjects=tuple[str, ...] | None,
)
response(
    ApiKey.READ_SCHEMAS,
    """Unknown ids, texts and subjects are missing; deleted versions are marked.

    ``level``: that of subjects without one; "" where schemas were asked for.

    A subject's ``level`` None: the default level applies. ``error``: not 0 where the subject may not be described.
    """,
    **_REGISTRY_ERROR,
    schemas=[{"id": i32, "type": str, "schema": str}],
    level=str,
    subjects=[
        {
            **_REGISTRY_ERROR,
            "name": str,
            "level": str | None,
            "versions": [{"version": i32, "id": i32, "is_deleted": bool}],
        }
    ],
)

# Register a schema, delete versions, or set a level.
REGISTER: Final = "register"
DELETE: Final = "delete"
LEVEL: Final = "level"
request(
    ApiKey.CHANGE_SCHEMAS,
    """``act``: register (``type``, ``schema``), delete (``version``, ``permanent``) or level (``level``).

    ``version`` 0: all of the subject; -1: the latest. ``level`` None: back to the default. ``subject`` None, for a
    level: the default of all subjects.
    """,
    act=str,
    subject=str | None,
    type=str,
    schema=str,
    version=i32,
    permanent=bool,
    level=str | None,
)
response(
    ApiKey.CHANGE_SCHEMAS,
    """``versions``: the registered one, or the deleted ones; ``id``: that of the registered schema, else -1.

    ``prior``: the level before; None if the subject had none.
    """,
    **_REGISTRY_ERROR,
    id=i32,
    versions=[i32],
    prior=str | None,
)
