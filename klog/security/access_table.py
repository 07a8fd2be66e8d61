"""The permissions that each request needs: one table, for the checks (`klog.server.access`) and for docs/security.md.

A request that names several resources is refused for those that the principal may not use, and served for the others.
Requests among brokers (rule R10) need the cluster's secret: no ACL can allow them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from klog.errors import ClusterAuthorizationFailed, RequestError
from klog.protocol.apis import ApiKey
from klog.security.errors import GroupAuthorizationFailed, TopicAuthorizationFailed
from klog.security.permissions import CLUSTER, Operation, Resource, ResourceType

ERRORS: Final[Mapping[ResourceType, type[RequestError]]] = {
    ResourceType.TOPIC: TopicAuthorizationFailed,
    ResourceType.GROUP: GroupAuthorizationFailed,
    ResourceType.CLUSTER: ClusterAuthorizationFailed,
}
"""The error for a missing permission, by the resource's type."""

TOPIC_CONFIGS: Final = 2
"""Kafka's number of a topic in requests for settings; others are brokers', which belong to the cluster."""
TRANSACTION: Final = 1
"""The kind of key that FindCoordinator does not serve."""

SUBJECT_SUFFIXES: Final = ("-key", "-value")


class Need(NamedTuple):
    """An operation on a named resource, or with ``is_any`` on any resource of the type."""

    operation: Operation
    kind: ResourceType
    is_any: bool = False

    def resource(self, name: str) -> Resource:
        """The resource; ``name`` is ignored for the cluster."""
        return CLUSTER if self.kind is ResourceType.CLUSTER else Resource(self.kind, name)

    def __str__(self) -> str:
        return f"{self.operation.title} {self.kind.title}{' (any)' if self.is_any else ''}"


Needs = tuple[Need, ...]
"""One of them is enough. The last one determines the error."""


@dataclass(frozen=True, slots=True)
class Items:
    """An array of a request whose elements name resources, and the answer's array for it.

    ``asked``: the array, by its names in the versions, or several. ``name``: the element's field with the resource's
    name; "" where elements are names. ``answered``: the array of the answer; its elements repeat fields of the same
    name, and have the name in ``answered_name``. ``inner``: the arrays inside of the elements, and the field that both
    their elements have.
    """

    asked: tuple[str, ...]
    name: str
    answered: str
    answered_name: str = ""
    inner: tuple[str, str, str] | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """The permissions of a request.

    ``whole``: for the request, on the resource that ``name`` names. ``each``: for each of ``items``. ``shown``: for
    each row in the answer's array ``rows``, on the resource in its field ``row_name``; other rows are removed.
    ``settings``: the operation on each of ``items`` depends on its type, as for settings. ``open``: why no permission
    is needed. ``brokers``: for brokers only. ``about``: a remark.
    """

    whole: Needs = ()
    name: str = ""
    items: Items | None = None
    each: Needs = ()
    settings: Operation | None = None
    shown: Needs = ()
    rows: str = ""
    row_name: str = ""
    open: str = ""
    brokers: bool = False
    about: str = ""


def topic_of_subject(subject: str) -> str:
    """The topic of a registry subject's messages: ``orders-value`` is of ``orders``."""
    for suffix in SUBJECT_SUFFIXES:
        if len(subject) > len(suffix) and subject.endswith(suffix):
            return subject.removesuffix(suffix)
    return subject


def needs_of_settings(operation: Operation, item: Any) -> Needs:
    """The permissions for the settings of a topic or a broker."""
    of_topic = int(item.resource_type) == TOPIC_CONFIGS
    return (Need(operation, ResourceType.TOPIC if of_topic else ResourceType.CLUSTER),)


_O, _T = Operation, ResourceType


def _topic(operation: Operation) -> Needs:
    return (Need(operation, _T.TOPIC),)


def _group(operation: Operation) -> Needs:
    return (Need(operation, _T.GROUP),)


def _cluster(operation: Operation) -> Needs:
    return (Need(operation, _T.CLUSTER),)


def _of_group(operation: Operation, name: str = "group_id") -> Rule:
    return Rule(whole=_group(operation), name=name)


def _partitions(asked: str = "topics", inner: str = "partitions", index: str = "partition_index") -> Items:
    return Items((asked,), "name", "topics", inner=(inner, inner, index))


CREATE: Final = (*_cluster(_O.CREATE), *_topic(_O.CREATE))
"""The permissions for creating a topic."""
_BROKERS: Final = Rule(brokers=True)
_SUBJECT: Final = "a subject needs it on its topic: orders-value and orders-key on orders"

