"""ACLs in ZooKeeper, as Kafka and its tools store them (KIP-11, KIP-290): one node per pattern.

    /kafka-acl/Topic/orders
    /kafka-acl-extended/prefixed/Topic/ord
        {"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}

Names of groups that cannot be a node's name are percent-encoded, as in `paths.group_node`. A change also writes a
sequential notice, so that brokers read only what has changed:

    /kafka-acl-changes/acl_changes_0000000007            TOPIC:orders
    /kafka-acl-extended-changes/acl_changes_0000000003   {"version":1,"resourceType":"TOPIC","name":"ord",
                                                          "patternType":"PREFIXED"}

Every change is an act, in the same transaction. An ACL with an operation that klog does not know is ignored. An
otherwise unreadable node is not used at all (`Damage`), and the resources of its pattern are denied: it may contain a
Deny.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from klog.coordination import config_notices, entries, paths
from klog.coordination.acts import Actor, commit_act, new_act
from klog.coordination.entries import JsonNode
from klog.coordination.zookeeper import MULTI_BYTES_MAX, Create, Delete, Operation, Watch, ZNode, ZooKeeper, put
from klog.errors import InvalidRequest, SessionLost, ZooKeeperError
from klog.security import permissions
from klog.security.permissions import KINDS, Acl, Binding, Pattern, PatternType, Permission, ResourceType, word_of_text

ACL_ACT: Final = "acls"
"""The kind of acts on ACLs. Their states are the node's data with the pattern:
``{"resourceType":"Topic","name":"orders","patternType":"Literal","version":1,"acls":[..]}``."""

NODE_BYTES_MAX: Final = MULTI_BYTES_MAX // 4
RACE_TRIES: Final = 50
NOTICES_AT_ONCE: Final = 1_000
NOTICES_KEPT: Final = 100
"""Beyond this number, old notices are removed."""

_NOTICE: Final = "acl_changes_"
_ROOTS: Final = {PatternType.LITERAL: paths.ACLS, PatternType.PREFIXED: paths.PREFIXED_ACLS}
_CHANGES: Final = {PatternType.LITERAL: paths.ACL_CHANGES, PatternType.PREFIXED: paths.PREFIXED_ACL_CHANGES}
ALL_FOLDERS: Final = (*(f"{root}/{kind.title}" for root in _ROOTS.values() for kind in KINDS), *_CHANGES.values())

Damage = dict[Pattern, str]
"""Pattern -> why its node cannot be read."""
State = frozenset[Acl]


@dataclass(slots=True)
class AclsRead:
    """ACLs that were read, and patterns that could not be."""

    acls: dict[Pattern, State] = field(default_factory=dict)
    damage: Damage = field(default_factory=dict)


@dataclass(slots=True)
class Notices:
    """``patterns``: what changed; None if a notice does not tell. ``last``: the highest numbers that exist.

    ``count``: number of notices, read or not.
    """

    patterns: set[Pattern] | None
    last: Mapping[PatternType, int]
    count: int


def path_of(pattern: Pattern) -> str:
    """The node of a pattern's ACLs."""
    return f"{_ROOTS[pattern.pattern_type]}/{pattern.kind.title}/{paths.group_node(pattern.name)}"


# --- Reading ----------------------------------------------------------------------------------------------------------


def ensure_folders(zookeeper: ZooKeeper) -> None:
    """Create missing folders, as each broker of Kafka does."""
    zookeeper.ensure_paths(ALL_FOLDERS)


def read_all(zookeeper: ZooKeeper) -> AclsRead:
    """All ACLs. Raises SessionLost."""
    patterns = [
        Pattern(kind, paths.group_name(node), pattern_type)
        for pattern_type, root in _ROOTS.items()
        for kind, nodes in zip(KINDS, zookeeper.children_many([f"{root}/{one.title}" for one in KINDS]), strict=True)
        for node in nodes
    ]
    return read(zookeeper, patterns)


def read(zookeeper: ZooKeeper, patterns: Iterable[Pattern]) -> AclsRead:
    """The ACLs of these patterns; none for a pattern without a node."""
    found = AclsRead()
    patterns = list(patterns)
    for pattern, node in zip(patterns, zookeeper.get_many([path_of(one) for one in patterns]), strict=True):
        try:
            found.acls[pattern] = _decoded(pattern, node)
        except ZooKeeperError as error:
            found.damage[pattern] = error.message
    return found


def notices(zookeeper: ZooKeeper, after: Mapping[PatternType, int], watch: Watch) -> Notices:
    """The patterns in notices with higher numbers. The watch fires at the next notice."""
    patterns: set[Pattern] | None = set()
    last = dict(after)
    count = 0
    for pattern_type, folder in _CHANGES.items():
        numbered = config_notices.numbered(zookeeper, folder, _NOTICE, watch)
        count += len(numbered)
        new = [one for one in numbered if one[0] > after.get(pattern_type, -1)]
        if numbered:
            last[pattern_type] = numbered[-1][0]
        if len(new) > NOTICES_AT_ONCE or (numbered and numbered[-1][0] < after.get(pattern_type, -1)):
            patterns = None  # reading everything is cheaper, or the folder was created again
            continue
        for (_, path), node in zip(new, zookeeper.get_many([path for _, path in new]), strict=True):
            named = None if node is None else _noticed(path, node.data, pattern_type)
            if named is None:
                patterns = None
            elif patterns is not None:
                patterns.add(named)
    return Notices(patterns, last, count)


