"""What a broker says of what it denies is bounded, and counts what it does not say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from klog.coordination.acts import Actor
from klog.metrics import Measures
from klog.security.permissions import Operation, Resource, ResourceType
from klog.server import event_limits
from klog.server.access import Denials
from klog.server.dispatch import FORWARDED, _forwarded, forwarding_client


class World:
    def __init__(self) -> None:
        self.now_s = 1000.0
        self.told: list[Mapping[str, Any]] = []
        self.measures = Measures()
        self.denials = Denials(lambda kind, facts: self.told.append({"kind": kind, **facts}), self.clock, self.measures)

    def clock(self) -> float:
        return self.now_s

    def deny(self, name: str, principal: str = "User:a") -> None:
        resource = Resource(ResourceType.TOPIC, name)
        self.denials.note(principal, "10.0.0.7", Operation.READ, resource, "Fetch", "no ACL allows it")


def test_of_the_same_there_is_one_event_a_minute_that_counts_the_others() -> None:
    world = World()
    for _ in range(500):
        world.deny("t")
    world.deny("t", "User:b")
    assert [one["principal"] for one in world.told] == ["User:a", "User:b"]
    assert world.told[0] == {
        "kind": "denied",
        "principal": "User:a",
        "host": "10.0.0.7",
        "operation": "Read",
        "resource": "topic:t",
        "request": "Fetch",
        "rule": "no ACL allows it",
        "topic": "t",
    }
    world.now_s += event_limits.SAME_EVERY_S
    world.deny("t")
    assert world.told[-1]["same_before"] == 499
    assert world.measures.denied == 502


def test_of_all_together_there_are_so_many_a_minute() -> None:
    world = World()
    for number in range(1000):
        world.deny(f"t{number}")
    assert len(world.told) == event_limits.EVENTS_A_MINUTE
    world.now_s += 60
    world.deny("another")
    assert world.told[-1]["others_before"] == 1000 - event_limits.EVENTS_A_MINUTE
    world.deny("one more")
    assert "others_before" not in world.told[-1]


def test_a_broker_that_forwards_names_the_client_and_its_principal() -> None:
    for actor in (
        Actor("my app", "10.0.0.7", "User:CN=a@b,O=c d"),
        Actor("a@b for c", "::1"),
        Actor("", "10.0.0.7", "User:a:b"),
    ):
        client = forwarding_client("klog-broker-1", actor)
        assert client.startswith(f"klog-broker-1{FORWARDED}")
        assert _forwarded(client.partition(FORWARDED)[2]) == actor
    assert _forwarded("my app@10.0.0.7") == Actor("my app", "10.0.0.7")  # from a broker before 0.3
