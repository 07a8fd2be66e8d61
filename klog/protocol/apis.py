"""The keys of the protocol's requests: Apache Kafka's numbers, and klog's own from 10000 on.

Which of them a broker serves, and at which versions, is said by the handlers that register themselves in
`klog.server.dispatch`; this module knows only the numbers and, from kio's schemas, which versions are flexible.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import Any

import kio.index

from klog.errors import UnsupportedVersion
from klog.protocol import interbroker, introduction, own, reassignment, schemas

OWN_KEYS_FROM = 10000
"""klog's own requests have keys from here on; Kafka's stay far below (the highest is under 100)."""


class ApiKey(IntEnum):
    """Every request that klog's brokers or tools speak."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    ELECT_LEADERS = 43
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    COUNT_MESSAGES = 10000
    FIND_MESSAGE = 10001
    STOP_BROKER = 10002
    LOCATE_MESSAGE = 10003
    DESCRIBE_SELF = 10004
    CHECKSUM_RANGES = 10005
    LIST_LOST = 10006
    READ_LOST = 10007
    MESSAGE_TIMES = 10008
    LEADER_AND_ISR = 10010
    STOP_REPLICA = 10011
    UPDATE_METADATA = 10012
    DESCRIBE_REPLICAS = 10013
    CONTROLLED_SHUTDOWN = 10014
    REPORT_ISR = 10015
    REPORT_OFFLINE = 10016
    REPLICA_FETCH = 10017
    GREET = 10018
    PROVE = 10019
    ALTER_REASSIGNMENTS = 10020
    DESCRIBE_REASSIGNMENTS = 10021
    PRODUCE_AT = 10030
    GET_SCHEMAS = 10040
    LIST_SUBJECTS = 10041
    REGISTER_SCHEMA = 10042
    DELETE_SCHEMAS = 10043
    SET_SCHEMA_LEVEL = 10044


WRITTEN_BY_HAND = frozenset({ApiKey.REPLICA_FETCH})
"""Of our own: what has no schema, and a head without tags."""

_OWN = (own, interbroker, introduction, reassignment, schemas)
_OWN_REQUESTS: dict[int, Any] = {key: one for part in _OWN for key, one in part.REQUESTS.items()}
_OWN_RESPONSES: dict[int, Any] = {key: one for part in _OWN for key, one in part.RESPONSES.items()}


@cache
def request_schema(key: int, version: int) -> Any:
    """kio's class of a request's body; UnsupportedVersion where there is none."""
    return _schema(key, version, _OWN_REQUESTS, kio.index.load_request_schema)


@cache
def response_schema(key: int, version: int) -> Any:
    """kio's class of a response's body; UnsupportedVersion where there is none."""
    return _schema(key, version, _OWN_RESPONSES, kio.index.load_response_schema)


def _schema(key: int, version: int, ours: dict[int, Any], load: Any) -> Any:
    if key >= OWN_KEYS_FROM:
        if key in ours and version == 0:
            return ours[key]
        raise UnsupportedVersion(f"request key {key} version {version} is not one of klog's own")
    try:
        return load(key, version)
    except kio.index.KioIndexError:
        raise UnsupportedVersion(f"request key {key} version {version} is unknown") from None


@cache
def is_flexible(key: int, version: int) -> bool:
    """Whether this version's strings and arrays are compact and its headers carry tags (KIP-482)."""
    return key not in WRITTEN_BY_HAND and bool(request_schema(key, version).__flexible__)


def api_name(key: int) -> str:
    """``Produce``, ``ListOffsets``; the number itself for a key nobody knows."""
    try:
        return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
    except ValueError:
        return str(key)
