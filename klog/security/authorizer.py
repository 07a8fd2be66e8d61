"""Authorizes operations: Kafka's rules over an index of the ACLs in memory.

In this order, the first rule that applies decides:

    1. a super user (``super.users``) may do everything
    2. while the ACLs have not been read, everything else is denied
    3. a resource whose ACLs cannot be read is denied
    4. a resource without ACLs: ``allow.everyone.if.no.acl.found``
    5. an ACL that denies the operation, or All
    6. an ACL that allows the operation, All, or an operation that implies it (`permissions.IMPLIED_BY`)
    7. denied

An ACL applies to a resource by its name, by ``*``, or by a prefix of its name. Decisions are cached until an ACL
changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from klog.security.permissions import (
    IMPLIED_BY,
    OPERATIONS,
    WILDCARD,
    Acl,
    Binding,
    Operation,
    Pattern,
    PatternType,
    Permission,
    Resource,
    ResourceType,
    operation_bits,
)
from klog.security.principal import Principal

REMEMBERED_MAX: Final = 20_000
"""Cached decisions; clients choose the names. Some ten megabytes."""

SUPER_USER: Final = "super.users"
NO_ACL: Final = "allow.everyone.if.no.acl.found"
NOT_ALLOWED: Final = "no ACL allows it"
NOT_READ: Final = "the broker has not read the ACLs yet"


class Decision(NamedTuple):
    """``rule``: the ACL or setting that decided."""

    allowed: bool
    rule: str


class Authorizer:
    """Not thread-safe. `replace` and `update` set ACLs; until the first `replace` only super users are allowed."""

    def __init__(self, super_users: Iterable[str] = (), *, allow_without_acl: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_without_acl = allow_without_acl
        self.is_read = False
        """Whether the ACLs have been read."""
        self._acls: dict[Pattern, frozenset[Acl]] = {}
        self._lengths: dict[ResourceType, tuple[int, ...]] = {}
        """Lengths of existing prefixes, ascending."""
        self._damaged: frozenset[Pattern] = frozenset()
        self._decided = lru_cache(REMEMBERED_MAX)(self._decide)
        self._any_decided = lru_cache(REMEMBERED_MAX)(self._decide_any)

    # --- the ACLs -----------------------------------------------------------------------------------------------------

    def replace(self, acls: Mapping[Pattern, frozenset[Acl]], damaged: Iterable[Pattern] = ()) -> None:
        """Set all ACLs. ``damaged``: patterns whose ACLs cannot be read."""
        self._acls.clear()
        self._damaged = frozenset()
        self.is_read = True
        self.update(acls, damaged)

    def update(self, acls: Mapping[Pattern, frozenset[Acl]], damaged: Iterable[Pattern] = ()) -> None:
        """Set all ACLs of these patterns."""
        damaged = frozenset(damaged)
        for pattern, those in {**acls, **dict.fromkeys(damaged, frozenset[Acl]())}.items():
            if those:
                self._acls[pattern] = those
            else:
                self._acls.pop(pattern, None)
        self._damaged = self._damaged.difference(acls) | damaged
        lengths: dict[ResourceType, set[int]] = {}
        for pattern in self._acls:
            if pattern.pattern_type is PatternType.PREFIXED:
                lengths.setdefault(pattern.kind, set()).add(len(pattern.name))
        self._lengths = {kind: tuple(sorted(those)) for kind, those in lengths.items()}
        self._decided.cache_clear()
        self._any_decided.cache_clear()

    def bindings(self) -> Iterator[Binding]:
        """All bindings, sorted."""
        for pattern in sorted(self._acls, key=lambda one: (one.pattern_type, one)):
            for acl in sorted(self._acls[pattern]):
                yield Binding(pattern, acl)

    # --- decisions ----------------------------------------------------------------------------------------------------

    def may(self, principal: str, host: str, operation: Operation, resource: Resource) -> bool:
        """Whether the principal at this address may perform the operation."""
        return self.decide(principal, host, operation, resource).allowed

    def decide(self, principal: str, host: str, operation: Operation, resource: Resource) -> Decision:
        """`may`, with the rule that decides."""
        return self._decided(principal, host, operation, resource)

    def _decide(self, principal: str, host: str, operation: Operation, resource: Resource) -> Decision:
        if principal in self._super_users:
            return Decision(True, SUPER_USER)
        if not self.is_read:
            return Decision(False, NOT_READ)
        for pattern in self._damaged:
            if pattern.covers(resource):
                return Decision(False, f"the ACLs of {pattern} cannot be read")
        there = list(self._about(resource))
        if not there:
            return Decision(True, NO_ACL) if self._allow_without_acl else Decision(False, NOT_ALLOWED)
        concerned = [one for one in there if one.acl.is_about(principal, host)]
        denying, allowing = _deciding(operation)
        for permission, operations in ((Permission.DENY, denying), (Permission.ALLOW, allowing)):
            for one in concerned:
                if one.acl.permission is permission and one.acl.operation in operations:
                    return Decision(permission is Permission.ALLOW, str(one))
        return Decision(False, NOT_ALLOWED)

    def _about(self, resource: Resource) -> Iterator[Binding]:
        """Bindings that apply to a resource: by its name first, then by its prefixes, the longest first, then by
        ``*``."""
        kind, name = resource
        for pattern in (
            Pattern(kind, name),
            *(
                Pattern(kind, name[:length], PatternType.PREFIXED)
                for length in reversed(self._lengths.get(kind, ()))
                if length <= len(name)
            ),
            *([Pattern(kind, WILDCARD)] if name != WILDCARD else []),
        ):
            for acl in sorted(self._acls.get(pattern, ())):
                yield Binding(pattern, acl)

    def may_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether the principal may do that on some resource of the type, existing or not (KIP-679)."""
        return self._any_decided(principal, host, operation, kind)

    def _decide_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        if principal in self._super_users:
            return True
        if not self.is_read:
            return False
        concerned = [one for one in self.bindings() if one.pattern.kind is kind and one.acl.is_about(principal, host)]
        denying, allowing = _deciding(operation)
        denied = [
            one.pattern for one in concerned if one.acl.permission is Permission.DENY and one.acl.operation in denying
        ]
        everything = Pattern(kind, WILDCARD)
        if everything in denied or everything in self._damaged:
            return False
        if self._allow_without_acl:
            return True
        return any(
            one.acl.permission is Permission.ALLOW
            and one.acl.operation in allowing
            and not any(_covers(no, one.pattern) for no in (*denied, *self._damaged))
            for one in concerned
        )

    def operations(self, principal: str, host: str, resource: Resource) -> int:
        """The permitted operations, as bits (KIP-430)."""
        return operation_bits(one for one in OPERATIONS[resource.kind] if self.may(principal, host, one, resource))


def _deciding(operation: Operation) -> tuple[frozenset[Operation], frozenset[Operation]]:
    """The operations in ACLs that deny this one, and those that allow it."""
    denying = frozenset({operation, Operation.ALL})
    return denying, denying | IMPLIED_BY.get(operation, frozenset())


def _covers(denied: Pattern, allowed: Pattern) -> bool:
    """Whether the first pattern matches everything that the second matches."""
    if denied.pattern_type is PatternType.PREFIXED:
        is_all = allowed.pattern_type is PatternType.LITERAL and allowed.name == WILDCARD
        return not is_all and allowed.name.startswith(denied.name)
    return denied.name == WILDCARD or denied == allowed


def parse_super_users(text: str) -> list[str]:
    """``User:admin;User:CN=ops,O=x``: separated by semicolons, as names of certificates have commas. Raises
    InvalidConfig."""
    return [str(Principal.parse(one.strip())) for one in text.split(";") if one.strip()]