def forget_notices(zookeeper: ZooKeeper) -> None:
    """As `config_notices.forget`."""
    for folder in _CHANGES.values():
        config_notices.forget(zookeeper, folder)


def _noticed(path: str, data: bytes, pattern_type: PatternType) -> Pattern | None:
    """The pattern in a notice; None if it cannot be read."""
    try:
        if pattern_type is PatternType.LITERAL:
            kind, _, name = data.decode().partition(":")
            found = Pattern(word_of_text(ResourceType, kind), name, pattern_type)
        else:
            found = _pattern(JsonNode(path, data))
    except (ValueError, ZooKeeperError):
        return None
    return found if found.kind in KINDS and found.name and found.pattern_type in _ROOTS else None


def _pattern(entry: JsonNode) -> Pattern:
    """Raises ValueError for a word that is none."""
    return Pattern(
        word_of_text(ResourceType, entry.text("resourceType")),
        entry.text("name"),
        word_of_text(PatternType, entry.text("patternType")),
    )


def _decoded(pattern: Pattern, node: ZNode | None) -> State:
    if node is None or not node.data:
        return frozenset()
    entry = JsonNode(path_of(pattern), node.data)
    return _acls(entry)


def _acls(entry: JsonNode) -> State:
    return frozenset(acl for one in entry.entry_list("acls") if (acl := _acl(one)) is not None)


def _acl(entry: JsonNode) -> Acl | None:
    """None for an operation that klog does not know, as of a later Kafka's resources."""
    try:
        operation = word_of_text(permissions.Operation, entry.text("operation"))
    except ValueError:
        return None
    try:
        permission = word_of_text(Permission, entry.text("permissionType"))
    except ValueError as error:
        raise ZooKeeperError(f"ZooKeeper node {entry.path}: {error}") from None
    return Acl(entry.text("principal"), entry.text("host"), operation, permission)


def state_of(acls: Iterable[Acl]) -> dict[str, Any]:
    """The node's data."""
    return {
        "version": 1,
        "acls": [
            {
                "principal": one.principal,
                "permissionType": one.permission.title,
                "operation": one.operation.title,
                "host": one.host,
            }
            for one in sorted(acls)
        ],
    }


def act_state(pattern: Pattern, acls: Iterable[Acl]) -> dict[str, Any]:
    """An act's state."""
    return {
        "resourceType": pattern.kind.title,
        "name": pattern.name,
        "patternType": pattern.pattern_type.title,
        **state_of(acls),
    }


def read_act_state(state: object) -> tuple[Pattern, State]:
    """Parse an act's state. Raises ZooKeeperError."""
    if not isinstance(state, dict):
        raise ZooKeeperError("the act keeps no ACLs")
    entry = JsonNode(paths.ACTS, entries.encode(state))
    try:
        return _pattern(entry), _acls(entry)
    except ValueError as error:
        raise ZooKeeperError(f"the act keeps no ACLs: {error}") from None


# --- Writing ----------------------------------------------------------------------------------------------------------


def change(
    zookeeper: ZooKeeper, pattern: Pattern, decide: Callable[[State], Iterable[Acl]], actor: Actor
) -> tuple[State, State]:
    """Replace a pattern's ACLs by what ``decide`` returns for the current ones; returns the ACLs before and after.

    Writes nothing if they are equal. Raises InvalidRequest for more ACLs than a node may have; SessionLost.
    """
    path = path_of(pattern)
    for _ in range(RACE_TRIES):
        node = zookeeper.find(path)
        before = _decoded(pattern, node)
        after = frozenset(decide(before))
        if after == before:
            return before, after
        data = entries.encode(state_of(after))
        if len(data) > NODE_BYTES_MAX:
            raise InvalidRequest(
                f"{pattern} would have {len(after)} ACLs, {len(data)} bytes; a pattern can have {NODE_BYTES_MAX}"
            )
        act = new_act(
            ACL_ACT,
            actor,
            acl=str(pattern),
            before=act_state(pattern, before),
            after=act_state(pattern, after),
            clock=zookeeper.clock,
        )
        write: Operation = put(path, data, node)
        if node is not None and not after:
            write = Delete(path, node.stat.version)
        if commit_act(zookeeper, act, [write, _notice(pattern)], ALL_FOLDERS):
            return before, after
    raise SessionLost(f"{pattern}: others change its ACLs all the time; {RACE_TRIES} tries were too late")


def _notice(pattern: Pattern) -> Create:
    folder = _CHANGES[pattern.pattern_type]
    if pattern.pattern_type is PatternType.LITERAL:
        data = f"{pattern.kind.name}:{pattern.name}".encode()
    else:
        data = entries.encode(
            {
                "version": 1,
                "resourceType": pattern.kind.name,
                "name": pattern.name,
                "patternType": pattern.pattern_type.name,
            }
        )
    return Create(f"{folder}/{_NOTICE}", data, sequence=True)


def by_pattern(bindings: Sequence[Binding]) -> dict[Pattern, set[Acl]]:
    """The ACLs of each pattern."""
    found: dict[Pattern, set[Acl]] = {}
    for one in bindings:
        found.setdefault(one.pattern, set()).add(one.acl)
    return found
