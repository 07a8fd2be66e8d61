"""The keys of requests: Apache Kafka's numbers, and klog's own from 10000 on.

The handlers that register in `klog.server.dispatch` define which of them a broker serves, in which versions. The
schemas of each version are in `klog.protocol.versions`.
"""

from __future__ import annotations

from enum import IntEnum, unique

OWN_KEYS_FROM = 10000
"""The first key of klog's own requests; Kafka's highest is under 100."""


@unique
class ApiKey(IntEnum):
    """All requests of klog's brokers and tools."""

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
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    ELECT_LEADERS = 43
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
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
    READ_METRICS = 10009
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
    READ_HISTORY = 10022
    ELECT_REPLICAS = 10023
    DESCRIBE_TRASH = 10024
    RESTORE_TOPIC = 10025
    PURGE_TOPIC = 10026
    RESTART_BROKER = 10027
    CHECK_PERMISSION = 10028
    READ_LAG_HISTORY = 10029
    PRODUCE_AT = 10030
    DESCRIBE_MEMBERS = 10031
    DESCRIBE_CLIENTS = 10032
    READ_SCHEMAS = 10040
    CHANGE_SCHEMAS = 10041


def api_name(key: int) -> str:
    """``Produce``, ``ListOffsets``; the number itself for an unknown key."""
    try:
        return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
    except ValueError:
        return str(key)
