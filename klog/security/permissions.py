"""Terms of permissions, with Kafka's numbers on the wire and names in its tools (KIP-11, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from klog.errors import InvalidRequest

CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of type Cluster."""
WILDCARD: Final = "*"
ANYBODY: Final = "User:*"
ANY_HOST: Final = "*"


class _Word(IntEnum):
    @property
    def title(self) -> str:
        """``TransactionalId``, ``ClusterAction``: as in ZooKeeper and Kafka's tools."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def word(self) -> str:
        """``transactional-id``, ``cluster-action``: as in klog's commands."""
        return self.name.lower().replace("_", "-")


class ResourceType(_Word):
    """What a permission is about."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6


class PatternType(_Word):
    """How a pattern matches. ANY and MATCH are for filters: all patterns; those that match a name."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Word):
    """An operation on a resource."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Permission(_Word):
    """Whether an ACL allows or denies."""

    ANY = 1
    DENY = 2
    ALLOW = 3


IMPLIED_BY: Final[dict[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset({Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""An ACL that allows one of these operations also allows the first. A denied operation denies no other."""

OPERATIONS: Final[dict[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
}
"""The operations of each type of resource."""

OPERATIONS_NOT_ASKED: Final = -(2**31)
"""In answers to requests that do not ask for the permitted operations (KIP-430)."""


def operation_bits(operations: Iterable[Operation]) -> int:
    """Permitted operations as bits (KIP-430)."""
    return sum(1 << one for one in operations)


ALL_OPERATIONS: Final = {kind: operation_bits(operations) for kind, operations in OPERATIONS.items()}


KINDS: Final = tuple(OPERATIONS)
"""The types of resources."""


class Resource(NamedTuple):
    """A topic, a group, the cluster."""

    kind: ResourceType
    name: str

    def __str__(self) -> str:
        return "cluster" if self.kind is ResourceType.CLUSTER else f"{self.kind.word}:{self.name}"


CLUSTER: Final = Resource(ResourceType.CLUSTER, CLUSTER_NAME)


class Pattern(NamedTuple):
    """The resources of an ACL: one, all of a type (literal ``*``), or those with a prefix (prefixed)."""

    kind: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        if self.pattern_type is PatternType.PREFIXED:
            return f"{self.kind.word}:{self.name}* (prefixed)"
        return str(Resource(self.kind, self.name))

    def covers(self, resource: Resource) -> bool:
        """Whether the pattern matches the resource."""
        if self.kind is not resource.kind:
            return False
        if self.pattern_type is PatternType.PREFIXED:
            return resource.name.startswith(self.name)
        return self.name in (WILDCARD, resource.name)


class Acl(NamedTuple):
    """A rule for a principal (``User:alice``; ``User:*``: everybody) at a host (``*``: any)."""

    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        where = "" if self.host == ANY_HOST else f" from {self.host}"
        return f"{self.permission.title} {self.principal} {self.operation.title}{where}"

    def is_about(self, principal: str, host: str) -> bool:
        """Whether it applies to this principal at this address."""
        return self.principal in (principal, ANYBODY) and self.host in (host, ANY_HOST)


class Binding(NamedTuple):
    """An ACL and its pattern."""

    pattern: Pattern
    acl: Acl

    def __str__(self) -> str:
        return f"{self.acl} on {self.pattern}"


class Filter(NamedTuple):
    """A filter of bindings: None and ANY match everything."""

    kind: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, binding: Binding) -> bool:
        """Whether the binding matches."""
        acl = binding.acl
        return (
            self._matches_pattern(binding.pattern)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, pattern: Pattern) -> bool:
        if self.kind not in (ResourceType.ANY, pattern.kind):
            return False
        if self.pattern_type is PatternType.MATCH:
            return self.name is None or pattern.covers(Resource(pattern.kind, self.name))
        return self.pattern_type in (PatternType.ANY, pattern.pattern_type) and self.name in (None, pattern.name)


def check_binding(binding: Binding) -> Binding:
    """Return the binding. Raises InvalidRequest for a filter, or an impossible name."""
    pattern, acl = binding
    if pattern.kind not in KINDS or pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequest(
            f"an ACL must name a type of resource and literal or prefixed, got {pattern.kind.title} and "
            f"{pattern.pattern_type.title}"
        )
    if acl.operation is Operation.ANY or acl.permission is Permission.ANY:
        raise InvalidRequest("an ACL must name its operation, and Allow or Deny: Any is for filters")
    if not pattern.name:
        raise InvalidRequest(f"the name of a resource of type {pattern.kind.title} is empty")
    if pattern.kind is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        raise InvalidRequest(f"the cluster's name must be {CLUSTER_NAME}, got {pattern.name!r}")
    check_principal(acl.principal)
    if not acl.host:
        raise InvalidRequest(f"the host of an ACL is empty; {ANY_HOST} means every host")
    return binding


def check_principal(text: str) -> str:
    """Return the principal, ``User:alice``. Raises InvalidRequest for another text."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise InvalidRequest(f"a principal must be KIND:NAME, such as User:alice, got {text!r}")
    return text


W = TypeVar("W", bound=_Word)


def word_of_number(words: type[W], number: int) -> W:
    """The term with this number. Raises InvalidRequest for an unknown one."""
    try:
        return words(number)
    except ValueError:
        known = ", ".join(f"{one.value} ({one.title})" for one in words)
        raise InvalidRequest(f"{words.__name__} {number} is unknown; known are {known}") from None


def word_of_text(words: type[W], text: str) -> W:
    """The term with this name: ``ClusterAction``, ``CLUSTER_ACTION``, ``cluster-action``. Raises ValueError."""
    wanted = text.replace("_", "").replace("-", "").lower()
    for one in words:
        if one.title.lower() == wanted:
            return one
    raise ValueError(f"{text!r} is unknown; known are {', '.join(one.title for one in words)}")


def parse_resource(text: str) -> Resource:
    """``topic:orders``, ``group:g``, ``cluster``. Raises ValueError."""
    kind, colon, name = text.partition(":")
    found = word_of_text(ResourceType, kind)
    if found is ResourceType.CLUSTER and (not colon or name == CLUSTER_NAME):
        return CLUSTER
    if found not in KINDS or not name or found is ResourceType.CLUSTER:
        raise ValueError(f"{text!r} is not a resource")
    return Resource(found, name)