RULES: Final[Mapping[int, Rule]] = {
    ApiKey.PRODUCE: Rule(items=Items((), "topic", ""), each=_topic(_O.WRITE)),
    ApiKey.FETCH: Rule(items=Items((), "topic", ""), each=_topic(_O.READ)),
    ApiKey.LIST_OFFSETS: Rule(items=_partitions(), each=_topic(_O.DESCRIBE)),
    ApiKey.METADATA: Rule(
        items=Items(("topics",), "name", "topics"),
        each=_topic(_O.DESCRIBE),
        shown=_topic(_O.DESCRIBE),
        rows="topics",
        row_name="name",
        about="a topic that it would create also needs Create Cluster or Create Topic",
    ),
    ApiKey.OFFSET_COMMIT: Rule(whole=_group(_O.READ), name="group_id", items=_partitions(), each=_topic(_O.READ)),
    ApiKey.OFFSET_FETCH: Rule(
        whole=_group(_O.DESCRIBE),
        name="group_id",
        items=Items(("topics",), "name", "topics", inner=("partition_indexes", "partitions", "partition_index")),
        each=_topic(_O.DESCRIBE),
        shown=_topic(_O.DESCRIBE),
        rows="topics",
        row_name="name",
    ),
    ApiKey.FIND_COORDINATOR: Rule(
        items=Items(("coordinator_keys",), "", "coordinators", "key"), each=_group(_O.DESCRIBE)
    ),
    ApiKey.JOIN_GROUP: _of_group(_O.READ),
    ApiKey.HEARTBEAT: _of_group(_O.READ),
    ApiKey.LEAVE_GROUP: _of_group(_O.READ),
    ApiKey.SYNC_GROUP: _of_group(_O.READ),
    ApiKey.DESCRIBE_GROUPS: Rule(items=Items(("groups",), "", "groups", "group_id"), each=_group(_O.DESCRIBE)),
    ApiKey.LIST_GROUPS: Rule(shown=(*_cluster(_O.DESCRIBE), *_group(_O.DESCRIBE)), rows="groups", row_name="group_id"),
    ApiKey.API_VERSIONS: Rule(open="clients ask it before they show who they are"),
    ApiKey.SASL_HANDSHAKE: Rule(open="clients show by it who they are"),
    ApiKey.SASL_AUTHENTICATE: Rule(open="clients show by it who they are"),
    ApiKey.CREATE_TOPICS: Rule(
        items=Items(("topics",), "name", "topics"),
        each=CREATE,
        about="purges a topic of the name that a Kafka client deleted with delay",
    ),
    ApiKey.DELETE_TOPICS: Rule(
        items=Items(("topics", "topic_names"), "name", "responses", "name"), each=_topic(_O.DELETE)
    ),
    ApiKey.DELETE_RECORDS: Rule(items=_partitions(), each=_topic(_O.DELETE)),
    ApiKey.INIT_PRODUCER_ID: Rule(whole=(Need(_O.WRITE, _T.TOPIC, is_any=True), *_cluster(_O.IDEMPOTENT_WRITE))),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Rule(
        items=Items(("topics",), "topic", "topics", inner=("partitions", "partitions", "partition")),
        each=_topic(_O.DESCRIBE),
    ),
    ApiKey.DESCRIBE_ACLS: Rule(whole=_cluster(_O.DESCRIBE)),
    ApiKey.CREATE_ACLS: Rule(whole=_cluster(_O.ALTER), items=Items(("creations",), "resource_name", "results")),
    ApiKey.DELETE_ACLS: Rule(
        whole=_cluster(_O.ALTER), items=Items(("filters",), "resource_name_filter", "filter_results")
    ),
    ApiKey.DESCRIBE_CONFIGS: Rule(
        items=Items(("resources",), "resource_name", "results"), settings=_O.DESCRIBE_CONFIGS
    ),
    ApiKey.ALTER_CONFIGS: Rule(items=Items(("resources",), "resource_name", "responses"), settings=_O.ALTER_CONFIGS),
    ApiKey.DESCRIBE_LOG_DIRS: Rule(whole=_cluster(_O.DESCRIBE)),
    ApiKey.CREATE_PARTITIONS: Rule(items=Items(("topics",), "name", "results"), each=_topic(_O.ALTER)),
    ApiKey.DELETE_GROUPS: Rule(items=Items(("groups_names",), "", "results", "group_id"), each=_group(_O.DELETE)),
    ApiKey.ELECT_LEADERS: Rule(
        whole=_cluster(_O.ALTER),
        items=Items(
            ("topic_partitions",),
            "topic",
            "replica_election_results",
            inner=("partitions", "partition_result", "partition_id"),
        ),
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Rule(
        items=Items(("resources",), "resource_name", "responses"), settings=_O.ALTER_CONFIGS
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Rule(whole=_cluster(_O.ALTER)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Rule(whole=_cluster(_O.DESCRIBE)),
    ApiKey.OFFSET_DELETE: Rule(whole=_group(_O.DELETE), name="group_id", items=_partitions(), each=_topic(_O.READ)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Rule(whole=_cluster(_O.DESCRIBE)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Rule(
        whole=_cluster(_O.ALTER), items=Items(("deletions", "upsertions"), "name", "results", "user")
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Rule(whole=_cluster(_O.DESCRIBE_CONFIGS)),
    ApiKey.ALTER_CLIENT_QUOTAS: Rule(whole=_cluster(_O.ALTER_CONFIGS), items=Items(("entries",), "", "entries")),
    ApiKey.DESCRIBE_CLUSTER: Rule(open="every client must find the brokers"),
    # --- klog's own
    ApiKey.COUNT_MESSAGES: Rule(items=_partitions(inner="ranges"), each=_topic(_O.DESCRIBE)),
    ApiKey.FIND_MESSAGE: Rule(items=_partitions(), each=_topic(_O.DESCRIBE)),
    ApiKey.STOP_BROKER: Rule(whole=_cluster(_O.ALTER)),
    ApiKey.RESTART_BROKER: Rule(whole=_cluster(_O.ALTER)),
    ApiKey.LOCATE_MESSAGE: Rule(whole=_topic(_O.DESCRIBE), name="topic"),
    ApiKey.DESCRIBE_SELF: Rule(whole=_cluster(_O.DESCRIBE)),
    ApiKey.CHECKSUM_RANGES: Rule(items=_partitions(), each=_topic(_O.READ), about="a checksum of few bytes tells them"),
    ApiKey.LIST_LOST: Rule(shown=_topic(_O.DESCRIBE), rows="stretches", row_name="topic"),
    ApiKey.READ_LOST: Rule(whole=_topic(_O.READ), name="topic"),
    ApiKey.MESSAGE_TIMES: Rule(items=_partitions(), each=_topic(_O.DESCRIBE)),
    ApiKey.READ_METRICS: Rule(whole=_cluster(_O.DESCRIBE)),
    ApiKey.READ_HISTORY: Rule(whole=_cluster(_O.DESCRIBE)),
    ApiKey.READ_LAG_HISTORY: Rule(whole=_cluster(_O.DESCRIBE)),
    ApiKey.GREET: Rule(open="a broker begins to show the cluster's secret"),
    ApiKey.PROVE: Rule(open="a broker shows the cluster's secret"),
    ApiKey.ALTER_REASSIGNMENTS: Rule(whole=_cluster(_O.ALTER)),
    ApiKey.DESCRIBE_REASSIGNMENTS: Rule(whole=_cluster(_O.DESCRIBE)),
    ApiKey.ELECT_REPLICAS: Rule(whole=_cluster(_O.ALTER)),
    ApiKey.DESCRIBE_TRASH: Rule(shown=_topic(_O.DESCRIBE), rows="logs", row_name="topic"),
    ApiKey.RESTORE_TOPIC: Rule(whole=_cluster(_O.ALTER)),
    ApiKey.PURGE_TOPIC: Rule(whole=_cluster(_O.ALTER)),
    ApiKey.CHECK_PERMISSION: Rule(whole=_cluster(_O.DESCRIBE)),
    ApiKey.PRODUCE_AT: Rule(items=Items(("partitions",), "topic", "partitions"), each=_topic(_O.WRITE)),
    ApiKey.DESCRIBE_MEMBERS: _of_group(_O.DESCRIBE, "group"),
    ApiKey.DESCRIBE_CLIENTS: Rule(whole=_cluster(_O.DESCRIBE)),
    ApiKey.READ_SCHEMAS: Rule(
        whole=(Need(_O.DESCRIBE, _T.TOPIC, is_any=True),),
        items=Items(("subjects",), "", "subjects", "name"),
        each=_topic(_O.DESCRIBE),
        shown=_topic(_O.DESCRIBE),
        rows="subjects",
        row_name="name",
        about=f"any topic for schemas, since a message has the id, and not the subject; {_SUBJECT}",
    ),
    ApiKey.CHANGE_SCHEMAS: Rule(
        whole=_topic(_O.ALTER),
        name="subject",
        about=f"{_SUBJECT}; to register, Write Topic; the level of all needs Alter Cluster",
    ),
    # --- among brokers
    ApiKey.LEADER_AND_ISR: _BROKERS,
    ApiKey.STOP_REPLICA: _BROKERS,
    ApiKey.UPDATE_METADATA: _BROKERS,
    ApiKey.DESCRIBE_REPLICAS: _BROKERS,
    ApiKey.CONTROLLED_SHUTDOWN: _BROKERS,
    ApiKey.REPORT_ISR: _BROKERS,
    ApiKey.REPORT_OFFLINE: _BROKERS,
    ApiKey.REPLICA_FETCH: _BROKERS,
}
"""Request -> permissions. A request that is not here is refused."""
