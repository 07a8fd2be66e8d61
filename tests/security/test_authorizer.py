"""Kafka's rules of permissions, case by case and against a slow reading of them."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import InvalidConfig, InvalidRequest
from klog.security.authorizer import NO_ACL, NOT_ALLOWED, NOT_READ, SUPER_USER, Authorizer, parse_super_users
from klog.security.permissions import (
    CLUSTER,
    IMPLIED_BY,
    KINDS,
    Acl,
    Binding,
    Filter,
    Operation,
    Pattern,
    PatternType,
    Permission,
    Resource,
    ResourceType,
    check_binding,
    parse_resource,
    word_of_number,
    word_of_text,
)
from tests.rows import each

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALICE, HERE = "User:alice", "10.0.0.7"


def topic(name: str, *, prefixed: bool = False) -> Pattern:
    return Pattern(TOPIC, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL)


def acl(operation: Operation, permission: Permission = ALLOW, principal: str = ALICE, host: str = "*") -> Acl:
    return Acl(principal, host, operation, permission)


def authorizer(*bindings: tuple[Pattern, Acl], allow_without_acl: bool = False) -> Authorizer:
    made = Authorizer(["User:root"], allow_without_acl=allow_without_acl)
    made.replace(grouped(Binding(*one) for one in bindings))
    return made


def grouped(bindings: Iterable[Binding]) -> dict[Pattern, frozenset[Acl]]:
    found: dict[Pattern, frozenset[Acl]] = {}
    for one in bindings:
        found[one.pattern] = found.get(one.pattern, frozenset()) | {one.acl}
    return found


def test_until_the_acls_are_read_only_super_users_are_allowed() -> None:
    made = Authorizer(["User:root"], allow_without_acl=True)
    assert made.decide(ALICE, HERE, READ, Resource(TOPIC, "t")) == (False, NOT_READ)
    assert not made.may_any(ALICE, HERE, WRITE, TOPIC)
    assert made.decide("User:root", HERE, READ, Resource(TOPIC, "t")) == (True, SUPER_USER)
    assert made.may_any("User:root", HERE, WRITE, TOPIC)
    made.replace({})
    assert made.decide(ALICE, HERE, READ, Resource(TOPIC, "t")) == (True, NO_ACL)


def test_without_acls_nothing_is_allowed_unless_the_setting_says_so() -> None:
    assert authorizer().decide(ALICE, HERE, READ, Resource(TOPIC, "t")) == (False, NOT_ALLOWED)
    open_one = authorizer((topic("t"), acl(READ, principal="User:bob")), allow_without_acl=True)
    assert not open_one.may(ALICE, HERE, READ, Resource(TOPIC, "t"))  # it has an ACL, of somebody else
    assert open_one.may(ALICE, HERE, READ, Resource(TOPIC, "u"))


def test_deny_comes_before_allow_whatever_is_more_exact() -> None:
    made = authorizer((topic("orders"), acl(READ)), (topic("*"), acl(ALL, DENY)))
    decision = made.decide(ALICE, HERE, READ, Resource(TOPIC, "orders"))
    assert decision == (False, "Deny User:alice All on topic:*")
    made = authorizer((topic("orders"), acl(READ, DENY, host="10.0.0.8")), (topic("ord", prefixed=True), acl(READ)))
    assert made.decide(ALICE, HERE, READ, Resource(TOPIC, "orders")) == (
        True,
        "Allow User:alice Read on topic:ord* (prefixed)",
    )
    assert not made.may(ALICE, "10.0.0.8", READ, Resource(TOPIC, "orders"))


def test_prefixes_literals_and_the_wildcard() -> None:
    made = authorizer(
        (topic("a"), acl(READ)), (topic("ab", prefixed=True), acl(WRITE)), (Pattern(GROUP, "*"), acl(READ))
    )
    may = {
        name: (made.may(ALICE, HERE, READ, Resource(TOPIC, name)), made.may(ALICE, HERE, WRITE, Resource(TOPIC, name)))
        for name in ("a", "ab", "abc", "b", "*", "")
    }
    assert may == {
        "a": (True, False),
        "ab": (False, True),
        "abc": (False, True),
        "b": (False, False),
        "*": (False, False),
        "": (False, False),
    }
    assert made.may(ALICE, HERE, READ, Resource(GROUP, "any"))
    assert not made.may("User:bob", HERE, READ, Resource(GROUP, "any"))


@each(("implied", "by"), [(one, by) for one, those in IMPLIED_BY.items() for by in sorted(those)])
def test_what_operations_imply_is_allowed_and_not_denied(implied: Operation, by: Operation) -> None:
    resource = Resource(TOPIC, "t")
    assert authorizer((topic("t"), acl(by))).may(ALICE, HERE, implied, resource)
    assert not authorizer((topic("t"), acl(implied))).may(ALICE, HERE, by, resource)
    denied = authorizer((topic("t"), acl(by, DENY)), (topic("t"), acl(implied)))
    assert denied.may(ALICE, HERE, implied, resource)


def test_what_cannot_be_read_denies_what_it_is_about_until_it_is_read() -> None:
    made = authorizer((topic("t"), acl(ALL)), (topic("u"), acl(ALL)))
    made.update({}, [topic("t", prefixed=True)])
    assert not made.may(ALICE, HERE, READ, Resource(TOPIC, "t"))
    assert made.may(ALICE, HERE, READ, Resource(TOPIC, "u"))
    assert made.may("User:root", HERE, READ, Resource(TOPIC, "t"))
    made.update({topic("t", prefixed=True): frozenset()})
    assert made.may(ALICE, HERE, READ, Resource(TOPIC, "t"))
    made.update({}, [topic("*")])
    assert not made.may_any(ALICE, HERE, READ, TOPIC)


def test_a_change_takes_effect_although_decisions_are_remembered() -> None:
    made = authorizer((topic("t"), acl(READ)))
    assert made.may(ALICE, HERE, READ, Resource(TOPIC, "t"))
    assert made.may_any(ALICE, HERE, READ, TOPIC)
    made.update({topic("t"): frozenset()})
    assert not made.may(ALICE, HERE, READ, Resource(TOPIC, "t"))
    assert not made.may_any(ALICE, HERE, READ, TOPIC)


def test_any_resource_counts_unless_a_deny_takes_all_of_it() -> None:
    cases: list[tuple[list[tuple[Pattern, Acl]], bool]] = [
        ([], False),
        ([(topic("t"), acl(WRITE))], True),
        ([(topic("t"), acl(READ))], False),
        ([(topic("t"), acl(WRITE)), (topic("t"), acl(WRITE, DENY))], False),
        ([(topic("t"), acl(WRITE)), (topic("*"), acl(ALL, DENY))], False),
        ([(topic("tab", prefixed=True), acl(WRITE)), (topic("ta", prefixed=True), acl(WRITE, DENY))], False),
        ([(topic("t", prefixed=True), acl(WRITE)), (topic("ta", prefixed=True), acl(WRITE, DENY))], True),
        ([(topic("*"), acl(WRITE)), (topic("ta", prefixed=True), acl(WRITE, DENY))], True),
        ([(topic("t"), acl(WRITE, principal="User:*"))], True),
        ([(topic("t"), acl(WRITE, host="10.0.0.8"))], False),
        ([(Pattern(GROUP, "g"), acl(WRITE))], False),
    ]
    for bindings, expected in cases:
        assert authorizer(*bindings).may_any(ALICE, HERE, WRITE, TOPIC) is expected, bindings


def test_the_bits_of_what_may_be_done() -> None:
    made = authorizer((topic("t"), acl(READ)), (topic("t"), acl(DESCRIBE, DENY)))
    assert made.operations(ALICE, HERE, Resource(TOPIC, "t")) == 1 << READ
    assert made.operations("User:root", HERE, CLUSTER) == sum(1 << one for one in (5, 7, 8, 9, 10, 11, 12))


NAMES = st.sampled_from(["a", "ab", "abc", "b", "*"])
BINDINGS = st.builds(
    Binding,
    st.builds(Pattern, st.sampled_from(KINDS[:2]), NAMES, st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])),
    st.builds(
        Acl,
        st.sampled_from([ALICE, "User:bob", "User:*"]),
        st.sampled_from([HERE, "*", "h"]),
        st.sampled_from([ALL, READ, WRITE, DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS]),
        st.sampled_from([ALLOW, DENY]),
    ),
)


@given(
    st.lists(BINDINGS, max_size=8),
    NAMES,
    st.sampled_from([READ, WRITE, DESCRIBE, Operation.DESCRIBE_CONFIGS]),
    st.booleans(),
)
def test_the_index_decides_as_a_search_through_all_acls(
    bindings: list[Binding], name: str, operation: Operation, allow_without_acl: bool
) -> None:
    made = Authorizer(allow_without_acl=allow_without_acl)
    made.replace(grouped(bindings))
    resource = Resource(TOPIC, name)
    about = [one.acl for one in bindings if one.pattern.covers(resource)]
    mine = [one for one in about if one.is_about(ALICE, HERE)]
    implying = {operation, ALL, *IMPLIED_BY.get(operation, ())}
    expected = allow_without_acl
    if about:
        expected = not any(one.permission is DENY and one.operation in (operation, ALL) for one in mine) and any(
            one.permission is ALLOW and one.operation in implying for one in mine
        )
    assert made.may(ALICE, HERE, operation, resource) is expected
    assert made.may(ALICE, HERE, operation, resource) is expected  # and again, from memory
    assert sorted(set(made.bindings())) == sorted(set(bindings))


def test_filters() -> None:
    one = Binding(topic("orders"), acl(READ))
    prefixed = Binding(topic("ord", prefixed=True), acl(READ))
    every = Binding(topic("*"), acl(READ))
    assert all(Filter().matches(each) for each in (one, prefixed, every))
    match = Filter(TOPIC, "orders", PatternType.MATCH)
    assert [match.matches(each) for each in (one, prefixed, every)] == [True, True, True]
    literal = Filter(TOPIC, "orders", PatternType.LITERAL)
    assert [literal.matches(each) for each in (one, prefixed, every)] == [True, False, False]
    for wrong in (
        Filter(GROUP),
        Filter(principal="User:bob"),
        Filter(host="h"),
        Filter(operation=WRITE),
        Filter(permission=DENY),
        Filter(name="order"),
    ):
        assert not wrong.matches(one)


@each(
    "wrong",
    [
        Binding(Pattern(ResourceType.ANY, "t"), acl(READ)),
        Binding(Pattern(TOPIC, "t", PatternType.MATCH), acl(READ)),
        Binding(topic(""), acl(READ)),
        Binding(Pattern(ResourceType.CLUSTER, "another"), acl(READ)),
        Binding(topic("t"), acl(Operation.ANY)),
        Binding(topic("t"), acl(READ, Permission.ANY)),
        Binding(topic("t"), acl(READ, principal="alice")),
        Binding(topic("t"), acl(READ, host="")),
    ],
)
def test_what_cannot_be_an_acl(wrong: Binding) -> None:
    with pytest.raises(InvalidRequest):
        check_binding(wrong)


def test_words_and_resources() -> None:
    assert word_of_text(ResourceType, "TransactionalId") is word_of_text(ResourceType, "transactional-id")
    assert word_of_text(Operation, "IDEMPOTENT_WRITE") is Operation.IDEMPOTENT_WRITE
    assert (Operation.CLUSTER_ACTION.title, ResourceType.TRANSACTIONAL_ID.title) == ("ClusterAction", "TransactionalId")
    with pytest.raises(ValueError, match="Reed"):
        word_of_text(Operation, "Reed")
    with pytest.raises(InvalidRequest):
        word_of_number(Operation, 99)
    assert parse_resource("topic:a:b") == Resource(TOPIC, "a:b")
    assert parse_resource("cluster") == parse_resource("Cluster:kafka-cluster") == CLUSTER
    for wrong in ("topic", "topic:", "cluster:x", "any:x", "what:x"):
        with pytest.raises(ValueError, match=r"."):
            parse_resource(wrong)


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users("User:a; User:CN=b,O=c;") == ["User:a", "User:CN=b,O=c"]
    with pytest.raises(InvalidConfig):
        parse_super_users("alice")
