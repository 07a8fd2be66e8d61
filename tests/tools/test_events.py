"""Events in sentences: each kind that brokers write, and whatever else may lie in the topic."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from klog.errors import UsageError
from klog.event_kinds import EVENT_KINDS
from klog.tools.events import ACTS_REMEMBERED, EventFilter, Once, brokers_of, filter_of, parse, row
from tests.rows import each

OF_T0 = {"topic": "t", "partition": 0}
ELECTED = {**OF_T0, "leader": 2, "leader_epoch": 5, "isr": [2, 3], "old_leader": 1, "reason": "leader 1 is dead"}
IN_SYNC = {**OF_T0, "leader": 1, "leader_epoch": 4, "isr": [1, 2], "old_isr": [1, 2, 3], "reason": "3 fell behind"}
MOVED = {**OF_T0, "replicas": [1, 2], "target": [3, 1], "throttle": 1_000_000}

SAMPLES: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "act": (
        {
            "act": "mifz3k2a9x4q",
            "what": "topic-settings",
            "client": "klog",
            "host": "h",
            "topic": "t",
            "before": {},
            "after": {},
        },
        "t",
        ["topic-settings", "klog@h", "mifz3k2a9x4q"],
    ),
    "broker-down": ({"id": 3, "reason": "its session has ended"}, "broker 3", ["down"]),
    "broker-up": ({"id": 3, "host": "h", "port": 9092}, "broker 3", ["h:9092"]),
    "clock-skew": ({"ahead_ms": -864_000_000}, "broker 9", ["864,000 s (10 days) behind"]),
    "commit-refused": (
        {"group": "g", "member": "m", "client": "c", "host": "h", "generation": 3, "error": "ILLEGAL_GENERATION"},
        "group g",
        ["m", "h", "ILLEGAL_GENERATION"],
    ),
    "connections-full": (
        {"listener": "CLIENTS", "reason": "as many as there may be", "connections": 40, "most_of": "10.0.0.7 (38)"},
        "broker 9",
        ["CLIENTS", "40", "10.0.0.7 (38)"],
    ),
    "controller-elected": ({"controller": 2, "controller_epoch": 7}, "controller", ["2", "7"]),
    "damage-found": (
        {**OF_T0, "first_address": 10, "end_address": 90, "found_by": "scrubber", "reason": "crc"},
        "t-0",
        ["10", "90", "scrubber"],
    ),
    "denied": (
        {
            "principal": "User:alice",
            "host": "10.0.0.7",
            "operation": "Read",
            "resource": "topic:t",
            "request": "Fetch",
            "rule": "no ACL allows it",
            "topic": "t",
        },
        "t",
        ["User:alice", "10.0.0.7", "Read topic:t", "Fetch"],
    ),
    "throttled": (
        {
            "quota": "producer_byte_rate",
            "entity": "users/alice",
            "limit": 2e7,
            "user": "alice",
            "client": "app",
            "host": "10.0.0.7",
            "throttle_ms": 1500,
        },
        "broker 9",
        ["'alice'", "'app'", "10.0.0.7", "1500 ms", "producer_byte_rate 20000000 bytes/s"],
    ),
    "zookeeper-full": (
        {"refused": "schemas", "share": 0.52, "limit": 0.5, "heap_mib": 256},
        "broker 9",
        ["52%", "256 MiB", "schemas"],
    ),
    "events-dropped": ({"events": 1}, "broker 9", ["1 event "]),
    "group-empty": ({"group": "g", "generation": 4, "reason": "m left"}, "group g", ["no members", "4"]),
    "isr-changed": (IN_SYNC, "t-0", ["1,2", "1,2,3"]),
    "isr-expanded": (IN_SYNC, "t-0", ["1,2", "1,2,3"]),
    "isr-shrunk": (IN_SYNC, "t-0", ["1,2", "1,2,3"]),
    "leader-elected": (ELECTED, "t-0", ["2", "5", "1", "2,3"]),
    "log-dir-offline": ({"dir": "/data/1", "reason": "EIO"}, "broker 9", ["/data/1"]),
    "messages-lost": (
        {
            **OF_T0,
            "cut_at": 10,
            "ended_at": 90,
            "high_watermark": 50,
            "leader": 1,
            "leader_epoch": 2,
            "files": ["a.lost"],
        },
        "t-0",
        ["10", "90", "a.lost"],
    ),
    "partition-offline": ({**ELECTED, "leader": -1}, "t-0", ["no leader", "5"]),
    "partitions-added": ({"topic": "t", "partitions": 8}, "t", ["8 partitions"]),
    "reassignment-begun": (MOVED, "t-0", ["1,2", "3,1", "1,000,000"]),
    "reassignment-cancelled": (MOVED, "t-0", ["1,2", "3,1"]),
    "reassignment-done": ({**OF_T0, "replicas": [3, 1], "origin": [1, 2]}, "t-0", ["3,1"]),
    "reassignment-stalled": ({**OF_T0, "reason": "broker 3 is dead"}, "t-0", ["stalled"]),
    "rebalance": ({"group": "g", "generation": 4, "protocol": "range", "members": ["a"]}, "group g", ["4", "1 member"]),
    "replicas-offline": ({"id": 2, "partitions": ["t-0", "u-1"]}, "broker 2", ["t-0, u-1"]),
    "session-expired": ({}, "broker 9", ["session"]),
    "settings-changed": ({"topic": "t", "settings": {"retention.ms": "5"}}, "t", ["retention.ms=5"]),
    "topic-created": ({"topic": "t", "partitions": 1, "replication_factor": 3}, "t", ["1 partition,", "3"]),
    "topic-purged": ({"topic": "t", "topic_id": "0", "reason": "its time is over"}, "t", ["for good"]),
    "topic-restored": ({"topic": "t", "partitions": 3}, "t", ["restored", "3"]),
    "topic-deleted": ({"topic": "t"}, "t", ["deleted"]),
    "unclean-election": (ELECTED, "t-0", ["2", "5"]),
}


def written(kind: str, facts: dict[str, Any]) -> bytes:
    return json.dumps({"ts": "2026-02-01T10:00:00.250Z", "broker": 9, "kind": kind, **facts}).encode()


def test_there_is_a_sample_of_each_kind() -> None:
    assert set(SAMPLES) == set(EVENT_KINDS)


@each("kind", sorted(SAMPLES))
def test_an_event_in_a_sentence(kind: str) -> None:
    facts, subject, words = SAMPLES[kind]
    shown = row(parse(written(kind, facts)))
    assert shown.time is not None and shown.time.isoformat() == "2026-02-01T10:00:00.250000+00:00"
    assert (shown.kind, shown.subject, shown.reason) == (kind, subject, facts.get("reason"))
    assert all(word in shown.what for word in words), shown.what
    assert "{" not in shown.what and '"' not in shown.what


def test_an_event_without_facts_that_are_needed_shows_those_that_are_there() -> None:
    shown = row(parse(written("leader-elected", {"topic": "t", "leader": 2, "new_fact": [1]})))
    assert (shown.subject, shown.what) == ("t", "leader 2, new_fact [1]")
    shown = row(parse(b"garbage\xff"))
    assert (shown.time, shown.kind) == (None, "?") and "garbage" in shown.what


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(sorted({name for facts, _, _ in SAMPLES.values() for name in facts} | {"ts", "broker"}))


@given(
    kind=st.sampled_from(sorted(EVENT_KINDS)) | st.text(max_size=5), facts=st.dictionaries(names, values, max_size=8)
)
def test_whatever_lies_in_the_topic_is_shown(kind: str, facts: dict[str, Any]) -> None:
    event = parse(json.dumps({"kind": kind, **facts}).encode())
    shown = row(event)
    assert shown.kind == kind and isinstance(shown.what, str)
    assert all(isinstance(one, int) for one in brokers_of(event))
    EventFilter("t", 0, "g", 1, ("broker-up",)).takes(event)


@each(
    ("chosen", "kinds"),
    [
        (EventFilter(broker=3), {"broker-up", "broker-down", "isr-changed", "isr-expanded", "isr-shrunk"}),
        (EventFilter(group="g"), {"rebalance", "group-empty", "commit-refused"}),
        (EventFilter(topic="t", partition=0, kinds=("leader-elected", "broker-up")), {"leader-elected"}),
        (EventFilter(broker=9), {"damage-found", "events-dropped", "log-dir-offline", "session-expired"}),
    ],
)
def test_events_are_chosen(chosen: EventFilter, kinds: set[str]) -> None:
    taken = {kind for kind, (facts, _, _) in SAMPLES.items() if chosen.takes(parse(written(kind, facts)))}
    assert kinds <= taken
    if chosen.broker != 9:
        assert taken - kinds <= {kind for kind, (facts, _, _) in SAMPLES.items() if 3 in brokers_of(facts)}


def test_a_line_of_brackets_is_no_event() -> None:
    assert parse(b"[" * 100_000)["kind"] == "?"


def test_an_act_that_two_controllers_have_sent_is_shown_once() -> None:
    once = Once()
    act = {"ts": "2026-02-01T10:00:00Z", "broker": 1, "kind": "act", **SAMPLES["act"][0]}
    assert once.is_new(act)
    assert not once.is_new({**act, "broker": 2, "ts": "2026-02-01T10:00:03Z"})
    assert once.is_new({**act, "client": "stranger"}), "another event under the id of the act"
    assert not once.is_new(act), "the stranger's does not replace it"
    other = {"kind": "topic-deleted", "topic": "t", "act": act["act"]}
    assert once.is_new(other) and once.is_new(other)
    assert once.is_new({**act, "act": 7}) and once.is_new({"kind": "act"})
    for number in range(ACTS_REMEMBERED):
        assert once.is_new({**act, "act": f"a{number}"})
    assert once.is_new(act), "forgotten, and shown rather than left out"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("orders", EventFilter(topic="orders")),
        ("orders-0", EventFilter("orders", 0)),
        ("a-1", EventFilter(topic="a-1")),
        ("gone", EventFilter(topic="gone")),
        ("2", EventFilter(broker=2)),
        ("topic 2", EventFilter(topic="2")),
        ("broker 2", EventFilter(broker=2)),
        ("group orders-0", EventFilter(group="orders-0")),
        ("partition a-1-3", EventFilter("a-1", 3)),
    ],
)
def test_a_subject_is_a_filter(words: str, expected: EventFilter) -> None:
    assert filter_of(words.split(), {"orders", "a-1"}) == expected


@pytest.mark.parametrize("words", ["broker x", "partition orders", "nonsense a", "topic a b", "broker -1"])
def test_what_is_no_subject_is_wrong_usage(words: str) -> None:
    with pytest.raises(UsageError):
        filter_of(words.split(), ())
